package e2e

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/scene"
)

// Machines that never joined: one whose BMC reports the serial number of the inspection
// is power-cycled once and joins, one whose BMC reports another is refused, and one that
// was never inspected waits for a person who enrolls it by the name of the Machine.
func TestMachinesThatNeverJoined(t *testing.T) { // I8
	t.Parallel()
	check := scene.Metal("2s")
	check.NodeStartupTimeout, check.MaxUnhealthy = "20s", "100%"
	s := set(t, scene.Options{
		Workers: []scene.Spec{
			{Name: "inspected", Protocol: scene.Redfish, Metal3: true, Serial: "CZJ0A1B2C3"},
			{Name: "other-serial", Protocol: scene.Redfish, Metal3: true, Serial: "CZJ0A1B2C4"},
			{Name: "by-hand", Protocol: scene.IPMI, Metal3: true},
			{Name: "healthy-1", Protocol: scene.IPMI}, {Name: "healthy-2", Protocol: scene.IPMI},
		},
		Checks: []rig.Check{check},
	})
	ctx := within(t)
	for _, name := range []string{"inspected", "other-serial", "by-hand"} {
		neverJoined(ctx, t, s, name)
	}
	inspect(ctx, t, s, "inspected", "CZJ0A1B2C3")
	inspect(ctx, t, s, "other-serial", "CZJ0A1B2C9")
	_, err := s.StartDaemon(ctx)
	require.NoError(t, err)

	linkWhenRegistered(ctx, t, s, "inspected")
	r := awaitMachineRun(ctx, t, s, "inspected", wire.ResultDone)
	assert.Empty(t, r.Node)
	assert.Equal(t, rig.Namespace+"/inspected", r.Machine)
	assert.Len(t, s.Worker("inspected").Service.System(0).Commands(), 2, "off and on, once")
	requireNoDeletion(t, s, s.Worker("healthy-1"))

	x := awaitMachineRefusal(ctx, t, s, "other-serial", "IdentityMismatch")
	assert.Nil(t, x.Run)
	assert.Contains(t, x.Message, "fencectl bmc enroll --machine "+rig.Namespace+"/other-serial", "what to do")
	refused := fencectl(ctx, t, s, 3, "fence", "--machine", rig.Namespace+"/other-serial", "--reason", "test", "--yes")
	assert.Contains(t, refused.Stderr, "IdentityMismatch", "people are bound, too")
	assert.Empty(t, s.Worker("other-serial").Service.System(0).Commands())

	w, machine := s.Worker("by-hand"), rig.Namespace+"/by-hand"
	awaitMachineRefusal(ctx, t, s, w.Name, "IdentityUnknown")
	require.Zero(t, goBMC(t, w).Counts().Off)
	fencectl(ctx, t, s, 0, "hold", "--machine", machine, "--reason", "somebody is at the rack")
	fencectl(ctx, t, s, 0, "bmc", "enroll", "--machine", machine, "--reason", "looked at the console", "--yes")
	awaitMachineRefusal(ctx, t, s, w.Name, "Hold")
	require.Zero(t, goBMC(t, w).Counts().Off, "a hold of the Machine binds")
	linkWhenRegistered(ctx, t, s, w.Name)
	fencectl(ctx, t, s, 0, "release", "--machine", machine, "--reason", "done")
	awaitMachineRun(ctx, t, s, w.Name, wire.ResultDone)
	assert.Equal(t, 1, goBMC(t, w).Counts().Off)
	untouched(ctx, t, s, s.Worker("healthy-2"))
}

// neverJoined takes the Node from a Machine, as if it had never had one.
func neverJoined(ctx context.Context, t *testing.T, s *scene.Scene, name string) {
	t.Helper()
	s.Worker(name).Kubelet.Hang()
	require.NoError(t, s.Cluster.Client().CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{}))
	err := s.Cluster.Client().CoordinationV1().Leases(corev1.NamespaceNodeLease).Delete(ctx, name, metav1.DeleteOptions{})
	require.True(t, err == nil || apierrors.IsNotFound(err), "%v", err) // the Lease belongs to the Node
	patchStatus(ctx, t, s, rig.MachineResource.Resource, name, map[string]any{
		"nodeRef": nil, "phase": "Provisioned", "lastUpdated": time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)})
}

// inspect writes what an inspection of a host found.
func inspect(ctx context.Context, t *testing.T, s *scene.Scene, name, serial string) {
	t.Helper()
	patchStatus(ctx, t, s, rig.HostResource.Resource, name, map[string]any{"hardware": map[string]any{
		"hostname": name, "ramMebibytes": 1024, "systemVendor": map[string]any{"manufacturer": "HPE", "serialNumber": serial},
	}})
}

// linkWhenRegistered plays the controller that links a Node to its Machine, once the
// kubelet has registered it.
func linkWhenRegistered(ctx context.Context, t *testing.T, s *scene.Scene, name string) {
	t.Helper()
	go func() {
		if _, err := s.Cluster.WaitNode(ctx, name, func(n *corev1.Node) bool { return n != nil }); err == nil {
			patchStatus(ctx, t, s, rig.MachineResource.Resource, name, map[string]any{
				"nodeRef": map[string]any{"kind": "Node", "name": name}, "phase": "Running"})
		}
	}()
}

func patchStatus(ctx context.Context, t *testing.T, s *scene.Scene, resource, name string, status map[string]any) {
	t.Helper()
	gvr := rig.MachineResource
	if resource == rig.HostResource.Resource {
		gvr = rig.HostResource
	}
	patch, err := json.Marshal(map[string]any{"status": status})
	assert.NoError(t, err)
	_, err = s.Management.Dynamic().Resource(gvr).Namespace(rig.Namespace).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	assert.NoError(t, err)
}

// explainMachine polls explain of a Machine until ok.
func explainMachine(ctx context.Context, t *testing.T, s *scene.Scene, name string, ok func(wire.Explanation) bool) wire.Explanation {
	t.Helper()
	var last wire.Explanation
	var lastErr error
	for ctx.Err() == nil {
		if last, lastErr = s.ExplainMachine(ctx, rig.Namespace+"/"+name); lastErr == nil && ok(last) {
			return last
		}
		select {
		case <-ctx.Done():
		case <-time.After(200 * time.Millisecond):
		}
	}
	require.Failf(t, "not explained so", "%s: the last answer: %+v, last run %+v; last error: %v", name, last, last.Run, lastErr)
	return last
}

func awaitMachineRefusal(ctx context.Context, t *testing.T, s *scene.Scene, name, code string) wire.Explanation {
	t.Helper()
	return explainMachine(ctx, t, s, name, func(x wire.Explanation) bool { return x.Refused == code })
}

func awaitMachineRun(ctx context.Context, t *testing.T, s *scene.Scene, name, result string) wire.RunRecord {
	t.Helper()
	x := explainMachine(ctx, t, s, name, func(x wire.Explanation) bool { return x.Run != nil && x.Run.Result == result })
	return *x.Run
}
