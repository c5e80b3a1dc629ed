package k8swatch

import (
	"strings"
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
	"github.com/fenced/fenced/internal/k8swatch/write"
	"github.com/fenced/fenced/internal/manifest"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/request"
	"github.com/fenced/fenced/test/must"
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
	made := must.Do(c.Dynamic().Resource(client.RequestGVR).Namespace(rig.Namespace).Create(t.Context(), obj, metav1.CreateOptions{}))(t)
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
		return must.Do(k.servers.Work.API().Dynamic.Resource(client.RequestGVR).Namespace(q.Namespace).Get(ctx, q.Name, metav1.GetOptions{}))(t)
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
	assert.Len(t, status["conditions"], 6)

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
		foreign := must.Do(New(Config{Config: cfg}, zap.NewNop()))(t)
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
		u := must.Do(k.servers.Machine(ctx, r.Target))(t)
		_, is := u.GetAnnotations()[key]
		return is
	}
	annotate := func(key string, value *string) {
		require.NoError(t, c.Annotate(ctx, rig.MachineResource, r.Target.Machine, key, value))
	}
	annotate(key, &empty)
	annotate(mark, &empty)
	clears := func(of remediate.Target) bool {
		return must.Do(k.Requests().ClearStale(ctx, of))(t)
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
	path := must.Do(c.Kubeconfig(rig.FencedUser))(t)
	k := must.Do(New(Config{Config: view.Config{Name: "rig", Kubeconfig: path, FreshEvery: time.Second, StoreID: "s", Metal3Remediations: true}}, zap.NewNop()))(t)
	r := bareMetal(t, c, rig.Host{}, rig.Node{})
	machine := must.Do(c.Dynamic().Resource(rig.MachineResource).Namespace(rig.Namespace).Get(ctx, r.Target.Machine, metav1.GetOptions{}))(t)
	made := must.Do(c.CreateRemediation(ctx, machine, "reboot"))(t)
	q := remediate.Request{Kind: client.Metal3Requests.Kind, Namespace: rig.Namespace, Name: made.GetName(), UID: string(made.GetUID())}
	r.Request = &q
	own := schema.GroupVersionResource{Group: client.Metal3Requests.Group, Version: "v1beta2", Resource: "metal3remediations"}
	live := func() *unstructured.Unstructured {
		return must.Do(k.servers.Manage.API().Dynamic.Resource(own).Namespace(q.Namespace).Get(ctx, q.Name, metav1.GetOptions{}))(t)
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
	err := k.Requests().Report(ctx, q, never)
	require.True(t, apierrors.IsInvalid(err), "%v", err)
	assert.Equal(t, request.Failed, lookAt(t, k, r).Request.Power.Phase)
}

var rebootGVR = schema.GroupVersionResource{Group: "self-node-remediation.medik8s.io", Version: "v1alpha1", Resource: "selfnoderemediations"}

// TestHandovers: a request is made once, by the rules of its API family; fenced changes and deletes it, and never an
// object that somebody else made, that was made for another cluster, that lost its mark, or whose remediator has begun
// meanwhile.
func TestHandovers(t *testing.T) {
	c := rigtest.Own(t, rig.Options{CRDs: []rig.CRDs{rig.OpenShift, rig.Metal3, rig.Medik8sRemediators}}) // it gets more rights
	ctx := rigtest.Context(t, 3*time.Minute)
	k := dial(t, c)
	h, r := NewHandovers(k), bareMetal(t, c, rig.Host{}, rig.Node{})
	from := policy.Template{APIVersion: rebootGVR.GroupVersion().String(), Kind: "SelfNodeRemediationTemplate", Namespace: rig.Namespace, Name: "t-" + r.Target.Node}
	check := &policy.Check{Kind: policy.FencePolicyKind, APIVersion: policy.FencedAPI, Name: "p-" + r.Target.Node, Strategy: policy.CreateRequests, SelectsNodes: true, Template: &from}
	missing := func(want string) {
		t.Helper()
		var why string
		require.Eventually(t, func() bool {
			var err error
			why, err = h.Missing(ctx, check, from)
			return err == nil && (want == "" && why == "" || want != "" && strings.Contains(why, want))
		}, time.Minute, 50*time.Millisecond, "last: %s", why)
	}
	unknown := from
	unknown.Kind = "NoSuchTemplate"
	why := must.Do(h.Missing(ctx, check, unknown))(t)
	assert.Contains(t, why, "the kind NoSuchTemplate.self-node-remediation.medik8s.io is not installed")
	require.NoError(t, c.ApplyConfig(ctx, "kubernetes/templates.yaml"))
	missing("there is no SelfNodeRemediationTemplate")
	make := func(spec string) {
		t.Helper()
		require.NoError(t, c.Apply(ctx, []byte("apiVersion: "+from.APIVersion+"\nkind: "+from.Kind+"\nmetadata: {name: "+from.Name+", namespace: "+rig.Namespace+"}\nspec: "+spec+"\n")))
	}
	make(`{template: {metadata: {labels: {own: "1"}}, spec: {mode: ` + strings.Repeat("x", 256<<10) + `}}}`)
	missing("have not been read: not yet")
	h = write.NewHandovers(k.servers, k.CarriesOut, func(c *policy.Check) *policy.Check { return c }) // as if they had been read
	missing("")
	_, err := h.Prepare(ctx, check, r.Target, from, true)
	require.ErrorContains(t, err, "more than 262144 bytes")
	make(`{template: {metadata: {labels: {own: "1"}}, spec: {mode: hard}}}`)
	live := func() *unstructured.Unstructured {
		return must.Do(c.Dynamic().Resource(rebootGVR).Namespace(rig.Namespace).Get(ctx, r.Target.Node, metav1.GetOptions{}))(t)
	}
	draft := must.Do(h.Prepare(ctx, check, r.Target, from, true))(t)
	o := draft.Object
	o.Mark = "store-1/east/r-1"
	system := must.Do(c.Client().CoreV1().Namespaces().Get(ctx, "kube-system", metav1.GetOptions{}))(t)
	assert.Equal(t, request.Object{On: string(system.UID), APIVersion: from.APIVersion, Kind: "SelfNodeRemediation", Namespace: rig.Namespace, Name: r.Target.Node, Template: from.Name, Mark: o.Mark}, o)
	seen := must.Do(h.Read(ctx, o))(t)
	assert.Nil(t, seen, "nothing was made yet")
	for range 2 { // the answer to the first may have been lost
		o.UID, err = draft.Create(ctx, o, check.Mark())
		require.NoError(t, err)
		assert.Equal(t, string(live().GetUID()), o.UID)
	}
	first := live()
	assert.Equal(t, map[string]string{"own": "1", "remediation.medik8s.io/isControlPlaneNode": ""}, first.GetLabels())
	assert.Equal(t, map[string]string{
		"remediation.medik8s.io/node-name": r.Target.Node, "remediation.medik8s.io/template-name": from.Name,
		"fenced.io/check": check.Mark(), "fenced.io/made-by": "store-1/east/r-1",
	}, first.GetAnnotations())
	owners := first.GetOwnerReferences()
	require.Len(t, owners, 1, "the Machine of the same namespace")
	assert.Equal(t, []string{"Machine", r.Target.Machine, r.Target.MachineUID}, []string{owners[0].Kind, owners[0].Name, string(owners[0].UID)})
	gone := r.Target
	gone.MachineUID = "another"
	_, err = h.Prepare(ctx, check, gone, from, true)
	require.ErrorContains(t, err, "was replaced")

	// Another cluster, with the same store and the same name of a Node.
	west := o
	west.UID, west.Mark = "", "store-1/west/r-2"
	_, err = draft.Create(ctx, west, check.Mark())
	require.ErrorIs(t, err, request.ErrNotMade)
	require.ErrorContains(t, err, "fenced did not make it")
	seen = must.Do(h.Read(ctx, west))(t)
	assert.Nil(t, seen, "not its object")

	wrote := func(want bool, why string) func(bool, error) {
		return func(wrote bool, err error) {
			t.Helper()
			require.NoError(t, err, why)
			require.Equal(t, want, wrote, why)
		}
	}
	before := must.Do(h.Read(ctx, o))(t)
	wrote(true, "told")(h.TimeOut(ctx, o))
	told := must.Do(h.Read(ctx, o))(t)
	assert.WithinDuration(t, time.Now(), told.TimedOut, time.Minute)
	version := live().GetResourceVersion()
	wrote(false, "told already")(h.TimeOut(ctx, o))
	assert.Equal(t, version, live().GetResourceVersion(), "once")

	u := live()
	u.Object["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Processing", "status": "True"}}}
	must.Do(c.Dynamic().Resource(rebootGVR).Namespace(rig.Namespace).UpdateStatus(ctx, u, metav1.UpdateOptions{}))(t)
	wrote(false, "it has changed")(h.Delete(ctx, o, before))
	now := must.Do(h.Read(ctx, o))(t)
	require.NotNil(t, now, "its remediator has begun since")

	version = live().GetResourceVersion()
	for name, change := range map[string]func(*request.Object){
		"another object of the name": func(o *request.Object) { o.UID = "another" },
		"of another installation":    func(o *request.Object) { o.Mark = "store-2/east/r-1" },
		"for another cluster":        func(o *request.Object) { o.Mark = "store-1/west/r-1" },
		"of another record":          func(o *request.Object) { o.Mark = "store-1/east/r-9" },
		"not known to be made":       func(o *request.Object) { o.UID = "" },
		"without a mark":             func(o *request.Object) { o.Mark = "" },
	} {
		other := o
		change(&other)
		wrote(false, name)(h.Delete(ctx, other, now))
		wrote(false, name)(h.Delay(ctx, other))
		require.Equal(t, version, live().GetResourceVersion(), name)
	}
	unmarked := live()
	marks := unmarked.GetAnnotations()
	delete(marks, manifest.RequestMadeBy)
	unmarked.SetAnnotations(marks)
	must.Do(c.Dynamic().Resource(rebootGVR).Namespace(rig.Namespace).Update(ctx, unmarked, metav1.UpdateOptions{}))(t)
	wrote(false, "without its mark")(h.Delete(ctx, o, now))
	now = must.Do(h.Read(ctx, o))(t)
	require.NotNil(t, now, "it exists without its mark")
	assert.Empty(t, now.MadeBy)
	late := o
	late.UID = ""
	now = must.Do(h.Read(ctx, late))(t)
	require.NotNil(t, now, "it may have been made, and have lost its mark since")
	wrote(false, "it may be somebody else's")(h.Delete(ctx, late, now))
	unmarked = live()
	marks[manifest.RequestMadeBy] = o.Mark
	unmarked.SetAnnotations(marks)
	must.Do(c.Dynamic().Resource(rebootGVR).Namespace(rig.Namespace).Update(ctx, unmarked, metav1.UpdateOptions{}))(t)

	wrote(true, "deleted")(h.Delete(ctx, o, now))
	now = must.Do(h.Read(ctx, o))(t)
	assert.Nil(t, now)
	wrote(false, "one that is gone is no error")(h.Delete(ctx, o, before))
	for name, change := range map[string]func(*request.Object){
		"on the management API": func(o *request.Object) { o.OnManagementAPI = true },
		"in another cluster":    func(o *request.Object) { o.On = "elsewhere" },
	} {
		strange := o
		change(&strange)
		_, err := h.Read(ctx, strange)
		require.Error(t, err, "%s: nothing is known of it there", name)
	}
	o.Kind = "NoSuchRemediation"
	_, err = h.Read(ctx, o)
	require.ErrorIs(t, err, request.ErrNotServed)
	wrote(false, "not served")(h.TimeOut(ctx, o))
	o.On = "elsewhere"
	_, err = h.Read(ctx, o)
	require.ErrorContains(t, err, "give the record up")
}
