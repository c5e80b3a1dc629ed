package k8swatch

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/k8swatch/client"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/rig/rigtest"
)

// The policies that protect Nodes cannot be led round: whoever has the token of fenced may not first make a Node another
// kind of Node, nor switch a host or replace a Machine by way of its owner. What fenced writes stays allowed.
func TestAdmissionPolicyGuardsItsConditions(t *testing.T) {
	c := rigtest.Own(t, rig.Options{GracePeriod: time.Hour, CRDs: []rig.CRDs{rig.OpenShift, rig.Metal3, rig.CAPIv1beta2}})
	ctx := rigtest.Context(t, 5*time.Minute)
	require.NoError(t, c.ApplyConfig(ctx, "kubernetes/protect-nodes.yaml"))
	// The ServiceAccount of fencectl init; the group gives it every right, so that only the policies refuse.
	kubeconfig, err := c.Kubeconfig("system:serviceaccount:fenced:fenced", "system:masters")
	require.NoError(t, err)
	thief, k := connected(t, kubeconfig).work.API().Dynamic, dial(t, c)

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

	until(t, 2*time.Minute, "the policies to be enforced", func() bool { // the API server loads them
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
	_, err = c.Dynamic().Resource(client.MachineGVR).Namespace(rig.Namespace).Patch(ctx, r.Target.Machine, types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"host.metal3.io/external-remediation":""}}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	r.Isolation, r.NewNodeUID = remediate.IsolateTaint, r.Target.NodeUID
	lost := []byte(`{"metadata":{"labels":{"lost":"label"},"annotations":{"lost":"annotation"}},"spec":{"unschedulable":true,"taints":[{"key":"lost","effect":"NoSchedule"}]}}`)
	for _, a := range []remediate.Action{remediate.SetPowerLock, remediate.ReleasePowerLock, remediate.ClearRequest} {
		require.NoError(t, k.Act(ctx, r, a, nil, remediate.Backup{}), "%s", a)
	}
	isolate(t, k, r)
	until(t, time.Minute, "the Node is restored", func() bool {
		return restored(ctx, k, r, lost) == nil
	})
	n, err := c.Client().CoreV1().Nodes().Get(ctx, r.Target.Node, metav1.GetOptions{})
	require.NoError(t, err)
	assert.Subset(t, slices.Collect(maps.Keys(n.Labels)), []string{"lost", "rack"})
	require.NoError(t, k.Act(ctx, blue.run, remediate.DeleteTargetMachine, nil, remediate.Backup{}), "the conditions of a Machine")
}
