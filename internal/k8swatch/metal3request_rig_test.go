package k8swatch

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fenced/fenced/internal/k8swatch/client"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/request"
	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/rig/rigtest"
)

// The API of Metal3's provider (CAPM3) takes only the phases of that provider. A Metal3Remediation is told everything all
// the same, with the rights that the product ships, and what it was told is read back: one that was answered is not
// carried out again. // I4
func TestMetal3RemediationIsTold(t *testing.T) {
	c, ctx := okd(t), rigtest.Context(t, 3*time.Minute)
	path, err := c.Kubeconfig(rig.FencedUser)
	require.NoError(t, err)
	k, err := New(Config{Name: "rig", Kubeconfig: path, FreshEvery: time.Second, StoreID: "s", Metal3Remediations: true}, zap.NewNop())
	require.NoError(t, err)
	r := bareMetal(t, c, rig.Host{}, rig.Node{})
	machine, err := c.Dynamic().Resource(rig.MachineResource).Namespace(rig.Namespace).Get(ctx, r.Target.Machine, metav1.GetOptions{})
	require.NoError(t, err)
	made, err := c.CreateRemediation(ctx, machine, "reboot")
	require.NoError(t, err)
	q := remediate.Request{Kind: client.Metal3Requests.Kind, Namespace: rig.Namespace, Name: made.GetName(), UID: string(made.GetUID())}
	r.Request = &q
	own := schema.GroupVersionResource{Group: client.Metal3Requests.Group, Version: "v1beta2", Resource: "metal3remediations"}
	live := func() *unstructured.Unstructured {
		u, err := k.manage.API().Dynamic.Resource(own).Namespace(q.Namespace).Get(ctx, q.Name, metav1.GetOptions{})
		require.NoError(t, err)
		return u
	}
	for _, phase := range []string{request.Pending, request.Held, request.Succeeded} {
		require.True(t, apierrors.IsInvalid(c.SetStatus(ctx, own, q.Name, map[string]any{"phase": phase})), phase)
	}
	require.True(t, apierrors.IsInvalid(c.SetStatus(ctx, own, q.Name, map[string]any{"retryCount": int64(0)})))
	require.NoError(t, k.Requests().SetFinalizer(ctx, q, "r1/uuid"))

	sick := policy.TargetReport{Node: "n", Verdict: policy.Unhealthy, Action: policy.PowerCycle}
	late := policy.TargetReport{Node: "n", Verdict: policy.Indeterminate, Reason: "RequestTimeout"}
	run := func(step remediate.Step, attempt int) *remediate.Run {
		return &remediate.Run{ID: "r1", Step: step, Attempt: attempt, Started: time.Now()}
	}
	for _, told := range []struct {
		r      *remediate.Run
		target policy.TargetReport
		want   string // the phase of fenced
		phase  any    // that of the provider
		count  any
	}{
		{nil, sick, request.Pending, nil, nil},
		{run(remediate.PowerOff, 1), sick, request.Running, "Running", nil},
		{run(remediate.AwaitNode, 2), sick, request.Running, "Running", int64(1)},
		{run(remediate.Held, 2), sick, request.Held, "Running", int64(1)},
		{run(remediate.Aborted, 1), sick, request.Pending, nil, nil}, // a run of its own may follow
		{nil, late, request.Failed, "Failed", nil},
		{run(remediate.Reprovisioned, 1), sick, request.Succeeded, "Deleting machine", nil},
		{run(remediate.Done, 2), sick, request.Succeeded, "Waiting", int64(1)},
	} {
		s := request.Of(policy.Requested{Request: &policy.Request{}, Target: told.target}, told.r, false, request.Refusal{}, false)
		require.Equal(t, told.want, s.Phase)
		require.NoError(t, k.Requests().Report(ctx, q, s))
		first := live()
		require.NoError(t, k.Requests().Report(ctx, q, s))
		assert.Equal(t, first.GetResourceVersion(), live().GetResourceVersion(), "what is the same is not written")
		status, _, _ := unstructured.NestedMap(first.Object, "status")
		assert.Equal(t, []any{told.phase, told.count}, []any{status["phase"], status["retryCount"]}, told.want)
		seen := look(t, k, r).Request
		require.NotNil(t, seen)
		assert.Equal(t, told.want, seen.Power.Phase)
		assert.Equal(t, told.want == request.Succeeded || told.want == request.Failed, seen.Power.Answered())
		assert.Equal(t, "r1", seen.Power.HeldFor)
	}

	// A version of the API that takes something else: the mark is written all the same.
	never := request.Status{Phase: request.Failed, Started: time.Date(12000, 1, 1, 0, 0, 0, 0, time.UTC)}
	err = k.Requests().Report(ctx, q, never)
	require.True(t, apierrors.IsInvalid(err), "%v", err)
	assert.Equal(t, request.Failed, look(t, k, r).Request.Power.Phase)
}
