package e2e

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/scene"
)

// What fenced finds is written into the status of an OpenShift check as its own
// controller would, with an event when the limit is passed, unless that
// controller is alive, and never twice the same.
func TestStatusIsWrittenBack(t *testing.T) {
	t.Parallel()
	k := scene.Metal("2s")
	k.MaxUnhealthy = "40%"
	s := set(t, scene.Options{Checks: []rig.Check{k}, Workers: []scene.Spec{
		{Name: "a", Protocol: scene.IPMI}, {Name: "b", Protocol: scene.IPMI}, {Name: "c", Protocol: scene.IPMI},
	}})
	ctx := within(t)
	judge := rig.Lease{Namespace: rig.Namespace, Name: "cluster-api-provider-healthcheck-leader", Holder: "judge-0", Duration: 10 * time.Minute}
	require.NoError(t, s.Cluster.PutLease(ctx, judge))
	_, err := s.StartDaemon(ctx)
	require.NoError(t, err)
	requireGoodStatus(ctx, t, s)
	time.Sleep(3 * time.Second) // what should not happen has time to
	require.Empty(t, writes(t, s.Cluster, "machinehealthchecks"), "the judge is alive")

	judge.Renewed = time.Now().Add(-time.Hour)
	require.NoError(t, s.Cluster.PutLease(ctx, judge))
	written := awaitStatus(ctx, t, s, 3, 3, 1, "True")
	time.Sleep(4 * time.Second) // what should not happen has time to
	require.Equal(t, written.GetResourceVersion(), checkObject(ctx, t, s).GetResourceVersion(), "nothing changed")
	require.Empty(t, eventsOn(ctx, t, s))

	nothing := []byte(`{"spec":{"maxUnhealthy":0}}`)
	_, err = s.Cluster.Dynamic().Resource(rig.CheckResource).Namespace(rig.Namespace).
		Patch(ctx, "workers", types.MergePatchType, nothing, metav1.PatchOptions{})
	require.NoError(t, err)
	awaitStatus(ctx, t, s, 3, 3, 0, "True")

	w := s.Worker("a")
	w.Kubelet.Hang()
	restricted := awaitStatus(ctx, t, s, 3, 2, 0, "False")
	c := allowedCondition(t, restricted)
	assert.Equal(t, []any{"TooManyUnhealthy", "Warning"}, []any{c["reason"], c["severity"]})
	awaitEvents(ctx, t, s, "Warning RemediationRestricted")
	awaitRefusal(ctx, t, s, w.Name, "ShortCircuit")
	rebootByHand(ctx, t, s, w)
	awaitStatus(ctx, t, s, 3, 3, 0, "True")
	awaitEvents(ctx, t, s, "Warning RemediationRestricted", "Normal RemediationAllowed")

	time.Sleep(2 * time.Second) // what should not happen has time to
	patch := write{"patch", "machinehealthchecks", "status", "workers"}
	assert.Equal(t, []write{patch, patch, patch, patch}, writes(t, s.Cluster, "machinehealthchecks"), "one write for each change")
	awaitEvents(ctx, t, s, "Warning RemediationRestricted", "Normal RemediationAllowed")
	requireNotAsked(ctx, t, s, "a", "b", "c")
}

// rebootByHand switches a host off and on again, behind the back of everybody.
func rebootByHand(ctx context.Context, t *testing.T, s *scene.Scene, w *scene.Worker) {
	t.Helper()
	require.NoError(t, w.BMC.SetPower(false))
	require.Eventually(t, func() bool { return w.Kubelet.BootID() == "" }, patience, 20*time.Millisecond, "the host stopped")
	require.NoError(t, w.BMC.SetPower(true))
	_, err := s.Cluster.WaitNode(ctx, w.Name, scene.IsReady)
	require.NoError(t, err)
}

func checkObject(ctx context.Context, t *testing.T, s *scene.Scene) *unstructured.Unstructured {
	t.Helper()
	obj, err := s.Cluster.Dynamic().Resource(rig.CheckResource).Namespace(rig.Namespace).Get(ctx, "workers", metav1.GetOptions{})
	require.NoError(t, err)
	return obj
}

// awaitStatus waits for the counters and the condition of the check.
func awaitStatus(ctx context.Context, t *testing.T, s *scene.Scene, expected, healthy, more int, allowed string) *unstructured.Unstructured {
	t.Helper()
	want := map[string]any{"expectedMachines": int64(expected), "currentHealthy": int64(healthy), "remediationsAllowed": int64(more)}
	var obj *unstructured.Unstructured
	require.Eventually(t, func() bool {
		obj = checkObject(ctx, t, s)
		status, _, _ := unstructured.NestedMap(obj.Object, "status")
		for key, value := range want {
			if status[key] != value {
				return false
			}
		}
		return conditionIn(obj, "RemediationAllowed", "status", "conditions") == allowed
	}, patience, 100*time.Millisecond, "status %v with RemediationAllowed %s", want, allowed)
	return obj
}

func allowedCondition(t *testing.T, obj *unstructured.Unstructured) map[string]any {
	t.Helper()
	list, _, err := unstructured.NestedSlice(obj.Object, "status", "conditions")
	require.NoError(t, err)
	require.Len(t, list, 1)
	c, _ := list[0].(map[string]any)
	return c
}

// eventsOn are the Kubernetes Events about the check.
func eventsOn(ctx context.Context, t *testing.T, s *scene.Scene) []string {
	t.Helper()
	list, err := s.Cluster.Client().CoreV1().Events(rig.Namespace).List(ctx, metav1.ListOptions{
		FieldSelector: "involvedObject.kind=MachineHealthCheck,involvedObject.name=workers",
	})
	require.NoError(t, err)
	var found []string
	for i := range list.Items {
		e := &list.Items[i]
		assert.Equal(t, "fenced", e.Source.Component)
		found = append(found, e.Type+" "+e.Reason)
	}
	return found
}

// awaitEvents waits until there are exactly these Events, in any order.
func awaitEvents(ctx context.Context, t *testing.T, s *scene.Scene, want ...string) {
	t.Helper()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		assert.ElementsMatch(c, want, eventsOn(ctx, t, s))
	}, patience, 100*time.Millisecond)
}
