package e2e

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/must"
	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/scene"
)

var (
	rebootRequests = schema.GroupVersionResource{Group: "self-node-remediation.medik8s.io", Version: "v1alpha1", Resource: "selfnoderemediations"}
	deleteRequests = schema.GroupVersionResource{Group: "machine-deletion-remediation.medik8s.io", Version: "v1alpha1", Resource: "machinedeletionremediations"}
)

// provider is a stand-in for other remediators: it keeps the requests of one kind with a finalizer
// and writes the conditions that a test tells it to.
type provider struct {
	on   *rig.ControlPlane
	kind schema.GroupVersionResource
	// namespace is where they are; empty: that of the scene.
	namespace string
}

func (p provider) requests() dynamic.ResourceInterface {
	return p.on.Dynamic().Resource(p.kind).Namespace(cmp.Or(p.namespace, rig.Namespace))
}

// get is the request of this name; nil if there is none.
func (p provider) get(ctx context.Context, t *testing.T, name string) *unstructured.Unstructured {
	t.Helper()
	obj, err := p.requests().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(t, err)
	return obj
}

// await waits until the request exists and ok is true.
func (p provider) await(ctx context.Context, t *testing.T, name, what string, ok func(*unstructured.Unstructured) bool) (last *unstructured.Unstructured) {
	t.Helper()
	require.Eventually(t, func() bool {
		last = p.get(ctx, t, name)
		return last != nil && ok(last)
	}, patience, 50*time.Millisecond, "%s %s %s", p.kind.Resource, name, what)
	return last
}

func exists(*unstructured.Unstructured) bool { return true }

// awaitGone waits until the request is gone.
func (p provider) awaitGone(ctx context.Context, t *testing.T, name string) {
	t.Helper()
	require.Eventually(t, func() bool { return p.get(ctx, t, name) == nil }, patience, 50*time.Millisecond, "%s %s is gone", p.kind.Resource, name)
}

// change changes a request. Others write to it, too.
func (p provider) change(ctx context.Context, t *testing.T, name string, change func(*unstructured.Unstructured), subresources ...string) {
	t.Helper()
	require.Eventually(t, func() bool {
		obj := p.get(ctx, t, name)
		change(obj)
		_, err := p.requests().Update(ctx, obj, metav1.UpdateOptions{}, subresources...)
		return err == nil
	}, patience, 50*time.Millisecond)
}

// say writes the one condition Processing.
func (p provider) say(ctx context.Context, t *testing.T, name, processing string) {
	t.Helper()
	p.change(ctx, t, name, func(obj *unstructured.Unstructured) {
		obj.Object["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Processing", "status": processing}}}
	}, "status")
}

// keep sets or removes the finalizer of the remediator.
func (p provider) keep(ctx context.Context, t *testing.T, name string, yes bool) {
	t.Helper()
	p.change(ctx, t, name, func(obj *unstructured.Unstructured) {
		obj.SetFinalizers(nil)
		if yes {
			obj.SetFinalizers([]string{"example.com/at-work"})
		}
	})
}

func template(ctx context.Context, t *testing.T, on *rig.ControlPlane, apiVersion, kind, name string) rig.TemplateRef {
	t.Helper()
	require.NoError(t, on.Apply(ctx, []byte("apiVersion: "+apiVersion+"\nkind: "+kind+"\nmetadata: {name: "+name+", namespace: "+rig.Namespace+
		"}\nspec: {template: {spec: {mark: "+name+"}}}\n")))
	return rig.TemplateRef{APIVersion: apiVersion, Kind: kind, Name: name}
}

func timedOut(obj *unstructured.Unstructured) bool {
	return obj.GetAnnotations()["remediation.medik8s.io/nhc-timed-out"] != ""
}

// reboot is what the remediator does to the host.
func reboot(ctx context.Context, t *testing.T, s *scene.Scene, w *scene.Worker) {
	t.Helper()
	require.NoError(t, w.BMC.SetPower(false))
	require.Eventually(t, func() bool { return w.Kubelet.BootID() == "" }, patience, 50*time.Millisecond, "%s has no power", w.Name)
	require.NoError(t, w.BMC.SetPower(true))
	must.Do(s.Cluster.WaitNode(ctx, w.Name, func(n *corev1.Node) bool { return rig.ReadyStatus(n) == corev1.ConditionTrue }))(t)
}

// awaitDisabled waits until a check is Disabled for this reason.
func awaitDisabled(ctx context.Context, t *testing.T, s *scene.Scene, name, why string) {
	t.Helper()
	var last wire.Coverage
	require.Eventually(t, func() bool {
		var err error
		last, err = s.Coverage(ctx)
		return err == nil && len(last.Clusters) == 1 && slices.ContainsFunc(last.Clusters[0].Checks, func(k wire.CheckCoverage) bool {
			return k.Name == name && k.State == "Disabled" && strings.Contains(k.Message, why)
		})
	}, patience, 100*time.Millisecond, "check %s is Disabled: %s", name, why)
}

// A check of the Cluster API that was handed over, with a template of another remediator: fenced
// makes the request as the manager would, leaves host and Node alone, and deletes the request when
// the Node is well; the remediator lets it go. While the template is missing, the check is Disabled.
func TestHandedOverCheckWithAForeignTemplate(t *testing.T) {
	t.Parallel()
	check := handedOver()
	check.Template = rig.RemediationTemplate("other")
	s := clusterAPIScene(t, scene.Options{
		StandIn:       inMemory,
		ClusterChecks: []rig.CAPICheck{check},
		Workers:       []scene.Spec{{Name: "hung", Protocol: scene.IPMI, Metal3: true}, {Name: "healthy", Protocol: scene.IPMI, Metal3: true}},
	})
	ctx := within(t)
	require.NoError(t, s.Management.InstallCRDs(ctx, rig.Metal3Remediation))
	require.NoError(t, s.Management.ApplyConfig(ctx, "kubernetes/templates.yaml"))
	must.Do(s.StartDaemon(ctx))(t)
	awaitDisabled(ctx, t, s, "metal", "there is no Metal3RemediationTemplate of infrastructure.cluster.x-k8s.io/v1beta1 "+rig.Namespace+"/other")
	must.Do(s.Management.CreateTemplate(ctx, "other"))(t)

	w, p := s.Worker("hung"), provider{on: s.Management, kind: rig.RemediationResource}
	w.Kubelet.Hang()
	obj := p.await(ctx, t, w.Name, "exists", exists)
	assert.Equal(t, "other", obj.GetAnnotations()["cluster.x-k8s.io/cloned-from-name"])
	assert.Equal(t, "Metal3RemediationTemplate.infrastructure.cluster.x-k8s.io", obj.GetAnnotations()["cluster.x-k8s.io/cloned-from-groupkind"])
	assert.Equal(t, scene.ClusterName, obj.GetLabels()["cluster.x-k8s.io/cluster-name"])
	m := must.Do(s.Management.Dynamic().Resource(rig.CAPIResource("v1beta2", "machines")).Namespace(rig.Namespace).Get(ctx, w.Name, metav1.GetOptions{}))(t)
	assert.Equal(t, []metav1.OwnerReference{{APIVersion: m.GetAPIVersion(), Kind: "Machine", Name: w.Name, UID: m.GetUID()}}, obj.GetOwnerReferences())
	limit, _, _ := unstructured.NestedInt64(obj.Object, "spec", "strategy", "retryLimit")
	assert.Equal(t, int64(1), limit, "the spec of the template")

	p.keep(ctx, t, w.Name, true)
	reboot(ctx, t, s, w)
	p.await(ctx, t, w.Name, "is being deleted", func(obj *unstructured.Unstructured) bool { return obj.GetDeletionTimestamp() != nil })
	p.keep(ctx, t, w.Name, false)
	p.awaitGone(ctx, t, w.Name)
	requireNoDeletion(t, s, w)
	assert.Nil(t, p.get(ctx, t, "healthy"))
	requireNotAsked(ctx, t, s, w.Name, "healthy")
}

// A FencePolicy that asks other remediators, as documented. A foreign object of the same name is left
// alone. Without the rights it is Disabled, and says which one is missing.
func TestFencePolicyWithTemplates(t *testing.T) {
	t.Parallel()
	text := strings.ReplaceAll(string(documented(t, "fencepolicy")), "300s", "2s")
	s := set(t, scene.Options{
		Machines: scene.NoMachines, CRDs: []rig.CRDs{rig.Medik8s, rig.Medik8sRemediators}, Policies: map[string]string{"racks.yaml": text},
		Workers: []scene.Spec{{Name: "hung", Protocol: scene.IPMI}, {Name: "taken", Protocol: scene.IPMI}, {Name: "well", Protocol: scene.IPMI}},
	})
	ctx := within(t)
	template(ctx, t, s.Cluster, rebootRequests.GroupVersion().String(), "SelfNodeRemediationTemplate", "reboot")
	template(ctx, t, s.Cluster, deleteRequests.GroupVersion().String(), "MachineDeletionRemediationTemplate", "delete")
	require.NoError(t, s.Cluster.Apply(ctx, []byte("apiVersion: "+rebootRequests.GroupVersion().String()+
		"\nkind: SelfNodeRemediation\nmetadata: {name: taken, namespace: "+rig.Namespace+"}\n")))
	must.Do(s.StartDaemon(ctx))(t)
	awaitDisabled(ctx, t, s, "racks", "configs/kubernetes/templates.yaml")
	require.NoError(t, s.Cluster.ApplyConfig(ctx, "kubernetes/templates.yaml"))

	w, p := s.Worker("hung"), provider{on: s.Cluster, kind: rebootRequests}
	w.Kubelet.Hang()
	s.Worker("taken").Kubelet.Hang()
	obj := p.await(ctx, t, w.Name, "exists", exists)
	assert.Equal(t, "FencePolicy.fenced.io racks", obj.GetAnnotations()["fenced.io/check"])
	mark, _, _ := unstructured.NestedString(obj.Object, "spec", "mark")
	assert.Equal(t, "reboot", mark, "the spec of the template")
	awaitRefusal(ctx, t, s, "taken", "AlreadyRequested")
	reboot(ctx, t, s, w)
	p.awaitGone(ctx, t, w.Name)
	reboot(ctx, t, s, s.Worker("taken"))
	assert.Empty(t, p.get(ctx, t, "taken").GetDeletionTimestamp(), "somebody else's")
	requireNotAsked(ctx, t, s, w.Name, "taken", "well")
}

const madeBy = "fenced.io/made-by"

// lifetimes are the requests of several kinds, each from its creation to its end, by the
// resourceVersions of the API server.
type lifetimes struct {
	mu   sync.Mutex
	list map[string][2]uint64 // by UID; an end of 0: it exists
}

// watchLifetimes notes every request that is made from now on.
func watchLifetimes(ctx context.Context, t *testing.T, all ...provider) *lifetimes {
	t.Helper()
	l := &lifetimes{list: map[string][2]uint64{}}
	for _, p := range all {
		w := must.Do(p.requests().Watch(ctx, metav1.ListOptions{}))(t)
		t.Cleanup(w.Stop)
		go func() {
			for ev := range w.ResultChan() {
				l.note(ev)
			}
		}()
	}
	return l
}

func (l *lifetimes) note(ev apiwatch.Event) {
	obj, is := ev.Object.(*unstructured.Unstructured)
	if !is {
		return
	}
	version, _ := strconv.ParseUint(obj.GetResourceVersion(), 10, 64) // 0 is found by requireOneAtATime
	l.mu.Lock()
	defer l.mu.Unlock()
	uid := string(obj.GetUID())
	if span := l.list[uid]; ev.Type == apiwatch.Deleted {
		l.list[uid] = [2]uint64{span[0], version}
	} else if span[0] == 0 {
		l.list[uid] = [2]uint64{version, 0}
	}
}

// awaitEnded waits until so many requests have been seen, and the end of each.
func (l *lifetimes) awaitEnded(t *testing.T, n int) {
	t.Helper()
	require.Eventually(t, func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		ended := 0
		for _, span := range l.list {
			if span[1] != 0 {
				ended++
			}
		}
		return len(l.list) == n && ended == n
	}, patience, 50*time.Millisecond, "%d requests were made, and have ended", n)
}

// requireOneAtATime requires that no two of them existed at one time.
func (l *lifetimes) requireOneAtATime(t *testing.T) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for uid, a := range l.list {
		require.NotZero(t, a[0])
		for other, b := range l.list {
			assert.True(t, uid == other || a[1] <= b[0] || b[1] <= a[0], "%s existed during %v, %s during %v", uid, a, other, b)
		}
	}
}

// Two instances over one etcd, and an escalation of two remediators: the owner asks the first one
// and is killed; the other instance knows of it, gives up on it, waits until it has stopped, and asks
// the second one. That instance is killed, too, and the first one, started again, deletes the request
// when the Node is well. No two requests exist at one time, and both are of one record. // I19, I22
func TestRequestsOutliveTheirOwner(t *testing.T) {
	t.Parallel()
	text := strings.NewReplacer("300s", "2s", "timeout: 10m", "timeout: 60s").Replace(string(documented(t, "fencepolicy")))
	s := onStandIn(t, scene.Options{
		Machines: scene.NoMachines, CRDs: []rig.CRDs{rig.Medik8s, rig.Medik8sRemediators}, Policies: map[string]string{"racks.yaml": text},
		Workers: []scene.Spec{{Name: "hung", Protocol: scene.IPMI}, {Name: "well", Protocol: scene.IPMI}},
	})
	ctx := within(t)
	_, shared := shareEtcd(t, s)
	template(ctx, t, s.Cluster, rebootRequests.GroupVersion().String(), "SelfNodeRemediationTemplate", "reboot")
	template(ctx, t, s.Cluster, deleteRequests.GroupVersion().String(), "MachineDeletionRemediationTemplate", "delete")
	w, a, b := s.Worker("hung"), provider{on: s.Cluster, kind: rebootRequests}, provider{on: s.Cluster, kind: deleteRequests}
	seen := watchLifetimes(ctx, t, a, b)
	owner, other, before := awaitOwner(ctx, t, launchPeer(t, s, "one", shared...), launchPeer(t, s, "two", shared...))
	w.Kubelet.Hang()
	first := a.await(ctx, t, w.Name, "exists", exists)
	owner.Kill()
	a.say(ctx, t, w.Name, "True")
	obj := a.await(ctx, t, w.Name, "is given up by the other instance", timedOut)
	assert.Equal(t, first.GetUID(), obj.GetUID())
	assert.Equal(t, first.GetAnnotations()[madeBy], obj.GetAnnotations()[madeBy])
	now := other.awaitCluster(ctx, t, "it acts", acting)
	assert.Greater(t, now.Epoch, before.Epoch)
	require.Nil(t, b.get(ctx, t, w.Name), "the first remediator is still at work")
	a.say(ctx, t, w.Name, "False")
	second := b.await(ctx, t, w.Name, "exists", exists)
	assert.Equal(t, first.GetAnnotations()[madeBy], second.GetAnnotations()[madeBy], "it is the same record")

	b.say(ctx, t, w.Name, "True")
	other.Kill()
	again := owner.start()
	again.awaitCluster(ctx, t, "it acts again", acting)
	require.Equal(t, second.GetUID(), b.get(ctx, t, w.Name).GetUID())
	reboot(ctx, t, s, w)
	b.awaitGone(ctx, t, w.Name)
	seen.awaitEnded(t, 2)
	seen.requireOneAtATime(t)
	requireNoDeletion(t, s, w)
	untouched(ctx, t, s, s.Worker("well"))
}
