package e2e

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/scene"
)

// forScene are the names of a scene in the place of those in the documents.
var forScene = strings.NewReplacer(
	"CLUSTER", scene.ClusterName, "NAMESPACE", rig.Namespace, "INSTANCE", scene.Instance, "pool: ", "scene/pool: ", "key: pool", "key: scene/pool",
)

// documented is a manifest of docs/systems.md or docs/systems/, by the name in the comment before it,
// for a scene.
func documented(t *testing.T, name string) []byte {
	t.Helper()
	root, err := rig.Root()
	require.NoError(t, err)
	pages, err := filepath.Glob(filepath.Join(root, "docs", "systems", "*.md"))
	require.NoError(t, err)
	var found [][]string
	for _, page := range append(pages, filepath.Join(root, "docs", "systems.md")) {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		found = append(found, regexp.MustCompile("(?s)( *)<!-- test: "+name+" -->\n *```yaml\n(.*?)```").FindAllStringSubmatch(string(text), -1)...)
	}
	require.Len(t, found, 1, "manifests %q in the documents", name)
	return []byte(forScene.Replace(regexp.MustCompile("(?m)^"+found[0][1]).ReplaceAllString(found[0][2], "")))
}

// soon is documented for a scene whose Nodes need not be unhealthy for minutes.
func soon(t *testing.T, name string) []byte {
	t.Helper()
	text := string(documented(t, name))
	require.Regexp(t, "300s|timeoutSeconds: 300}", text)
	return []byte(strings.NewReplacer("300s", "2s", "timeoutSeconds: 300}", "timeoutSeconds: 2}", "timeout: 30m", "timeout: 60s").Replace(text))
}

// requesters is the group of the stand-ins that make requests. It has the rights of configs/crds/rbac.yaml
// and no others on them.
const requesters = "stand-in-requesters"

// aggregateRequests gives requesters their rights as the operator of medik8s gets its own: its role
// collects all roles with a label. The second role is what MachineDeletionRemediation adds there.
const aggregateRequests = `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: stand-in-external-remediation}
aggregationRule:
  clusterRoleSelectors: [{matchLabels: {rbac.ext-remediation/aggregate-to-ext-remediation: "true"}}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: stand-in-machine-deletion, labels: {rbac.ext-remediation/aggregate-to-ext-remediation: "true"}}
rules:
- apiGroups: [machine-deletion-remediation.medik8s.io]
  resources: [machinedeletionremediations, machinedeletionremediationtemplates]
  verbs: [get, list, watch, create, update, patch, delete]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: stand-in-external-remediation}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: stand-in-external-remediation}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: stand-in-requesters}]
`

// grantRequests gives requesters their rights where no controller manager aggregates roles.
const grantRequests = `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: stand-in-external-remediation}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: fenced-external-remediation}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: stand-in-requesters}]
`

// installRequests installs what docs/systems.md installs for FencedRemediations: the kinds, the role for
// those who make them, and the template. rights are those of requesters.
func installRequests(ctx context.Context, t *testing.T, on *rig.ControlPlane, rights string) {
	t.Helper()
	require.NoError(t, on.InstallCRDs(ctx, rig.Fenced))
	require.NoError(t, on.ApplyConfig(ctx, "crds/rbac.yaml"))
	require.NoError(t, on.Apply(ctx, []byte(rights)))
	require.NoError(t, on.Apply(ctx, documented(t, "template")))
}

// awaitVerdict waits until explain gives a node this verdict.
func awaitVerdict(ctx context.Context, t *testing.T, s *scene.Scene, node, verdict string) {
	t.Helper()
	require.Eventually(t, func() bool {
		x, err := s.Explain(ctx, node)
		return err == nil && x.Verdict == verdict
	}, patience, 100*time.Millisecond, "%s is %s", node, verdict)
}
