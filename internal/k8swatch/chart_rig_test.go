package k8swatch

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/fenced/fenced/internal/k8swatch/client"
	"github.com/fenced/fenced/test/must"
	"github.com/fenced/fenced/test/pace"
	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/rig/rigtest"
)

// question is what a SubjectAccessReview asks.
type question struct{ namespace, name, group, resource, verb string }

// everyVerb is what RBAC knows for objects.
var everyVerb = []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}

// namedOnly are the rights that hold for some names only, as "role group resource verb".
var namedOnly = map[string][]string{
	"fenced  namespaces get":                                {"medik8s-leases", "kube-system"},
	"fenced-management  namespaces get":                     {"kube-system"},
	"fenced-templates-known  namespaces get":                {"kube-system"},
	"fenced " + coordination + " leases list":               {"e1f13584.medik8s.io"},
	"fenced-management " + coordination + " leases list":    {"controller-leader-election-capi", "controller-leader-election-capm3"},
	"kube-system/fenced " + coordination + " leases get":    {"fenced"},
	"kube-system/fenced " + coordination + " leases update": {"fenced"},
}

// given are the rights of the roles that the chart makes, for what the API server serves.
type given struct {
	uses     []use
	served   []string // API groups beside those of every Kubernetes
	roles    []string // beside those of every mode
	metal3   bool     // fenced carries out Metal3Remediations
	medik8s  bool
	secretIn string
}

// allows says whether a question is answered with yes: by the table of all rights that the code uses.
func (g given) allows(q question) bool {
	if g.medik8s && q.namespace == "medik8s-leases" && q.group == coordination && q.resource == "leases" && slices.Contains([]string{"get", "create", "update", "delete"}, q.verb) {
		return true
	}
	return slices.ContainsFunc(rights, func(r right) bool {
		inRole := r.role == "fenced" || r.role == "fenced-management" || slices.Contains(g.roles, r.role) ||
			r.role == "kube-system/fenced" && q.namespace == "kube-system" || r.role == "fenced-secrets" && q.namespace == g.secretIn
		if !inRole || r.group != q.group || r.resource != q.resource || !slices.Contains(strings.Fields(r.verbs), q.verb) || !slices.Contains(g.uses, r.by) {
			return false
		}
		if custom := strings.Contains(r.group, ".") && !strings.HasSuffix(r.group, ".k8s.io"); custom && !slices.Contains(g.served, r.group) {
			return false
		}
		if r.role == "fenced-management" && q.verb == "patch" && strings.HasPrefix(r.resource, "metal3remediations") && !g.metal3 {
			return false
		}
		names := namedOnly[strings.Join([]string{r.role, r.group, r.resource, q.verb}, " ")]
		return names == nil || slices.Contains(names, q.name) && g.leaderMayBe(q.name)
	})
}

// leaderMayBe says whether the API group is served whose controller has a leader Lease of this name.
func (g given) leaderMayBe(lease string) bool {
	group := map[string]string{"controller-leader-election-capi": "cluster.x-k8s.io", "controller-leader-election-capm3": "cluster.x-k8s.io", "e1f13584.medik8s.io": client.Medik8sGroup}[lease]
	return group == "" || slices.Contains(g.served, group)
}

// questions are all verbs on all that fenced uses anywhere, on what it must never touch, and on each name that counts.
func questions() (all []question) {
	type kind struct{ group, resource string }
	kinds := map[kind]bool{}
	for _, r := range rights {
		kinds[kind{r.group, r.resource}] = true
	}
	for _, never := range []kind{
		{"", "nodes/status"}, {"", "pods/exec"}, {"", "pods/eviction"}, {"", "configmaps"}, {"", "serviceaccounts"}, {"", "serviceaccounts/token"}, {"apps", "deployments"},
		{"rbac.authorization.k8s.io", "clusterroles"}, {"rbac.authorization.k8s.io", "clusterrolebindings"}, {"rbac.authorization.k8s.io", "roles"},
		{"apiextensions.k8s.io", "customresourcedefinitions"}, {"admissionregistration.k8s.io", "validatingadmissionpolicies"}, {"authentication.k8s.io", "tokenreviews"},
		{client.MachineGroup, "machines/status"}, {client.HostGroup, "baremetalhosts/status"}, {client.FencedGroup, "fencedremediations/finalizers"},
	} {
		kinds[never] = true
	}
	for k := range kinds {
		for _, verb := range everyVerb {
			all = append(all, question{rig.Namespace, "some", k.group, k.resource, verb})
			switch k {
			case kind{"", "secrets"}:
				all = append(all, question{"default", "some", k.group, k.resource, verb}, question{"kube-system", "some", k.group, k.resource, verb})
			case kind{"", "namespaces"}:
				all = append(all, question{"", "kube-system", k.group, k.resource, verb}, question{"", "medik8s-leases", k.group, k.resource, verb}, question{"", "fenced", k.group, k.resource, verb})
			case kind{coordination, "leases"}:
				all = append(all, question{"kube-system", "fenced", k.group, k.resource, verb}, question{"kube-system", "other", k.group, k.resource, verb}, question{"medik8s-leases", "node-n", k.group, k.resource, verb})
				for _, name := range slices.Concat(namedOnly["fenced "+coordination+" leases list"], namedOnly["fenced-management "+coordination+" leases list"]) {
					all = append(all, question{"elsewhere", name, k.group, k.resource, verb})
				}
			}
		}
	}
	for _, verb := range []string{"bind", "escalate"} {
		all = append(all, question{"", "fenced", "rbac.authorization.k8s.io", "clusterroles", verb})
	}
	return append(all, question{"", "system:admin", "", "users", "impersonate"}, question{"", "", "*", "*", "*"})
}

// wrong are the questions that the API server answers otherwise than the table of rights.
func (g given) wrong(ctx context.Context, t *testing.T, c *rig.ControlPlane) (wrong []string) {
	t.Helper()
	reviews := c.Dynamic().Resource(schema.GroupVersionResource{Group: "authorization.k8s.io", Version: "v1", Resource: "subjectaccessreviews"})
	for _, q := range questions() {
		resource, sub, _ := strings.Cut(q.resource, "/")
		// Without groups: what every authenticated user may do is not the chart's.
		review := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": map[string]any{
			"user": "system:serviceaccount:fenced:fenced", "resourceAttributes": map[string]any{
				"namespace": q.namespace, "name": q.name, "group": q.group, "resource": resource, "subresource": sub, "verb": q.verb}}}}
		answer := must.Do(reviews.Create(ctx, review, metav1.CreateOptions{}))(t)
		allowed, _, _ := unstructured.NestedBool(answer.Object, "status", "allowed")
		if want := g.allows(q); want != allowed {
			wrong = append(wrong, fmt.Sprintf("%+v: allowed is %t", q, allowed))
		}
	}
	return wrong
}

// Helm installs the chart into a real API server: first observe, for what that serves, then evaluate, then evaluate with all that
// may be added. Each verb that fenced uses in the mode is allowed, and each other one denied. Kustomize grants the same.
func TestChartGrantsWhatTheModeUses(t *testing.T) {
	c, ctx := rigtest.Own(t, rig.Options{CRDs: []rig.CRDs{rig.OpenShift, rig.Metal3, rig.PrometheusOperator}}), rigtest.Context(t, 15*time.Minute)
	forgetRights(t, c)
	for _, name := range []string{"fenced", "medik8s-leases"} {
		require.NoError(t, c.CreateNamespace(ctx, name))
	}
	admin := must.Do(c.Kubeconfig("admin", rig.AdminGroup))(t)
	release := func(values map[string]any) {
		args := []string{"upgrade", "--install", "fenced", "../../configs/chart", "--namespace", "fenced", "--kubeconfig", admin}
		for _, key := range slices.Sorted(maps.Keys(values)) {
			args = append(args, "--set-json", key+"="+string(must.Do(json.Marshal(values[key]))(t)))
		}
		program(t, must.Do(rig.Helm(ctx, os.Stderr))(t)+"/helm", nil, args...)
	}
	exactly := func(what string, g given) {
		t.Helper()
		wrong := g.wrong(ctx, t, c)
		for deadline := time.Now().Add(pace.Tries); len(wrong) > 0 && time.Now().Before(deadline); wrong = g.wrong(ctx, t, c) {
			time.Sleep(100 * time.Millisecond) // the API server learns of roles a moment later
		}
		require.Empty(t, wrong, what)
	}
	bareMetal := []string{client.MachineGroup, client.HostGroup, client.FencedGroup} // Helm installs the CRDs of the chart first
	release(map[string]any{"mode": "observe", "hostNamespaces": []string{rig.Namespace},
		"remediationTemplates": []any{map[string]any{"name": "power", "namespace": rig.Namespace, "spec": map[string]any{"retryLimit": 2}}}})
	exactly("observe", given{uses: []use{sees}, served: bareMetal, secretIn: rig.Namespace})
	template := must.Do(c.Dynamic().Resource(schema.GroupVersionResource{Group: client.FencedGroup, Version: "v1alpha1", Resource: "fencedremediationtemplates"}).Namespace(rig.Namespace).Get(ctx, "power", metav1.GetOptions{}))(t)
	assert.NotNil(t, template)

	release(map[string]any{"mode": "evaluate", "hostNamespaces": []string{rig.Namespace}})
	exactly("evaluate", given{uses: []use{sees, acts, reports}, served: bareMetal, secretIn: rig.Namespace})

	all := []string{client.MachineGroup, client.HostGroup, client.FencedGroup, client.ClusterGroup, client.Medik8sGroup, client.ConfigGroup, "infrastructure.cluster.x-k8s.io",
		"self-node-remediation.medik8s.io", "fence-agents-remediation.medik8s.io", "machine-deletion-remediation.medik8s.io"}
	everything := map[string]any{"mode": "evaluate", "apiGroups": all, "hostNamespaces": []string{rig.Namespace}, "medik8s": true, "metal3Remediations": true, "releasePods": true, "makeRequests": true,
		"protectNodes.enabled": true, "daemon.enabled": true, "daemon.image.repository": "registry.example.org/fenced",
		"daemon.config.clusters": []any{map[string]any{"name": "prod", "kubeconfig": "prod.kubeconfig"}},
		"daemon.secretFiles":     []any{map[string]any{"path": "prod.kubeconfig", "secret": "fenced-files", "key": "prod.kubeconfig"}}}
	release(everything)
	exactly("all", given{uses: []use{sees, acts, reports}, served: all, secretIn: rig.Namespace, medik8s: true, metal3: true, roles: []string{"fenced-release-pods", "fenced-templates-known"}})

	everything["mode"] = "respond"
	release(everything)
	exactly("respond", given{uses: []use{sees, acts}, served: all, secretIn: rig.Namespace, medik8s: true, metal3: true, roles: []string{"fenced-release-pods", "fenced-templates-known"}})
	daemonIsTaken(ctx, t, c)
	for resource, version := range map[string]string{"prometheusrules": "v1", "scrapeconfigs": "v1alpha1"} {
		must.Do(c.Dynamic().Resource(schema.GroupVersionResource{Group: "monitoring.coreos.com", Version: version, Resource: resource}).Namespace("fenced").Get(ctx, "fenced", metav1.GetOptions{}))(t)
	}
	kubeconfigByHand(ctx, t, admin)
	// Rotated: the old token is void with its Secret, and Helm makes another.
	require.NoError(t, c.Dynamic().Resource(schema.GroupVersionResource{Version: "v1", Resource: "secrets"}).Namespace("fenced").Delete(ctx, "fenced-token", metav1.DeleteOptions{}))
	release(everything)
	kubeconfigByHand(ctx, t, admin)

	// Helm takes away what it made, and kustomize makes it: the base for evaluate, with every component, and the daemon. Nothing here waits for the claim
	// of the volume: it goes when the garbage collector has taken the pod, and that reads every kind anew when CRDs come or go.
	program(t, must.Do(rig.Helm(ctx, os.Stderr))(t)+"/helm", nil, "uninstall", "fenced", "--namespace", "fenced", "--kubeconfig", admin)
	exactly("uninstalled", given{})
	program(t, must.Do(rig.Kubectl(ctx, os.Stderr))(t)+"/kubectl", nil, "--kubeconfig", admin, "apply", "--kustomize", overlay(t))
	exactly("kustomize", given{uses: []use{sees, acts, reports}, served: all, medik8s: true, roles: []string{"fenced-release-pods", "fenced-templates-known"}})
	daemonIsTaken(ctx, t, c)
}

// overlay is a directory that kustomize builds: evaluate with all components, and the daemon. Kustomize takes bases beside it only.
func overlay(t *testing.T) string {
	t.Helper()
	dir := must.Do(filepath.EvalSymlinks(t.TempDir()))(t)
	require.NoError(t, os.CopyFS(dir, os.DirFS("../../configs/kustomize")))
	text := "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [../evaluate, ../daemon]\ncomponents:\n"
	components := must.Do(os.ReadDir(dir + "/components"))(t)
	require.NotEmpty(t, components)
	for _, c := range components {
		text += "- ../components/" + c.Name() + "\n"
	}
	require.NoError(t, os.Mkdir(dir+"/overlay", 0o700))
	require.NoError(t, os.WriteFile(dir+"/overlay/kustomization.yaml", []byte(text), 0o600))
	return dir + "/overlay"
}

// daemonIsTaken: the API server takes the Deployment, and would take its pod.
func daemonIsTaken(ctx context.Context, t *testing.T, c *rig.ControlPlane) {
	t.Helper()
	in := func(group, resource string) dynamic.ResourceInterface {
		return c.Dynamic().Resource(schema.GroupVersionResource{Group: group, Version: "v1", Resource: resource}).Namespace("fenced")
	}
	deployment := must.Do(in("apps", "deployments").Get(ctx, "fenced", metav1.GetOptions{}))(t)
	template, _, _ := unstructured.NestedMap(deployment.Object, "spec", "template")
	pod := &unstructured.Unstructured{Object: template}
	pod.SetAPIVersion("v1")
	pod.SetKind("Pod")
	pod.SetName("fenced")
	must.Do(in("", "pods").Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}))(t)
	must.Do(in("", "persistentvolumeclaims").Get(ctx, "fenced-state", metav1.GetOptions{}))(t)
}

// kubeconfigByHand: the commands of docs/helm.md make a kubeconfig out of the token of the chart, and it is that of fenced.
func kubeconfigByHand(ctx context.Context, t *testing.T, admin string) {
	t.Helper()
	page := string(must.Do(os.ReadFile("../../docs/helm.md"))(t))
	_, rest, found := strings.Cut(page, "<!-- test: kubeconfig -->\n")
	require.True(t, found)
	_, rest, _ = strings.Cut(rest, "```sh\n")
	script, _, _ := strings.Cut(rest, "```")
	dir, kubectl := t.TempDir(), must.Do(rig.Kubectl(ctx, os.Stderr))(t)
	env := []string{"PATH=" + kubectl + ":" + os.Getenv("PATH"), "KUBECONFIG=" + admin}
	program(t, "sh", env, "-euc", "cd '"+dir+"'\n"+script)
	said := program(t, kubectl+"/kubectl", nil, "--kubeconfig", dir+"/prod.kubeconfig", "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}")
	assert.Equal(t, "system:serviceaccount:fenced:fenced", said)
	info := must.Do(os.Stat(dir + "/prod.kubeconfig"))(t)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())
}

// program runs a program with a home of its own, and returns what it writes.
func program(t *testing.T, path string, env []string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), path, args...)
	home := t.TempDir()
	cmd.Env = append(append(os.Environ(), "HOME="+home, "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home), env...)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	require.NoError(t, cmd.Run(), "%s\n%s", out.String(), said.String())
	return out.String()
}

// forgetRights removes the rights that every control plane of the tests gives to fenced: Helm takes over nothing that it did not make.
func forgetRights(t *testing.T, c *rig.ControlPlane) {
	t.Helper()
	for _, k := range []struct{ resource, namespace, name string }{
		{"clusterrolebindings", "", "fenced"}, {"clusterrolebindings", "", "fenced-management"}, {"clusterroles", "", "fenced"}, {"clusterroles", "", "fenced-management"},
		{"clusterroles", "", "fenced-secrets"}, {"rolebindings", rig.Namespace, "fenced-secrets"}, {"rolebindings", "kube-system", "fenced"}, {"roles", "kube-system", "fenced"},
	} {
		gvr := schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: k.resource}
		if err := c.Dynamic().Resource(gvr).Namespace(k.namespace).Delete(t.Context(), k.name, metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
			require.NoError(t, err)
		}
	}
}
