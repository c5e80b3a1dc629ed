package e2e

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/must"
	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/scene"
)

// annotated says whether OpenShift's check, or its stand-in, has asked for a Machine.
func annotated(ctx context.Context, t *testing.T, s *scene.Scene, machine string) bool {
	t.Helper()
	m := must.Do(s.Cluster.Dynamic().Resource(rig.MachineResource).Namespace(rig.Namespace).Get(ctx, machine, metav1.GetOptions{}))(t)
	_, is := m.GetAnnotations()[scene.Requested]
	return is
}

// OpenShift's controller evaluates, and fenced executes: nothing before the annotation, and the six
// steps after it. fenced takes the annotation off, also from a Machine that has recovered by itself.
// While the bare-metal actuator is alive, the annotation is its business. A stand-in evaluates the
// documented check; another Lease is all there is of the actuator.
func TestRespondToOpenShiftsAnnotation(t *testing.T) {
	t.Parallel()
	s := set(t, scene.Options{
		Mode: "respond", Checks: []rig.Check{},
		Workers: []scene.Spec{
			{Name: "hung", Protocol: scene.IPMI}, {Name: "recovered", Protocol: scene.Redfish}, {Name: "well-1"}, {Name: "well-2"}, {Name: "well-3"},
		},
	})
	ctx := within(t)
	require.NoError(t, s.Cluster.Apply(ctx, soon(t, "openshift")))
	must.Do(s.StartDaemon(ctx))(t)
	w := s.Worker("hung")
	w.Kubelet.Hang()
	must.Do(s.Cluster.WaitNode(ctx, w.Name, unknown))(t)
	awaitVerdict(ctx, t, s, w.Name, "Unhealthy")
	requireNotAsked(ctx, t, s, w.Name)

	actuator := rig.Lease{Namespace: rig.Namespace, Name: "controller-leader-election-capbm", Holder: scene.ActuatorUser, Duration: time.Hour}
	require.NoError(t, s.Cluster.PutLease(ctx, actuator))
	empty := ""
	require.NoError(t, s.Cluster.Annotate(ctx, rig.MachineResource, "recovered", scene.Requested, &empty))
	require.NoError(t, s.RunHealthChecks(ctx))
	awaitRefusal(ctx, t, s, w.Name, "Contested")
	assert.True(t, annotated(ctx, t, s, w.Name))
	time.Sleep(5 * time.Second) // what should not happen has time to
	assert.True(t, annotated(ctx, t, s, "recovered"), "the actuator is alive")
	requireNotAsked(ctx, t, s, "recovered")
	requireNoDeletion(t, s, w)

	actuator.Renewed = time.Now().Add(-2 * time.Hour)
	require.NoError(t, s.Cluster.PutLease(ctx, actuator))
	r := awaitRun(ctx, t, s, w.Name, result(wire.ResultDone))
	assert.Equal(t, stages, stepsOf(r))
	requireBack(ctx, t, s, w)
	requireOneDeletion(t, s, w)
	for _, name := range []string{w.Name, "recovered"} {
		require.Eventually(t, func() bool { return !annotated(ctx, t, s, name) }, patience, 100*time.Millisecond, "the request on %s is cleared", name)
	}
	requireNotAsked(ctx, t, s, "recovered")
	require.Eventually(t, func() bool {
		out, err := s.Fencectl(ctx, "status")
		return err == nil && out.Exit == 0 && strings.Contains(out.Stdout, ": armed\n")
	}, patience, 200*time.Millisecond, "fenced does its whole job in this mode")
	refused := fencectl(ctx, t, s, 3, "disarm", "--reason", "stop it")
	assert.Contains(t, refused.Stderr, "is in mode respond, which disarm does not stop: nothing changed")
	assert.Contains(t, refused.Stderr, "fencectl pause --reason WHY")
}

// On a stock OpenShift cluster a check with the documented template asks fenced, beside a living
// actuator. Stand-ins evaluate the check, with the rights of configs/crds/rbac.yaml on the requests,
// and act on annotations; there are none.
func TestRespondBesideALivingActuator(t *testing.T) {
	t.Parallel()
	s := onStandIn(t, scene.Options{
		Mode: "respond", Checks: []rig.Check{},
		Workers: []scene.Spec{
			{Name: "hung", Protocol: scene.IPMI, Metal3: true}, {Name: "healthy", Protocol: scene.Redfish, Metal3: true}, {Name: "well", Protocol: scene.IPMI, Metal3: true},
		},
	})
	ctx := within(t)
	installRequests(ctx, t, s.Cluster, aggregateRequests)
	require.NoError(t, s.Cluster.Apply(ctx, soon(t, "openshift-template")))
	operator := &scene.Metal3{}
	s.RunMetal3(operator)
	require.NoError(t, s.RunActuator(ctx))
	require.NoError(t, s.RunHealthChecks(ctx, requesters))
	must.Do(s.StartDaemon(ctx))(t)
	w := s.Worker("hung")
	w.Kubelet.Hang()
	r := awaitRun(ctx, t, s, w.Name, result(wire.ResultDone))
	assert.Equal(t, stages, stepsOf(r))
	assert.Equal(t, "requested by FencedRemediation "+rig.Namespace+"/hung", r.Trigger)
	requireBack(ctx, t, s, w)
	requireOneDeletion(t, s, w)
	ownRequests(s.Cluster).awaitGone(ctx, t, w.Name)
	assert.False(t, annotated(ctx, t, s, w.Name))
	requireNotAsked(ctx, t, s, "healthy", "well")
}

// Where Metal3's provider does not run, fenced carries out its requests, if that is configured.
// While the provider is alive, they are its business.
func TestRespondToMetal3Remediation(t *testing.T) {
	t.Parallel()
	s := clusterAPIScene(t, scene.Options{
		Mode: "respond", Metal3Requests: true, Workers: []scene.Spec{{Name: "hung", Protocol: scene.IPMI, Metal3: true}},
	})
	ctx := within(t)
	require.NoError(t, s.Cluster.InstallCRDs(ctx, rig.Metal3Remediation))
	require.NoError(t, s.Cluster.CreateNamespace(ctx, "capm3-system"))
	provider := rig.Lease{Namespace: "capm3-system", Name: "controller-leader-election-capm3", Holder: "provider-0", Duration: time.Hour}
	require.NoError(t, s.Cluster.PutLease(ctx, provider))
	must.Do(s.StartDaemon(ctx))(t)
	w := s.Worker("hung")
	w.Kubelet.Hang()
	must.Do(s.Cluster.WaitNode(ctx, w.Name, unknown))(t)
	must.Do(s.Cluster.CreateTemplate(ctx, "reboot"))(t)
	machine := must.Do(s.Cluster.Dynamic().Resource(rig.CAPIResource("v1beta2", "machines")).Namespace(rig.Namespace).Get(ctx, w.Name, metav1.GetOptions{}))(t)
	must.Do(s.Cluster.CreateRemediation(ctx, machine, "reboot"))(t)
	x := awaitRefusal(ctx, t, s, w.Name, "Contested")
	_, value, _, _ := gateOf(t, x, "Contested")
	assert.Contains(t, value, provider.Holder)
	out := must.Do(s.Fencectl(ctx, "status"))(t)
	assert.Regexp(t, `(?m)^scene +Metal3Remediation `+rig.Namespace+`/hung +hung +Pending +- +Contested$`, out.Stdout)
	requireNoDeletion(t, s, w)

	provider.Renewed = time.Now().Add(-2 * time.Hour)
	require.NoError(t, s.Cluster.PutLease(ctx, provider))
	r := awaitRun(ctx, t, s, w.Name, result(wire.ResultDone))
	assert.Equal(t, stages, stepsOf(r))
	requireBack(ctx, t, s, w)
	requireOneDeletion(t, s, w)
	require.Eventually(t, func() bool {
		obj, err := s.Cluster.Dynamic().Resource(rig.RemediationResource).Namespace(rig.Namespace).Get(ctx, w.Name, metav1.GetOptions{})
		phase, _, _ := unstructured.NestedString(obj.Object, "status", "phase")
		return err == nil && phase == "Waiting" && obj.GetAnnotations()["fenced.io/power-phase"] == "Succeeded" && !held(obj)
	}, patience, 100*time.Millisecond, "the request is told, in the words of the provider, and let go")
}

var (
	requestResource  = schema.GroupVersionResource{Group: "fenced.io", Version: "v1alpha1", Resource: "fencedremediations"}
	templateResource = schema.GroupVersionResource{Group: "fenced.io", Version: "v1alpha1", Resource: "fencedremediationtemplates"}
)

// requester is a stand-in for the manager of the Cluster API. It makes and deletes
// FencedRemediation objects as its contract says, with the rights that it has.
type requester struct{ provider }

// ownRequests are those of fenced's kind.
func ownRequests(on *rig.ControlPlane) requester {
	return requester{provider{on: on, kind: requestResource}}
}

// newRequester installs the kinds, the documented template, and the rights of the stand-in.
func newRequester(ctx context.Context, t *testing.T, on *rig.ControlPlane) requester {
	t.Helper()
	installRequests(ctx, t, on, grantRequests)
	return ownRequests(on)
}

// client is the stand-in's own one.
func (q requester) client(t *testing.T) dynamic.Interface {
	t.Helper()
	config := must.Do(q.on.RESTConfig("stand-in-cluster-api", requesters))(t)
	return must.Do(dynamic.NewForConfig(config))(t)
}

// make clones the template into a request with this metadata.
func (q requester) make(ctx context.Context, t *testing.T, name string, annotations, labels map[string]string, owner metav1.OwnerReference) {
	t.Helper()
	client := q.client(t)
	require.EventuallyWithT(t, func(c *assert.CollectT) { // the API server learns of new rights a moment later
		template, err := client.Resource(templateResource).Namespace(rig.Namespace).Get(ctx, "power", metav1.GetOptions{})
		if !assert.NoError(c, err) {
			return
		}
		spec, _, err := unstructured.NestedMap(template.Object, "spec", "template", "spec")
		assert.NoError(c, err)
		obj := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "fenced.io/v1alpha1", "kind": "FencedRemediation", "spec": spec}}
		obj.SetName(name)
		obj.SetAnnotations(annotations)
		obj.SetLabels(labels)
		obj.SetOwnerReferences([]metav1.OwnerReference{owner})
		_, err = client.Resource(requestResource).Namespace(rig.Namespace).Create(ctx, obj, metav1.CreateOptions{})
		assert.NoError(c, err)
	}, patience, 100*time.Millisecond)
}

// ofMachine makes the request of the Cluster API's manager: it has the Machine's name, and the
// Machine is its owner, but not its controller.
func (q requester) ofMachine(ctx context.Context, t *testing.T, name string) {
	t.Helper()
	m := must.Do(q.on.Dynamic().Resource(rig.CAPIResource("v1beta2", "machines")).Namespace(rig.Namespace).Get(ctx, name, metav1.GetOptions{}))(t)
	q.make(ctx, t, name, map[string]string{
		"cluster.x-k8s.io/cloned-from-name": "power", "cluster.x-k8s.io/cloned-from-groupkind": "FencedRemediationTemplate.fenced.io",
	}, map[string]string{"cluster.x-k8s.io/cluster-name": scene.ClusterName},
		metav1.OwnerReference{APIVersion: m.GetAPIVersion(), Kind: "Machine", Name: name, UID: m.GetUID()})
}

func (q requester) remove(ctx context.Context, t *testing.T, name string) {
	t.Helper()
	require.NoError(t, q.client(t).Resource(requestResource).Namespace(rig.Namespace).Delete(ctx, name, metav1.DeleteOptions{}))
}

func held(obj *unstructured.Unstructured) bool {
	return slices.Contains(obj.GetFinalizers(), "fenced.io/power")
}

// requestsFor are the requests of fenced's kind for a Node.
func requestsFor(ctx context.Context, t *testing.T, s *scene.Scene, node string) (all []unstructured.Unstructured) {
	t.Helper()
	l := must.Do(s.Cluster.Dynamic().Resource(requestResource).Namespace(rig.Namespace).List(ctx, metav1.ListOptions{}))(t)
	for _, r := range l.Items {
		if r.GetAnnotations()["remediation.medik8s.io/node-name"] == node {
			all = append(all, r)
		}
	}
	return all
}

// awaitPhase waits until the one request for a Node has this phase, Processing and Succeeded.
func awaitPhase(ctx context.Context, t *testing.T, s *scene.Scene, node, phase, processing, succeeded string) unstructured.Unstructured {
	t.Helper()
	var last []unstructured.Unstructured
	ok := assert.Eventually(t, func() bool {
		if last = requestsFor(ctx, t, s, node); len(last) != 1 {
			return false
		}
		got, _, _ := unstructured.NestedString(last[0].Object, "status", "phase")
		return got == phase && conditionIn(&last[0], "Processing", "status", "conditions") == processing &&
			conditionIn(&last[0], "Succeeded", "status", "conditions") == succeeded
	}, patience, 50*time.Millisecond)
	require.True(t, ok, "the request for %s is %s, Processing=%s, Succeeded=%s; last: %v", node, phase, processing, succeeded, last)
	return last[0]
}

// NodeHealthCheck evaluates, and fenced executes. The Node is deleted after the proof, so the check
// deletes its request in mid-run: fenced's finalizer keeps it until the host is On. A stand-in for the
// check's controller evaluates the documented check, takes medik8s' Lease, and makes the request with
// the rights of configs/crds/rbac.yaml.
func TestNodeHealthCheckAsksFenced(t *testing.T) {
	t.Parallel()
	s := set(t, scene.Options{
		Machines: scene.NoMachines, Mode: "respond", CRDs: []rig.CRDs{rig.Medik8s, rig.Fenced},
		Workers: []scene.Spec{{Name: "hung", Protocol: scene.Redfish}, {Name: "well", Protocol: scene.IPMI}, {Name: "healthy", Protocol: scene.IPMI}},
	})
	ctx := within(t)
	require.NoError(t, s.Cluster.InstallMedik8s(ctx))
	installRequests(ctx, t, s.Cluster, aggregateRequests)
	require.NoError(t, s.Cluster.Apply(ctx, soon(t, "node-health-check")))
	require.NoError(t, s.RunNodeHealthChecks(requesters))
	must.Do(s.StartDaemon(ctx))(t)
	w := s.Worker("hung")
	ignoreOn(w, true) // it stays off until it was looked at
	w.Kubelet.Hang()
	awaitOff(t, w)
	require.Eventually(t, func() bool {
		made := requestsFor(ctx, t, s, w.Name)
		return len(made) == 1 && made[0].GetDeletionTimestamp() != nil
	}, patience, 50*time.Millisecond, "the check deletes its request once the Node is gone")
	obj := awaitPhase(ctx, t, s, w.Name, "Running", "True", "Unknown")
	assert.True(t, held(&obj), "the host is off")
	assert.Equal(t, "False", conditionIn(&obj, "PermanentNodeDeletionExpected", "status", "conditions"))

	ignoreOn(w, false)
	r := awaitRun(ctx, t, s, w.Name, result(wire.ResultDone))
	assert.Equal(t, stages, stepsOf(r))
	assert.Contains(t, r.Trigger, "requested by FencedRemediation "+rig.Namespace+"/hung-")
	ownRequests(s.Cluster).awaitGone(ctx, t, obj.GetName())
	requireBack(ctx, t, s, w)
	requireOneDeletion(t, s, w)
	requireNotAsked(ctx, t, s, "well", "healthy")
}

// A host that fenced cannot reach: its request waits, and after the template's time the check marks it.
// fenced says that it failed, and the check goes on to MachineDeletionRemediation, which deletes the
// Machine. fenced deletes neither Machine nor Node. Stand-ins are the check's controller, with the
// rights of configs/crds/rbac.yaml, and MachineDeletionRemediation.
func TestNodeHealthCheckEscalates(t *testing.T) {
	t.Parallel()
	s := onStandIn(t, scene.Options{
		Mode: "respond", CRDs: []rig.CRDs{rig.OpenShift, rig.Metal3, rig.Medik8s, rig.Fenced}, Checks: []rig.Check{},
		Workers: []scene.Spec{{Name: "dead", Protocol: scene.IPMI}, {Name: "well", Protocol: scene.IPMI}, {Name: "healthy", Protocol: scene.IPMI}},
	})
	ctx := within(t)
	require.NoError(t, s.Cluster.InstallMedik8s(ctx))
	installRequests(ctx, t, s.Cluster, aggregateRequests)
	require.NoError(t, s.Cluster.Apply(ctx, soon(t, "node-health-check-escalating")))
	require.NoError(t, s.RunNodeHealthChecks(requesters))
	require.NoError(t, s.RunMachineDeletions())
	must.Do(s.StartDaemon(ctx))(t)
	dead := s.Worker("dead")
	dead.KillBMC()
	dead.Kubelet.Hang()
	awaitPhase(ctx, t, s, dead.Name, "Pending", "Unknown", "Unknown")
	awaitPhase(ctx, t, s, dead.Name, "Failed", "False", "False")
	require.Eventually(t, func() bool {
		d, err := s.Cluster.Deletions("machines", dead.Name)
		return err == nil && len(d) > 0
	}, patience, 100*time.Millisecond, "the Machine is deleted")
	time.Sleep(3 * time.Second) // what should not happen has time to
	d := must.Do(s.Cluster.Deletions("machines", dead.Name))(t)
	require.Len(t, d, 1)
	assert.Equal(t, scene.MachineDeletionUser, d[0].User)
	requireNoDeletion(t, s, dead)
	requireNotAsked(ctx, t, s, "well", "healthy")
}

// forScene are the names of a scene in the place of those in the documents.
var forScene = strings.NewReplacer(
	"CLUSTER", scene.ClusterName, "NAMESPACE", rig.Namespace, "INSTANCE", scene.Instance, "pool: ", "scene/pool: ", "key: pool", "key: scene/pool",
)

// documented is a manifest of docs/systems.md or docs/systems/, by the name in the comment before it,
// for a scene.
func documented(t *testing.T, name string) []byte {
	t.Helper()
	root := must.Do(rig.Root())(t)
	pages := must.Do(filepath.Glob(filepath.Join(root, "docs", "systems", "*.md")))(t)
	var found [][]string
	for _, page := range append(pages, filepath.Join(root, "docs", "systems.md")) {
		text := must.Do(os.ReadFile(page))(t)
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
