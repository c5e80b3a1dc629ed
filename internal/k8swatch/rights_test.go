package k8swatch

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"github.com/fenced/fenced/internal/k8swatch/client"
	"github.com/fenced/fenced/internal/k8swatch/k8stest"
	"github.com/fenced/fenced/internal/k8swatch/write"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/test/must"
	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/rig/rigtest"
)

// right is one right of one role, and where the code uses it.
type right struct {
	role, group, resource, verbs string
	// code is in the source of these packages as long as the right is used, without the package before a name.
	code string
	by   use
}

// use is what of fenced uses a right.
type use int

const (
	sees    use = iota // what it watches and reads, in every mode
	acts               // only what it does
	reports            // only what it does where it evaluates: the status of checks, and their templates
)

const watches = "list watch"

// rights are all rights of fenced.
var rights = []right{
	{"fenced", "", "nodes", watches, `&store{source: source{Resource: Resource{Kind: "Node"}}`, sees},
	{"fenced", "", "nodes", "get", `Nodes().Get(`, sees},
	{"fenced", "", "nodes", "patch", `Nodes().Patch(`, acts},
	{"fenced", "", "nodes", "delete", `Nodes().Delete(`, acts},
	{"fenced", "", "pods", watches, `&store{source: controlPlanePods(s),`, sees},
	{"fenced", coordination, "leases", "get", `Leases(namespace).Get(`, sees},
	{"fenced", "authorization.k8s.io", "selfsubjectaccessreviews", "create", `SelfSubjectAccessReviews().Create(`, acts},
	{"fenced", "", "events", "create patch", `Typed.Events(namespace)`, acts},
	{"fenced", "", "namespaces", "get", `Namespaces().Get(ctx, medik8sLeases`, sees},
	{"fenced", client.MachineGroup, "machinehealthchecks", watches, `custom(CheckGVR,`, sees},
	{"fenced", client.MachineGroup, "machinehealthchecks", "get", `Resource(CheckGVR).Namespace(r.Namespace)`, reports},
	{"fenced", client.MachineGroup, "machinehealthchecks/status", "patch", `api.Patch(ctx, live.GetName(), types.MergePatchType, patch, metav1.PatchOptions{}, "status")`, reports},
	{"fenced", client.MachineGroup, "machines", watches, `custom(MachineGVR,`, sees},
	{"fenced", client.MachineGroup, "machines", "get", `ReadCustom(ctx, s.Machines(t)`, sees},
	{"fenced", client.MachineGroup, "machines", "patch", `patchMetadata(ctx, cl.Dynamic.Resource(MachineGVR).Namespace(t.Namespace)`, acts},
	{"fenced", client.MachineGroup, "machines", "delete", `Resource(MachineGVR).Namespace(t.Namespace).Delete(`, acts},
	{"fenced", client.Medik8sGroup, "nodehealthchecks", watches, `custom(NodeCheckGVR,`, sees},
	{"fenced", client.Medik8sGroup, "nodehealthchecks", "get", `Resource(NodeCheckGVR), Medik8sGroup, "", name)`, sees},
	{"fenced", client.Medik8sGroup, "nodehealthchecks/status", "patch", `Resource(NodeCheckGVR), changedNodeStatus`, reports},
	{"fenced", coordination, "leases", "list", `r.Leaders.in(ctx, r.Servers.Work.API(), nodeCheckLeader)`, reports},
	{"fenced", client.ConfigGroup, "clusterversions", watches, `custom(UpgradeGVR,`, sees},
	{"fenced", "self-node-remediation.medik8s.io", "selfnoderemediations", watches, requestsCode, sees},
	{"fenced", "fence-agents-remediation.medik8s.io", "fenceagentsremediations", watches, requestsCode, sees},
	{"fenced", "machine-deletion-remediation.medik8s.io", "machinedeletionremediations", watches, requestsCode, sees},
	{"fenced", "infrastructure.cluster.x-k8s.io", "metal3remediations", watches, requestsCode, sees},
	{"fenced", client.FencedGroup, "fencedremediations", watches, requestsCode, sees},
	{"fenced", client.FencedGroup, "fencedremediations", "get", `ReadCustom(ctx, api, group, q.Namespace, q.Name)`, acts},
	{"fenced", client.FencedGroup, "fencedremediations", "patch", `patchMetadata(ctx, api, q.Name, metadata)`, acts},
	{"fenced", client.FencedGroup, "fencedremediations/status", "patch", `writeStatus(ctx, api, u, requestStatus(`, acts},
	{"fenced", client.FencedGroup, "fencedremediationtemplates", "get", `h.template(ctx, h.sideFor(check, target.MachineAPI), t, namespace)`, reports},
	{"fenced-secrets", "", "secrets", "get", `Secrets(namespace).Get(`, sees},
	{"fenced-management", "", "namespaces", "get", `Namespaces().Get(ctx, IdentityNamespace`, sees},
	{"fenced-management", client.HostGroup, "baremetalhosts", watches, `custom(HostGVR,`, sees},
	{"fenced-management", client.HostGroup, "baremetalhosts", "get", `Resource(HostGVR).Namespace(ns), HostGroup`, sees},
	{"fenced-management", client.HostGroup, "baremetalhosts", "patch", `patchMetadata(ctx, cl.Dynamic.Resource(HostGVR).Namespace(ns)`, acts},
	{"fenced-management", client.ClusterGroup, "clusters", watches, `custom(ClusterGVR("clusters")`, sees},
	{"fenced-management", client.ClusterGroup, "clusters", "get", `ClusterResource("clusters"`, sees},
	{"fenced-management", client.ClusterGroup, "machines", watches, `custom(ClusterGVR("machines")`, sees},
	{"fenced-management", client.ClusterGroup, "machines", "patch", `AbsPath("apis", gvr.Group, gvr.Version)`, acts},
	{"fenced-management", client.ClusterGroup, "machines", "get", `ReadCustom(ctx, s.Machines(t)`, sees},
	{"fenced-management", client.ClusterGroup, "machinehealthchecks", watches, `custom(ClusterGVR("machinehealthchecks")`, sees},
	{"fenced-management", client.ClusterGroup, "machinehealthchecks", "get", `ClusterResource("machinehealthchecks", r.Namespace)`, reports},
	{"fenced-management", client.ClusterGroup, "machinehealthchecks/status", "patch", `api.Patch(ctx, live.GetName(), types.MergePatchType, patch, metav1.PatchOptions{}, "status")`, reports},
	{"fenced-management", client.ClusterGroup, "machines/status", "patch", `w.servers.Machines(t).Patch(`, acts},
	{"fenced-management", "infrastructure.cluster.x-k8s.io", "metal3remediations", watches, requestsCode, sees},
	{"fenced-management", "infrastructure.cluster.x-k8s.io", "metal3remediations", "get", `ReadCustom(ctx, api, group, q.Namespace, q.Name)`, acts},
	{"fenced-management", "infrastructure.cluster.x-k8s.io", "metal3remediations", "patch", `patchMetadata(ctx, api, q.Name, metadata)`, acts},
	{"fenced-management", "infrastructure.cluster.x-k8s.io", "metal3remediations/status", "patch", `writeStatus(ctx, api, u, metal3Status(`, acts},
	{"fenced-management", client.FencedGroup, "fencedremediations", watches, requestsCode, sees},
	{"fenced-management", client.FencedGroup, "fencedremediations", "get", `ReadCustom(ctx, api, group, q.Namespace, q.Name)`, acts},
	{"fenced-management", client.FencedGroup, "fencedremediations", "patch", `patchMetadata(ctx, api, q.Name, metadata)`, acts},
	{"fenced-management", client.FencedGroup, "fencedremediations/status", "patch", `writeStatus(ctx, api, u, requestStatus(`, acts},
	{"fenced-management", client.FencedGroup, "fencedremediationtemplates", "get", `h.template(ctx, h.sideFor(check, target.MachineAPI), t, namespace)`, reports},
	{"fenced-management", coordination, "leases", "list", `cl.Typed.Leases(namespace).List(`, sees},
	{"fenced-management", "", "events", "create patch", `Typed.Events(namespace)`, acts},
	{"kube-system/fenced", coordination, "leases", "create", `leases.Create(`, acts},
	{"kube-system/fenced", coordination, "leases", "get", `Lease(ctx, OwnLeaseNamespace, OwnLease)`, acts},
	{"kube-system/fenced", coordination, "leases", "update", `leases.Update(`, acts},
	{"fenced-release-pods", "", "pods", "delete", `Pods(p.Namespace).Delete(`, acts},
	{"fenced-release-pods", "storage.k8s.io", "volumeattachments", "list", `VolumeAttachments().List(`, acts},
	{"fenced-release-pods", "storage.k8s.io", "volumeattachments", "delete", `VolumeAttachments().Delete(`, acts},
	{"fenced-templates-known", "", "namespaces", "get", `Namespaces().Get(ctx, IdentityNamespace`, acts},
	{"fenced-templates-known", "infrastructure.cluster.x-k8s.io", "metal3remediationtemplates", "get", templateCode, acts},
	{"fenced-templates-known", "infrastructure.cluster.x-k8s.io", "metal3remediations", "get list watch create patch delete", handoverCode, acts},
	{"fenced-templates-known", "self-node-remediation.medik8s.io", "selfnoderemediationtemplates", "get", templateCode, acts},
	{"fenced-templates-known", "self-node-remediation.medik8s.io", "selfnoderemediations", "get list watch create patch delete", handoverCode, acts},
	{"fenced-templates-known", "fence-agents-remediation.medik8s.io", "fenceagentsremediationtemplates", "get", templateCode, acts},
	{"fenced-templates-known", "fence-agents-remediation.medik8s.io", "fenceagentsremediations", "get list watch create patch delete", handoverCode, acts},
	{"fenced-templates-known", "machine-deletion-remediation.medik8s.io", "machinedeletionremediationtemplates", "get", templateCode, acts},
	{"fenced-templates-known", "machine-deletion-remediation.medik8s.io", "machinedeletionremediations", "get list watch create patch delete", handoverCode, acts},
}

const (
	coordination = "coordination.k8s.io"
	templateCode = `ReadCustom(ctx, s.API().Dynamic.Resource(gvr).Namespace(namespace), gv.Group, namespace, t.Name)`
	handoverCode = `handoverRights = []string{"get", "list", "watch", "create", "patch", "delete"}`
	requestsCode = `namespace: c.requestsIn(k.side), request: true`
)

// granted are the rights in a manifest of configs/, one text for each.
func granted(t *testing.T, name string) map[string]bool {
	t.Helper()
	data := must.Do(os.ReadFile(filepath.Join("../../configs", name)))(t)
	found := map[string]bool{}
	d := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
	for {
		var role rbacv1.Role // a ClusterRole has the same rules
		err := d.Decode(&role)
		if errors.Is(err, io.EOF) {
			return found
		}
		require.NoError(t, err)
		if role.Kind != "Role" && role.Kind != "ClusterRole" {
			continue
		}
		for _, rule := range role.Rules {
			for _, verb := range rule.Verbs {
				for _, resource := range rule.Resources {
					text := strings.Join([]string{roleName(role.ObjectMeta), rule.APIGroups[0], resource, verb}, " ")
					require.False(t, found[text], "%s has the right %s twice", name, text)
					require.NotContains(t, text, "*")
					found[text] = true
				}
			}
			require.Len(t, rule.APIGroups, 1)
		}
	}
}

func roleName(m metav1.ObjectMeta) string {
	if m.Namespace != "" {
		return m.Namespace + "/" + m.Name
	}
	return m.Name
}

// Each right of each manifest that is written by hand is used by the code. That none is missing is shown by the tests that run with them.
func TestEachRightIsUsed(t *testing.T) {
	var text strings.Builder
	files := must.Do(filepath.Glob("*.go"))(t)
	below := must.Do(filepath.Glob("*/*.go"))(t)
	files = append(files, below...)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		data := must.Do(os.ReadFile(file))(t)
		text.Write(data)
	}
	source := regexp.MustCompile(`\b(client|view|look|write)\.`).ReplaceAllString(text.String(), "")
	evaluate, release, templates := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, r := range rights {
		assert.True(t, strings.Contains(source, r.code), "nothing uses the right to %s %s of %s", r.verbs, r.resource, r.role)
		for verb := range strings.FieldsSeq(r.verbs) {
			text := strings.Join([]string{r.role, r.group, r.resource, verb}, " ")
			if r.role == "fenced-release-pods" {
				release[text] = true
				continue
			}
			if r.role == "fenced-templates-known" {
				templates[text] = true
				continue
			}
			evaluate[text] = true
		}
	}
	for name, want := range map[string]map[string]bool{
		"rbac.yaml": evaluate, "kubernetes/release-pods.yaml": release, "kubernetes/templates.yaml": templates,
	} {
		assert.Equal(t, slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(granted(t, name))), name)
	}
}

// With the rights of observe mode fenced sees what it evaluates, and every write is refused.
func TestObserveRights(t *testing.T) {
	c, ctx := rigtest.Own(t, rig.Options{CRDs: []rig.CRDs{rig.OpenShift, rig.Metal3, rig.Medik8s}}), rigtest.Context(t, 3*time.Minute)
	forget(t, c, "fenced")
	forget(t, c, "fenced-management")
	require.NoError(t, c.Client().RbacV1().RoleBindings(write.OwnLeaseNamespace).Delete(ctx, "fenced", metav1.DeleteOptions{}))
	require.NoError(t, c.ApplyConfig(ctx, "kubernetes/observe.yaml"))
	r := bareMetal(t, c, rig.Host{}, rig.Node{})
	k := watching(t, c)
	k8stest.Until(t, "the Node in the view", func() bool { return k8stest.Seen(k).Node(r.Target.Node) != nil })
	assert.Empty(t, k.View().Problem)
	l := lookAt(t, k, r)
	require.NoError(t, l.Err)
	assert.Equal(t, remediate.APIReachable, l.Seen.API)
	assert.Equal(t, remediate.Yes, l.Seen.Machine.Exists)
	assert.Equal(t, remediate.No, l.Seen.Contested, "medik8s' kinds are served, and it is not installed: %s", l.Seen.Contender)

	data, b, err := k.Backup(ctx, r.Target)
	require.NoError(t, err)
	for _, action := range []remediate.Action{
		remediate.SetPowerLock, remediate.ReleasePowerLock, remediate.IsolateNode, remediate.ClearRequest, remediate.DeleteTargetMachine,
	} {
		err := k.Act(ctx, r, action, [][]byte{data}, b)
		require.True(t, apierrors.IsForbidden(err), "%s: %v", action, err)
	}
	must.Do(c.Client().CoreV1().Nodes().Get(ctx, r.Target.Node, metav1.GetOptions{}))(t)
}

var update = flag.Bool("update", false, "write the manifests that are derived from configs/rbac.yaml")

// configs/rbac.yaml is written by hand. The manifest of each mode is derived from it: its rules with the rights that fenced
// uses in that mode, below the heading of the manifest. make golden writes them.
func TestRightsByMode(t *testing.T) {
	rbac := readConfig(t, "rbac.yaml")
	for _, c := range []struct {
		file   string
		uses   []use
		suffix string // of the names of roles
	}{
		{"kubernetes/respond.yaml", []use{sees, acts}, ""},
		{"kubernetes/observe.yaml", []use{sees}, "-observe"},
	} {
		heading, _, found := strings.Cut(readConfig(t, c.file), "\n\n")
		require.True(t, found, "%s has no heading", c.file)
		_, body, _ := strings.Cut(rbac, "\n\n# The workload part")
		writeConfig(t, c.file, heading+"\n\n"+forUses("# The workload part"+body, c.uses, c.suffix))
	}
	writeConfig(t, "kubernetes/evaluate.yaml", rbac)
}

func readConfig(t *testing.T, name string) string {
	t.Helper()
	data := must.Do(os.ReadFile("../../configs/" + name))(t)
	return string(data)
}

func writeConfig(t *testing.T, name, want string) {
	t.Helper()
	if *update {
		require.NoError(t, os.WriteFile("../../configs/"+name, []byte(want), 0o644))
	}
	assert.Equal(t, want, readConfig(t, name), "run make golden")
}

// forUses derives the manifest of a mode. A role without a rule goes, and so does its binding.
func forUses(rbac string, uses []use, suffix string) string {
	used := map[string]bool{}
	for _, r := range rights {
		for verb := range strings.FieldsSeq(r.verbs) {
			used[strings.Join([]string{r.role, r.group, r.resource, verb}, " ")] = slices.Contains(uses, r.by)
		}
	}
	var kept []string
	gone := map[string]bool{}
	for doc := range strings.SplitSeq(rbac, "---\n") {
		name := strings.Fields(doc[strings.Index(doc, "\n  name: "):])[1]
		if strings.Contains(doc, "\n  namespace: kube-system") {
			name = "kube-system/" + name
		}
		if before, rules, isRole := strings.Cut(doc, "\nrules:\n"); isRole {
			rules = keepRules(rules, name, used)
			gone[name] = rules == ""
			doc = before + "\nrules:\n" + rules
		}
		if gone[name] {
			continue
		}
		if name != "fenced-secrets" { // a binding in a namespace is for every mode
			doc = strings.ReplaceAll(doc, "  name: "+name+"\n", "  name: "+name+suffix+"\n")
			doc = strings.Replace(doc, "  kind: User\n  name: "+name+suffix, "  kind: User\n  name: fenced", 1)
		}
		kept = append(kept, doc)
	}
	return strings.Join(kept, "---\n")
}

// keepRules keeps of the rules of a role what is used. The comment of a rule stays only with a rule that stays as it is.
func keepRules(rules, role string, used map[string]bool) string {
	var b, comment strings.Builder
	var names string
	var group string
	var resources []string
	for line := range strings.Lines(rules) {
		key, list, _ := strings.Cut(strings.TrimRight(line, "]\n"), ": [")
		switch key {
		case "- apiGroups":
			group, names = strings.Trim(list, `"`), ""
		case "  resources":
			resources = strings.Split(list, ", ")
		case "  resourceNames":
			names = line
		case "  verbs":
			verbs := strings.Split(list, ", ")
			keep := func(resource string) string {
				return strings.Join(slices.DeleteFunc(slices.Clone(verbs), func(verb string) bool {
					return !used[strings.Join([]string{role, group, resource, verb}, " ")]
				}), ", ")
			}
			for len(resources) > 0 {
				first := keep(resources[0])
				same := slices.DeleteFunc(slices.Clone(resources), func(r string) bool { return keep(r) != first })
				if len(same) == len(resources) && first == list {
					b.WriteString(comment.String())
				}
				if first != "" {
					fmt.Fprintf(&b, "- apiGroups: [%s]\n  resources: [%s]\n%s  verbs: [%s]\n", quoted(group), strings.Join(same, ", "), names, first)
				}
				resources = slices.DeleteFunc(resources, func(r string) bool { return slices.Contains(same, r) })
			}
			comment.Reset()
		default:
			comment.WriteString(line)
		}
	}
	return b.String()
}

func quoted(group string) string {
	if group == "" {
		return `""`
	}
	return group
}
