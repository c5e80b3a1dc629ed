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
	"github.com/fenced/fenced/internal/k8swatch/look"
	"github.com/fenced/fenced/internal/k8swatch/view"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/request"
	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/rig/rigtest"
)

// askedFor creates a FencedRemediation for the target of a run, with a finalizer of somebody
// else, and returns its name in a run.
func askedFor(t *testing.T, c *rig.ControlPlane, target remediate.Target) remediate.Request {
	t.Helper()
	obj := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "fenced.io/v1alpha1", "kind": "FencedRemediation"}}
	obj.SetName(target.Machine)
	obj.SetFinalizers([]string{"example.com/other"})
	made, err := c.Dynamic().Resource(client.RequestGVR).Namespace(rig.Namespace).Create(t.Context(), obj, metav1.CreateOptions{})
	require.NoError(t, err)
	return remediate.Request{Kind: policy.FencedRemediationKind, Namespace: rig.Namespace, Name: target.Machine, UID: string(made.GetUID())}
}

func TestRequestIsHeldReportedAndReleased(t *testing.T) {
	c, ctx := okd(t), rigtest.Context(t, 3*time.Minute)
	require.NoError(t, c.InstallCRDs(ctx, rig.Fenced))
	k := dial(t, c)
	r := bareMetal(t, c, rig.Host{}, rig.Node{})
	q := askedFor(t, c, r.Target)
	r.Request = &q
	live := func() *unstructured.Unstructured {
		u, err := k.servers.Work.API().Dynamic.Resource(client.RequestGVR).Namespace(q.Namespace).Get(ctx, q.Name, metav1.GetOptions{})
		require.NoError(t, err)
		return u
	}
	seen := lookAt(t, k, r)
	require.NotNil(t, seen.Request)
	assert.False(t, seen.Request.Power.HasFinalizer)

	for range 2 { // again changes nothing
		require.NoError(t, k.Requests().SetFinalizer(ctx, q, "r1/uuid"))
		assert.Equal(t, []string{"example.com/other", "fenced.io/power"}, live().GetFinalizers())
	}
	assert.True(t, lookAt(t, k, r).Request.Power.HasFinalizer)
	power := lookAt(t, k, r).Request.Power
	assert.Equal(t, []string{"r1", "uuid"}, []string{power.HeldFor, power.HeldMachine})

	told := request.Of(policy.Requested{Request: seen.Request}, &remediate.Run{ID: "r1", Step: remediate.PowerOff, Attempt: 2, Started: time.Now()}, false, request.Refusal{}, false)
	require.NoError(t, k.Requests().Report(ctx, q, told))
	first := live()
	require.NoError(t, k.Requests().Report(ctx, q, told))
	assert.Equal(t, first.GetResourceVersion(), live().GetResourceVersion(), "what is the same is not written")
	status, _, _ := unstructured.NestedMap(first.Object, "status")
	assert.Equal(t, []any{"Running", "r1", int64(1)}, []any{status["phase"], status["run"], status["retryCount"]})
	assert.Len(t, status["conditions"], 3)

	other := q
	other.UID = "another"
	require.Error(t, k.Requests().SetFinalizer(ctx, other, "r1"))
	require.NoError(t, k.Requests().Report(ctx, other, told), "it is gone")
	r.Request = &other
	seen = lookAt(t, k, r)
	assert.True(t, seen.RequestRead)
	assert.Nil(t, seen.Request)

	// Another installation, and another cluster of this one, neither hold nor release it. Nor does
	// a release that was decided before the request was held anew.
	r.Request = &q
	by := lookAt(t, k, r).Request.Power.HeldBy
	for _, cfg := range []view.Config{{Name: "rig", StoreID: "other"}, {Name: "other"}} {
		cfg.Kubeconfig, cfg.FreshEvery = k.servers.Work.Kubeconfig, time.Second
		foreign, err := New(Config{Config: cfg}, zap.NewNop())
		require.NoError(t, err)
		require.ErrorContains(t, foreign.Requests().SetFinalizer(ctx, q, "r1"), "another installation of fenced holds it")
		power := lookAt(t, foreign, r).Request.Power
		assert.False(t, power.HasFinalizer)
		assert.True(t, power.FinalizerElsewhere)
	}
	require.NoError(t, k.Requests().SetFinalizer(ctx, q, "r2"))
	require.NoError(t, k.Requests().RemoveFinalizer(ctx, q, by))
	assert.Len(t, live().GetFinalizers(), 2, "held anew since")
	by = lookAt(t, k, r).Request.Power.HeldBy

	require.NoError(t, c.Dynamic().Resource(client.RequestGVR).Namespace(rig.Namespace).Delete(ctx, q.Name, metav1.DeleteOptions{}))
	for range 2 {
		require.NoError(t, k.Requests().RemoveFinalizer(ctx, q, by))
		assert.NotContains(t, live().GetAnnotations(), "fenced.io/power-held-by")
		assert.Equal(t, []string{"example.com/other"}, live().GetFinalizers())
	}
	require.ErrorContains(t, k.Requests().SetFinalizer(ctx, q, "r1"), "replaced or deleted")
}

// Without its request nothing destructive is done. A run that has isolated its Node goes on to bring
// the host back: the API server is not out for it. // I20, I22
func TestRequestThatCannotBeRead(t *testing.T) {
	c, ctx := rigtest.Own(t, rig.Options{CRDs: []rig.CRDs{rig.OpenShift, rig.Metal3, rig.Fenced}}), rigtest.Context(t, 3*time.Minute)
	k := dial(t, c)
	r := bareMetal(t, c, rig.Host{}, rig.Node{})
	q := askedFor(t, c, r.Target)
	r.Request = &q
	forget(t, c, "fenced")
	forget(t, c, "fenced-management")
	require.NoError(t, c.ApplyConfig(ctx, "kubernetes/observe.yaml")) // it may list requests, and get none
	var before look.Look
	require.Eventually(t, func() bool { // the API server learns of rights a moment later
		before = k.Look(ctx, r, [][]byte{})
		return before.Seen.Node.Exists == remediate.Yes && !before.RequestRead
	}, time.Minute, 100*time.Millisecond)
	require.ErrorContains(t, before.Err, "read FencedRemediation")
	assert.Equal(t, remediate.APIForbidden, before.Seen.API)

	r.Isolated = time.Now()
	after := k.Look(ctx, r, [][]byte{})
	require.ErrorContains(t, after.Err, "read FencedRemediation")
	assert.Equal(t, remediate.APIReachable, after.Seen.API)
	assert.Equal(t, remediate.CannotTell, after.Seen.Contested, "nothing destructive")
	assert.False(t, after.RequestRead)
}

// What medik8s has given up on, another remediator may repair. // I22
func TestRequestThatIsGivenUpIsContested(t *testing.T) {
	c, ctx := okd(t), rigtest.Context(t, 3*time.Minute)
	require.NoError(t, c.InstallCRDs(ctx, rig.Fenced))
	k := dial(t, c)
	r := bareMetal(t, c, rig.Host{}, rig.Node{})
	q := askedFor(t, c, r.Target)
	r.Request = &q
	require.Equal(t, remediate.No, lookAt(t, k, r).Seen.Contested)
	at := time.Now().UTC().Format(time.RFC3339)
	require.NoError(t, c.Annotate(ctx, client.RequestGVR, q.Name, "remediation.medik8s.io/nhc-timed-out", &at))
	s := lookAt(t, k, r).Seen
	assert.Equal(t, remediate.Yes, s.Contested)
	assert.Contains(t, s.Contender, "has given up on FencedRemediation")
}

// A stale annotation is removed only if nobody can have begun on it. // I22
func TestStaleAnnotationIsCleared(t *testing.T) {
	c, ctx := okd(t), rigtest.Context(t, 3*time.Minute)
	k := dial(t, c)
	const key, mark = "host.metal3.io/external-remediation", "remediation.metal3.io/powered-off-for-remediation"
	r, empty := bareMetal(t, c, rig.Host{}, rig.Node{}), ""
	asked := func() bool {
		u, err := k.servers.Machine(ctx, r.Target)
		require.NoError(t, err)
		_, is := u.GetAnnotations()[key]
		return is
	}
	annotate := func(key string, value *string) {
		require.NoError(t, c.Annotate(ctx, rig.MachineResource, r.Target.Machine, key, value))
	}
	annotate(key, &empty)
	annotate(mark, &empty)
	clears := func(of remediate.Target) bool {
		removed, err := k.Requests().ClearStale(ctx, of)
		require.NoError(t, err)
		return removed
	}
	_, err := k.Requests().ClearStale(ctx, r.Target)
	require.ErrorContains(t, err, mark)
	assert.True(t, asked())
	annotate(mark, nil)
	replaced := r.Target
	replaced.MachineUID = "another"
	assert.False(t, clears(replaced))
	assert.True(t, asked(), "of another Machine")
	assert.True(t, clears(r.Target))
	assert.False(t, asked())
}

// The API of Metal3's provider (CAPM3) takes only the phases of that provider. A Metal3Remediation is told everything all
// the same, with the rights that the product ships, and what it was told is read back: one that was answered is not
// carried out again. // I4
func TestMetal3RemediationIsTold(t *testing.T) {
	c, ctx := okd(t), rigtest.Context(t, 3*time.Minute)
	path, err := c.Kubeconfig(rig.FencedUser)
	require.NoError(t, err)
	k, err := New(Config{Config: view.Config{Name: "rig", Kubeconfig: path, FreshEvery: time.Second, StoreID: "s", Metal3Remediations: true}}, zap.NewNop())
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
		u, err := k.servers.Manage.API().Dynamic.Resource(own).Namespace(q.Namespace).Get(ctx, q.Name, metav1.GetOptions{})
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
		seen := lookAt(t, k, r).Request
		require.NotNil(t, seen)
		assert.Equal(t, told.want, seen.Power.Phase)
		assert.Equal(t, told.want == request.Succeeded || told.want == request.Failed, seen.Power.Answered())
		assert.Equal(t, "r1", seen.Power.HeldFor)
	}

	// A version of the API that takes something else: the mark is written all the same.
	never := request.Status{Phase: request.Failed, Started: time.Date(12000, 1, 1, 0, 0, 0, 0, time.UTC)}
	err = k.Requests().Report(ctx, q, never)
	require.True(t, apierrors.IsInvalid(err), "%v", err)
	assert.Equal(t, request.Failed, lookAt(t, k, r).Request.Power.Phase)
}
