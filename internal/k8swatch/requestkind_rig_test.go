package k8swatch

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"

	"github.com/fenced/fenced/internal/k8swatch/client"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/request"
	"github.com/fenced/fenced/test/must"
	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/rig/rigtest"
)

// Who knows nothing of the kind reads each phase of a request with kstatus, as kubectl's appliers and Flux do, and people read it
// as a table. Once a run has begun the spec stays as it is, and nothing else is refused: fenced's own writes, those of the
// owner, and the deletion.
func TestRequestAsOthersReadIt(t *testing.T) {
	c, ctx := okd(t), rigtest.Context(t, 3*time.Minute)
	require.NoError(t, c.InstallCRDs(ctx, rig.Fenced))
	k := dial(t, c)
	r := bareMetal(t, c, rig.Host{}, rig.Node{})
	q := askedFor(t, c, r.Target)
	r.Request = &q
	api := c.Dynamic().Resource(client.RequestGVR).Namespace(rig.Namespace)
	live := func() *unstructured.Unstructured {
		return must.Do(api.Get(ctx, q.Name, metav1.GetOptions{}))(t)
	}
	kstatus := func() status.Status {
		result := must.Do(status.Compute(live()))(t)
		return result.Status
	}
	patch := func(body string) error {
		_, err := api.Patch(ctx, q.Name, types.MergePatchType, []byte(body), metav1.PatchOptions{})
		return err
	}
	assert.Equal(t, status.InProgressStatus, kstatus(), "fenced has not seen it yet")
	assert.Equal(t, map[string]any{"observedGeneration": int64(-1)}, live().Object["status"], "by which package manifest knows that nobody has")

	sick := policy.TargetReport{Node: "n", Verdict: policy.Unhealthy, Action: policy.PowerCycle}
	late := policy.TargetReport{Node: "n", Verdict: policy.Indeterminate, Reason: "RequestTimeout"}
	run := func(step remediate.Step) *remediate.Run {
		return &remediate.Run{ID: "r1", Step: step, Attempt: 1, Started: time.Now()}
	}
	told := func(target policy.TargetReport, r *remediate.Run, asked *policy.Request) request.Status {
		s := request.Of(policy.Requested{Request: &policy.Request{Generation: asked.Generation}, Target: target}, r, false, request.Refusal{Reason: "Budget", Message: "why"}, false)
		require.NoError(t, k.Requests().Report(ctx, q, s))
		return s
	}
	for _, phase := range []struct {
		r      *remediate.Run
		target policy.TargetReport
		phase  string
		read   status.Status
		cells  []any // Phase, Run, Reason
		frozen bool
	}{
		{nil, sick, request.Pending, status.InProgressStatus, []any{"Pending", nil, "Budget"}, false},
		{run(remediate.PowerOff), sick, request.Running, status.InProgressStatus, []any{"Running", "r1", "PowerOff"}, true},
		{run(remediate.Held), sick, request.Held, status.FailedStatus, []any{"Held", "r1", "Held"}, true},
		{run(remediate.Aborted), sick, request.Pending, status.InProgressStatus, []any{"Pending", "r1", "Budget"}, false},
		{nil, late, request.Failed, status.FailedStatus, []any{"Failed", "", "RequestTimeout"}, true},
		{run(remediate.Done), sick, request.Succeeded, status.CurrentStatus, []any{"Succeeded", "r1", "Remediated"}, true},
	} {
		asked := lookAt(t, k, r).Request
		s := told(phase.target, phase.r, asked)
		require.Equal(t, phase.phase, s.Phase)
		assert.Equal(t, phase.read, kstatus(), phase.phase)
		assert.Equal(t, phase.cells, tableRow(t, c, q.Name)[1:4], phase.phase)
		before := live()
		generation, _, _ := unstructured.NestedInt64(before.Object, "status", "observedGeneration")
		assert.Equal(t, before.GetGeneration(), generation, phase.phase)

		require.NoError(t, patch(`{"metadata":{"labels":{"phase":"`+phase.phase+`"}}}`), "the owner's labels")
		if err := patch(`{"spec":{"retryLimit":` + map[bool]string{false: "3", true: "9"}[phase.frozen] + `}}`); phase.frozen {
			require.True(t, apierrors.IsInvalid(err), "%s: %v", phase.phase, err)
			require.ErrorContains(t, err, "delete the request and make a new one")
			require.True(t, apierrors.IsInvalid(patch(`{"spec":null}`)), phase.phase)
			require.NoError(t, patch(`{"spec":{"retryLimit":3}}`), "what is the same is no change")
			continue
		} else if require.NoError(t, err); live().GetGeneration() != before.GetGeneration() {
			assert.Equal(t, status.InProgressStatus, kstatus(), "the spec has changed since")
			told(phase.target, phase.r, lookAt(t, k, r).Request)
		}
	}

	// While it is frozen: fenced sets its finalizer, the owner deletes it, fenced lets go, and so does the other one.
	require.NoError(t, k.Requests().SetFinalizer(ctx, q, "r1"))
	by := lookAt(t, k, r).Request.Power.HeldBy
	require.NoError(t, api.Delete(ctx, q.Name, metav1.DeleteOptions{}))
	assert.Equal(t, status.TerminatingStatus, kstatus())
	told(sick, run(remediate.PowerOn), lookAt(t, k, r).Request)
	require.NoError(t, k.Requests().RemoveFinalizer(ctx, q, by))
	require.NoError(t, patch(`{"metadata":{"finalizers":null}}`))
	_, err := api.Get(ctx, q.Name, metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err), "%v", err)
}

// tableRow is the row of a FencedRemediation that the API server makes for kubectl get.
func tableRow(t *testing.T, c *rig.ControlPlane, name string) []any {
	t.Helper()
	raw := must.Do(c.Client().CoreV1().RESTClient().Get().AbsPath("/apis/fenced.io/v1alpha1/namespaces/"+rig.Namespace+"/fencedremediations/"+name).
		SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").DoRaw(t.Context()))(t)
	var table metav1.Table
	require.NoError(t, json.Unmarshal(raw, &table))
	var names []string
	for _, column := range table.ColumnDefinitions {
		names = append(names, column.Name)
	}
	require.Equal(t, []string{"Name", "Phase", "Run", "Reason", "Retries", "Succeeded", "Age"}, names)
	require.Len(t, table.Rows, 1)
	return table.Rows[0].Cells
}
