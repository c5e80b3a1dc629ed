package k8swatch

import (
	"context"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/k8swatch/client"
	"github.com/fenced/fenced/internal/k8swatch/k8stest"
	"github.com/fenced/fenced/internal/k8swatch/write"
	"github.com/fenced/fenced/internal/manifest"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/test/must"
	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/rig/rigtest"
)

// isolate saves and isolates the Node, again while controllers still change it.
func isolate(t *testing.T, k *Cluster, r remediate.Run) (data []byte, b remediate.Backup) {
	t.Helper()
	k8stest.Until(t, "isolated as saved", func() (ok bool) {
		var err error
		data, b, err = k.Backup(t.Context(), r.Target)
		return err == nil && k.Act(t.Context(), r, remediate.IsolateNode, nil, b) == nil
	})
	return data, b
}

func TestNodeIsDeletedOnlyAsSaved(t *testing.T) { // I2
	c, ctx := rigtest.Shared(t), rigtest.Context(t, 3*time.Minute)
	k := dial(t, c)
	r := bareMetal(t, c, rig.Host{}, rig.Node{})
	_, b, err := k.Backup(ctx, r.Target)
	require.NoError(t, err)

	patch := []byte(`{"metadata":{"labels":{"changed":"since"}}}`)
	must.Do(c.Client().CoreV1().Nodes().Patch(ctx, r.Target.Node, types.MergePatchType, patch, metav1.PatchOptions{}))(t)
	require.Error(t, k.Act(ctx, r, remediate.IsolateNode, nil, b), "it changed since it was saved")

	wrong, otherUID := r, b
	wrong.Target.NodeUID, otherUID.UID = "00000000-0000-0000-0000-000000000000", "00000000-0000-0000-0000-000000000000"
	_, _, err = k.Backup(ctx, wrong.Target)
	require.Error(t, err, "another Node's backup")
	require.Error(t, k.Act(ctx, wrong, remediate.IsolateNode, nil, otherUID), "another Node of this name")
	deletions := must.Do(c.NodeDeletions(r.Target.Node))(t)
	require.Empty(t, deletions)

	_, b = isolate(t, k, r)
	require.NoError(t, k.Act(ctx, r, remediate.IsolateNode, nil, b), "already gone is a success")
	assert.Equal(t, remediate.No, lookAt(t, k, r).Seen.Node.Exists)
	deletions = must.Do(c.NodeDeletions(r.Target.Node))(t)
	require.Len(t, deletions, 1)
	assert.Equal(t, b, remediate.Backup{UID: deletions[0].UID, ResourceVersion: deletions[0].ResourceVersion})
}

func TestNodeGetsBackWhatItHad(t *testing.T) { // I21
	c, ctx := rigtest.Shared(t), rigtest.Context(t, 3*time.Minute)
	k := dial(t, c)
	gpu := corev1.Taint{Key: "gpu", Value: "yes", Effect: corev1.TaintEffectNoSchedule}
	r := bareMetal(t, c, rig.Host{}, rig.Node{
		Labels:      map[string]string{"node-role.kubernetes.io/worker": "", "zone": "a", "kubernetes.io/hostname": "old"},
		Annotations: map[string]string{"machineconfiguration.openshift.io/state": "Done", "csi.volume.kubernetes.io/nodeid": "{}", client.RunAnnotation: "r-1", client.StepAnnotation: "PowerOff", client.InstanceAnnotation: "f"},
		Taints:      []corev1.Taint{gpu}, Unschedulable: true,
	})
	backup, _ := isolate(t, k, r)
	fresh := must.Do(c.CreateNode(ctx, rig.Node{Name: r.Target.Node, Labels: map[string]string{"zone": "b"}}))(t)

	assert.Equal(t, remediate.No, lookAt(t, k, r, backup).Seen.Restored)
	assert.Equal(t, remediate.Yes, lookAt(t, k, r).Seen.Restored, "nothing was saved")
	assert.Equal(t, remediate.CannotTell, k.Look(ctx, r, nil).Seen.Restored, "the backups could not be read")
	require.Error(t, restored(ctx, k, r, backup), "no Node registered for this run")
	r.NewNodeUID = string(fresh.UID)
	k8stest.Until(t, "restored, past the conflicts with controllers", func() bool {
		return restored(ctx, k, r, backup) == nil
	})

	s := lookAt(t, k, r, backup).Seen
	assert.Equal(t, remediate.Yes, s.Restored, "read back")
	n := must.Do(c.Client().CoreV1().Nodes().Get(ctx, r.Target.Node, metav1.GetOptions{}))(t)
	assert.Equal(t, "b", n.Labels["zone"], "the live value wins")
	assert.Contains(t, n.Labels, "node-role.kubernetes.io/worker")
	assert.NotEqual(t, "old", n.Labels["kubernetes.io/hostname"], "the kubelet's own")
	assert.Equal(t, "Done", n.Annotations["machineconfiguration.openshift.io/state"])
	assert.NotContains(t, n.Annotations, "csi.volume.kubernetes.io/nodeid")
	for _, key := range client.MarkKeys {
		assert.NotContains(t, n.Annotations, key, "a mark is of its time")
	}
	assert.True(t, n.Spec.Unschedulable)
	assert.True(t, client.HasTaint(n.Spec.Taints, gpu))
}

func TestTaintInPlaceOfDeletion(t *testing.T) {
	c, ctx := rigtest.Shared(t), rigtest.Context(t, 3*time.Minute)
	k := dial(t, c)
	r := bareMetal(t, c, rig.Host{}, rig.Node{})
	r.Isolation = remediate.IsolateTaint
	backup, _ := isolate(t, k, r)
	assert.True(t, lookAt(t, k, r, backup).Seen.Node.OutOfService)
	assert.Equal(t, remediate.No, lookAt(t, k, r, backup).Seen.Restored, "our taint is still there")
	r.NewNodeUID = r.Target.NodeUID
	k8stest.Until(t, "the taint is gone", func() bool {
		return restored(ctx, k, r, backup) == nil
	})
	assert.False(t, lookAt(t, k, r, backup).Seen.Node.OutOfService)
}

func TestHoldStandsAndGoes(t *testing.T) {
	c, ctx := rigtest.Shared(t), rigtest.Context(t, 3*time.Minute)
	k := dial(t, c)
	r := bareMetal(t, c, rig.Host{}, rig.Node{})
	for range 2 { // each is absolute
		require.NoError(t, k.Act(ctx, r, remediate.SetPowerLock, nil, remediate.Backup{}))
		s := lookAt(t, k, r).Seen
		require.Equal(t, remediate.Yes, s.PowerLock)
		require.Equal(t, remediate.No, s.Contested, "our own hold is no rival")
	}
	u := must.Do(c.Dynamic().Resource(rig.HostResource).Namespace(rig.Namespace).Get(ctx, hostName(r), metav1.GetOptions{}))(t)
	assert.JSONEq(t, `{"mode":"hard"}`, u.GetAnnotations()["reboot.metal3.io/fenced"])
	for range 2 {
		require.NoError(t, k.Act(ctx, r, remediate.ReleasePowerLock, nil, remediate.Backup{}))
		require.Equal(t, remediate.No, lookAt(t, k, r).Seen.PowerLock)
	}
	r.Target.BareMetalHostUID = "00000000-0000-0000-0000-000000000000"
	require.Error(t, k.Act(ctx, r, remediate.SetPowerLock, nil, remediate.Backup{}), "another BareMetalHost of this name")
	require.Equal(t, remediate.No, lookAt(t, k, r).Seen.PowerLock)
	r.Target.BareMetalHost = rig.Namespace + "/none"
	require.NoError(t, k.Act(ctx, r, remediate.ReleasePowerLock, nil, remediate.Backup{}), "no host, no hold")
	require.Error(t, k.Act(ctx, r, remediate.SetPowerLock, nil, remediate.Backup{}))
}

func TestMachineRequestAndDeletion(t *testing.T) { // I2
	c, ctx := rigtest.Shared(t), rigtest.Context(t, 3*time.Minute)
	k := dial(t, c)
	r := bareMetal(t, c, rig.Host{}, rig.Node{})
	empty := ""
	require.NoError(t, c.Annotate(ctx, rig.MachineResource, r.Target.Machine, manifest.RemediationAnnotation, &empty))
	require.True(t, lookAt(t, k, r).Seen.Machine.Requested)
	wrong := r
	wrong.Target.MachineUID = "00000000-0000-0000-0000-000000000000"
	require.Error(t, k.Act(ctx, wrong, remediate.ClearRequest, nil, remediate.Backup{}), "another Machine of this name")
	require.Error(t, k.Act(ctx, wrong, remediate.DeleteTargetMachine, nil, remediate.Backup{}), "another Machine of this name")
	require.True(t, lookAt(t, k, r).Seen.Machine.Requested)

	require.NoError(t, k.Act(ctx, r, remediate.ClearRequest, nil, remediate.Backup{}))
	require.False(t, lookAt(t, k, r).Seen.Machine.Requested)
	for range 2 {
		require.NoError(t, k.Act(ctx, r, remediate.DeleteTargetMachine, nil, remediate.Backup{}))
	}
	assert.Equal(t, remediate.No, lookAt(t, k, r).Seen.Machine.Exists)
}

func TestCredentials(t *testing.T) {
	c, ctx := rigtest.Shared(t), rigtest.Context(t, 3*time.Minute)
	k := dial(t, c)
	whole, half := rigtest.Name("secret"), rigtest.Name("secret")
	require.NoError(t, c.CreateSecret(ctx, whole, map[string]string{"username": " admin\n", "password": "hush\n"}))
	require.NoError(t, c.CreateSecret(ctx, half, map[string]string{"username": "admin", "password": " \n"}))
	user, password, err := k.Credentials(ctx, rig.Namespace, whole)
	require.NoError(t, err)
	assert.Equal(t, "admin", user)
	assert.Equal(t, "hush", password.Reveal())
	_, _, err = k.Credentials(ctx, rig.Namespace, half)
	assert.ErrorIs(t, err, write.ErrSecretIncomplete)
	_, _, err = k.Credentials(ctx, rig.Namespace, "none")
	assert.ErrorIs(t, err, write.ErrSecretMissing)
	_, _, err = k.Credentials(ctx, metav1.NamespaceSystem, whole)
	require.True(t, apierrors.IsForbidden(err), "a namespace without BareMetalHosts: %v", err)
	assert.ErrorContains(t, err, "in the namespace kube-system the ClusterRole fenced-secrets is not bound; run fencectl init and its script again")
}

func restored(ctx context.Context, c *Cluster, r remediate.Run, backup []byte) error {
	_, err := c.Restore(ctx, r, [][]byte{backup})
	return err
}

// The policies that protect Nodes cannot be led round: whoever has the token of fenced may not first make a Node another
// kind of Node, nor switch a host or replace a Machine by way of its owner. What fenced writes stays allowed.
func TestAdmissionPolicyGuardsItsConditions(t *testing.T) {
	c := rigtest.Own(t, rig.Options{GracePeriod: time.Hour, CRDs: []rig.CRDs{rig.OpenShift, rig.Metal3, rig.CAPIv1beta2}})
	ctx := rigtest.Context(t, 5*time.Minute)
	require.NoError(t, c.ApplyConfig(ctx, "kubernetes/protect-nodes.yaml"))
	// The ServiceAccount of fencectl init; the group gives it every right, so that only the policies refuse.
	kubeconfig := must.Do(c.Kubeconfig("system:serviceaccount:fenced:fenced", "system:masters"))(t)
	thief, k := connected(t, kubeconfig).servers.Work.API().Dynamic, dial(t, c)

	r := bareMetal(t, c, rig.Host{}, rig.Node{Labels: map[string]string{"node-role.kubernetes.io/control-plane": "", "rack": "a"},
		Annotations: map[string]string{"machine.openshift.io/machine": "ns/m"}})
	blue := &blue{version: "v1beta2", manage: c, work: c}
	blue.create(t)
	object := func(gvr schema.GroupVersionResource, namespace, name string) func(patch string, sub ...string) error {
		return func(patch string, sub ...string) error {
			_, err := thief.Resource(gvr).Namespace(namespace).Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}, sub...)
			return err
		}
	}
	node := object(schema.GroupVersionResource{Version: "v1", Resource: "nodes"}, "", r.Target.Node)
	host := object(client.HostGVR, rig.Namespace, hostName(r))
	machine, capi := object(client.MachineGVR, rig.Namespace, r.Target.Machine), object(rig.CAPIResource("v1beta2", "machines"), rig.Namespace, blue.machine)
	of := map[string]func(string, ...string) error{"node": node, "host": host, "machine": machine, "capi": capi}

	k8stest.Until(t, "the policies to be enforced", func() bool { // the API server loads them
		return node(`{"metadata":{"labels":{"rack":null}}}`) != nil && host(`{"spec":{"online":false}}`) != nil
	})
	ready := `{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`
	for what, patches := range map[string][]string{
		"node": {`{"metadata":{"labels":{"node-role.kubernetes.io/control-plane":null}}}`, `{"metadata":{"labels":null}}`, `{"metadata":{"labels":{"rack":"b"}}}`,
			`{"metadata":{"annotations":{"machine.openshift.io/machine":"ns/other"}}}`, `{"metadata":{"annotations":{"machine.openshift.io/machine":null}}}`},
		"host": {`{"spec":{"online":false}}`, `{"spec":{"bmc":{"address":"ipmi://192.0.2.66"}}}`, `{"metadata":{"labels":{"x":"y"}}}`, `{"metadata":{"finalizers":["x.example.com/y"]}}`,
			`{"metadata":{"annotations":{"baremetalhost.metal3.io/detached":""}}}`, `{"metadata":{"annotations":{"reboot.metal3.io":""}}}`},
		"machine": {`{"metadata":{"labels":{"pool":"theirs"}}}`, `{"spec":{"providerID":"x"}}`, `{"metadata":{"annotations":{"metal3.io/BareMetalHost":"ns/other"}}}`,
			`{"metadata":{"annotations":{"host.metal3.io/external-remediation":""}}}`, `{"metadata":{"ownerReferences":null}}`},
		"capi": {`{"metadata":{"labels":{"pool":"theirs"}}}`, `{"spec":{"providerID":"x"}}`, `{"metadata":{"annotations":{"cluster.x-k8s.io/paused":""}}}`,
			`{"metadata":{"annotations":{"host.metal3.io/external-remediation":""}}}`, `{"metadata":{"ownerReferences":null}}`},
	} {
		for _, patch := range patches {
			err := of[what](patch)
			assert.True(t, apierrors.IsForbidden(err) && strings.Contains(err.Error(), ": fenced may"), "%s %s: %v", what, patch, err)
		}
	}
	for what, patch := range map[string]string{"node": ready, "host": `{"status":{"poweredOn":false}}`, "machine": `{"status":{"nodeRef":{"kind":"Node","name":"other"}}}`, "capi": `{"status":{"nodeRef":{"name":"other"}}}`} {
		err := of[what](patch, "status")
		assert.True(t, apierrors.IsForbidden(err) && strings.Contains(err.Error(), ": fenced may"), "status of %s: %v", what, err)
	}

	for _, run := range []string{"r-1", ""} {
		for _, m := range []event.RunMark{
			{APIVersion: "v1", Kind: "Node", Name: r.Target.Node, UID: r.Target.NodeUID},
			{APIVersion: policy.OpenShiftMachineAPI, Kind: "Machine", Namespace: rig.Namespace, Name: r.Target.Machine, UID: r.Target.MachineUID},
			{APIVersion: blue.run.Target.MachineAPI, Kind: "Machine", Namespace: rig.Namespace, Name: blue.machine, UID: blue.run.Target.MachineUID},
		} {
			m.Run = run
			require.NoError(t, k.Mark(ctx, m))
		}
	}
	require.NoError(t, machine(`{"metadata":{"labels":{}}}`), "what changes nothing")
	must.Do(c.Dynamic().Resource(client.MachineGVR).Namespace(rig.Namespace).Patch(ctx, r.Target.Machine, types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"host.metal3.io/external-remediation":""}}}`), metav1.PatchOptions{}))(t)
	r.Isolation, r.NewNodeUID = remediate.IsolateTaint, r.Target.NodeUID
	lost := []byte(`{"metadata":{"labels":{"lost":"label"},"annotations":{"lost":"annotation"}},"spec":{"unschedulable":true,"taints":[{"key":"lost","effect":"NoSchedule"}]}}`)
	for _, a := range []remediate.Action{remediate.SetPowerLock, remediate.ReleasePowerLock, remediate.ClearRequest} {
		require.NoError(t, k.Act(ctx, r, a, nil, remediate.Backup{}), "%s", a)
	}
	isolate(t, k, r)
	k8stest.Until(t, "the Node is restored", func() bool {
		return restored(ctx, k, r, lost) == nil
	})
	n := must.Do(c.Client().CoreV1().Nodes().Get(ctx, r.Target.Node, metav1.GetOptions{}))(t)
	assert.Subset(t, slices.Collect(maps.Keys(n.Labels)), []string{"lost", "rack"})
	require.NoError(t, k.Act(ctx, blue.run, remediate.DeleteTargetMachine, nil, remediate.Backup{}), "the conditions of a Machine")
}

// marksOn are the marks of the view on the Node and the Machine of a target.
func marksOn(k *Cluster, t remediate.Target) map[string]event.RunMark {
	found := map[string]event.RunMark{}
	for _, m := range k.Marked() {
		if m.Name == t.Node || m.Name == t.Machine {
			found[m.Kind] = m
		}
	}
	return found
}

// A mark is written to an object, is seen in the view, causes no evaluation, and goes
// again, with the rights that the product ships.
func TestMarksComeAndGo(t *testing.T) {
	c, ctx := rigtest.Shared(t), rigtest.Context(t, 3*time.Minute)
	k := watching(t, c)
	r := bareMetal(t, c, rig.Host{}, rig.Node{Annotations: map[string]string{"kept": "yes"}})
	node := event.RunMark{APIVersion: "v1", Kind: "Node", Name: r.Target.Node, UID: r.Target.NodeUID, Run: "r-1", Step: "PowerOff", Instance: "f-1"}
	machine := node
	machine.APIVersion, machine.Kind, machine.Namespace, machine.Name, machine.UID = policy.OpenShiftMachineAPI, "Machine", r.Target.Namespace, r.Target.Machine, r.Target.MachineUID
	both := map[string]event.RunMark{"Node": node, "Machine": machine}
	for _, m := range both {
		require.NoError(t, k.Mark(ctx, m))
		require.NoError(t, k.Mark(ctx, m), "again")
	}
	k8stest.Until(t, "both marks are seen", func() bool { return assert.ObjectsAreEqual(both, marksOn(k, r.Target)) })
	n := must.Do(c.Client().CoreV1().Nodes().Get(ctx, r.Target.Node, metav1.GetOptions{}))(t)
	assert.Equal(t, []string{"r-1", "PowerOff", "f-1", "yes"},
		[]string{n.Annotations["fenced.io/run"], n.Annotations["fenced.io/step"], n.Annotations["fenced.io/instance"], n.Annotations["kept"]})

	other := node
	other.UID, other.Run = "00000000-0000-0000-0000-000000000000", ""
	require.Error(t, k.Mark(ctx, other), "another Node of this name")
	node.Run, machine.Run = "", ""
	require.NoError(t, k.Mark(ctx, node))
	require.NoError(t, k.Mark(ctx, machine))
	k8stest.Until(t, "no mark is seen", func() bool { return len(marksOn(k, r.Target)) == 0 })
	n = must.Do(c.Client().CoreV1().Nodes().Get(ctx, r.Target.Node, metav1.GetOptions{}))(t)
	assert.Equal(t, "yes", n.Annotations["kept"])
	for _, key := range client.MarkKeys {
		assert.NotContains(t, n.Annotations, key)
	}
	gone := node
	gone.Name = "no-such-node"
	require.NoError(t, k.Mark(ctx, gone), "nothing carries a mark")
}

// A mark takes two seconds at most, here and at the API server.
func TestMarkIsBounded(t *testing.T) {
	asked := make(chan string, 1)
	k := served(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // then the server notices that the client leaves
		asked <- r.URL.Query().Get("timeout")
		<-r.Context().Done()
	})
	err := k.Mark(t.Context(), event.RunMark{APIVersion: "v1", Kind: "Node", Name: "n", UID: "u", Run: "r-1"})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Equal(t, "2s", <-asked)
}
