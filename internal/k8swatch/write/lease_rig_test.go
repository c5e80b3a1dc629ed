package write

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenced/fenced/internal/k8swatch/k8stest"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/request"
	"github.com/fenced/fenced/test/must"
	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/rig/rigtest"
)

func ownLeaseOf(t *testing.T, ctx context.Context, c *rig.ControlPlane) *coordinationv1.Lease {
	t.Helper()
	return must.Do(c.Client().CoordinationV1().Leases(OwnLeaseNamespace).Get(ctx, OwnLease, metav1.GetOptions{}))(t)
}

// aged lets a process believe that it has watched the Lease stand still for so long.
func aged(k *Announcer, by time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.since = k.since.Add(-by)
}

func announces(t *testing.T, ctx context.Context, k *Announcer, a Announcement) string {
	t.Helper()
	binds, foreign, err := k.Announce(ctx, a)
	require.NoError(t, err)
	require.Equal(t, foreign == "", binds > 0, "only a Lease that is ours binds others")
	return foreign
}

// unannounced is a control plane in which nobody fences.
func unannounced(t *testing.T, ctx context.Context) *rig.ControlPlane {
	t.Helper()
	c := rigtest.Shared(t)
	err := c.Client().CoordinationV1().Leases(OwnLeaseNamespace).Delete(ctx, OwnLease, metav1.DeleteOptions{})
	require.True(t, err == nil || apierrors.IsNotFound(err), err)
	return c
}

// One Lease, with the rights that the product ships: who may take it, who may not, and
// when.
func TestOneLeaseSaysWhoFences(t *testing.T) {
	ctx := rigtest.Context(t, 3*time.Minute)
	c := unannounced(t, ctx)
	mine, theirs := announcerAt(t, c), announcerAt(t, c)
	a, other := Announcement{"a", "store-1", 1}, Announcement{"z", "store-2", 7}

	assert.Empty(t, must.Do(mine.Holder(ctx, a))(t), "there is none yet")
	binds, foreign, err := mine.Announce(ctx, a)
	require.NoError(t, err)
	require.Empty(t, foreign)
	first := ownLeaseOf(t, ctx, c)
	assert.Equal(t, "a", *first.Spec.HolderIdentity)
	assert.Equal(t, int32(15), *first.Spec.LeaseDurationSeconds)
	assert.Equal(t, 15*time.Second, binds, "as the Lease says")
	assert.Equal(t, "store-1", first.Annotations["fenced.io/store-id"])
	assert.Equal(t, "1", first.Annotations["fenced.io/epoch"])
	require.Empty(t, announces(t, ctx, mine, a))
	renewed := ownLeaseOf(t, ctx, c)
	assert.True(t, renewed.Spec.RenewTime.After(first.Spec.RenewTime.Time))
	assert.Equal(t, first.Spec.AcquireTime, renewed.Spec.AcquireTime)

	// Another store's instance writes nothing, however old the holder's clock says it is.
	foreign = announces(t, ctx, theirs, other)
	assert.Contains(t, foreign, `"a"`)
	host := must.Do(os.Hostname())(t)
	assert.Equal(t, fmt.Sprintf("fenced instance %q on host %q, with a store of its own, holds the Lease kube-system/fenced since %s", "a", host, first.Spec.AcquireTime.UTC().Format(time.RFC3339)), foreign)
	assert.Equal(t, foreign, must.Do(theirs.Holder(ctx, other))(t), "who only reads the Lease is told the same")
	assert.Empty(t, must.Do(mine.Holder(ctx, a))(t))
	assert.Equal(t, renewed.ResourceVersion, ownLeaseOf(t, ctx, c).ResourceVersion)
	old := ownLeaseOf(t, ctx, c)
	old.Spec.RenewTime = &metav1.MicroTime{Time: time.Now().Add(-time.Hour)}
	must.Do(c.Client().CoordinationV1().Leases(OwnLeaseNamespace).Update(ctx, old, metav1.UpdateOptions{}))(t)
	assert.NotEmpty(t, announces(t, ctx, theirs, other), "it has moved")

	// A holder that goes on renewing is never pushed out; one that stands still is.
	aged(theirs, 10*time.Second)
	assert.NotEmpty(t, announces(t, ctx, theirs, other))
	require.Empty(t, announces(t, ctx, mine, a))
	aged(theirs, time.Minute)
	assert.NotEmpty(t, announces(t, ctx, theirs, other), "it was renewed meanwhile")
	aged(theirs, 15*time.Second)
	assert.Empty(t, announces(t, ctx, theirs, other))
	taken := ownLeaseOf(t, ctx, c)
	assert.Equal(t, "z", *taken.Spec.HolderIdentity)
	assert.Equal(t, int32(2), *taken.Spec.LeaseTransitions)
	assert.Contains(t, announces(t, ctx, mine, a), `"z"`, "the old holder sees that it is no more")
}

// Instances of one store need no wait: the higher epoch has it.
func TestLeaseGoesToTheHigherEpoch(t *testing.T) {
	ctx := rigtest.Context(t, 3*time.Minute)
	c := unannounced(t, ctx)
	one, two := announcerAt(t, c), announcerAt(t, c)
	require.Empty(t, announces(t, ctx, one, Announcement{"a", "store", 3}))
	require.Empty(t, announces(t, ctx, two, Announcement{"b", "store", 4}))
	assert.Contains(t, announces(t, ctx, one, Announcement{"a", "store", 3}), "owns the cluster now")
	assert.Equal(t, "b", *ownLeaseOf(t, ctx, c).Spec.HolderIdentity)
	require.Empty(t, announces(t, ctx, one, Announcement{"a", "store", 5}))
}

// A daemon that was started again goes on at once. A copy of it, on a host that was
// cloned with its name and state, is another one as soon as both are there.
func TestLeaseOfTheSameName(t *testing.T) {
	ctx := rigtest.Context(t, 3*time.Minute)
	c := unannounced(t, ctx)
	a := Announcement{"a", "store", 1}
	before, after := announcerAt(t, c), announcerAt(t, c)
	require.Empty(t, announces(t, ctx, before, a))
	require.Empty(t, announces(t, ctx, after, a))
	assert.Contains(t, announces(t, ctx, before, a), "a copy of our store")
	assert.Empty(t, announces(t, ctx, after, a))
	assert.NotEmpty(t, announces(t, ctx, before, a))
	assert.NotEmpty(t, announces(t, ctx, announcerAt(t, c), Announcement{"b", "store", 1}), "another name in the same epoch: a copy, too")
}

// A copy of the host that lives is not told from the host before its last boot: the
// Lease is watched first, and then either stood still or moved.
func TestLeaseOfTheSameNameInAnotherBoot(t *testing.T) {
	ctx := rigtest.Context(t, 3*time.Minute)
	c := unannounced(t, ctx)
	a := Announcement{"a", "store", 1}
	before, after := announcerAt(t, c), announcerAt(t, c)
	before.process = processOf(bootTime().Add(-time.Hour), "before")
	require.Empty(t, announces(t, ctx, before, a))
	_, foreign, err := after.Announce(ctx, a)
	require.ErrorContains(t, err, "another boot of this host")
	require.Empty(t, foreign)
	require.Empty(t, announces(t, ctx, before, a), "it lives")
	assert.Contains(t, announces(t, ctx, after, a), "a copy of our store")
	require.Empty(t, announces(t, ctx, before, a), "and goes on")

	rebooted := announcerAt(t, c)
	_, _, err = rebooted.Announce(ctx, a)
	require.Error(t, err)
	aged(rebooted, ownLeaseDuration)
	require.Empty(t, announces(t, ctx, rebooted, a), "nobody renewed it")
}

func TestSameBoot(t *testing.T) {
	boot := time.Unix(1_800_000_000, 0)
	a := processOf(boot, "a")
	assert.True(t, sameBoot(a, processOf(boot.Add(4*time.Second), "b")))
	assert.False(t, sameBoot(a, processOf(boot.Add(6*time.Second), "b")))
	for _, other := range []string{"", "/", "b", "x/b", processOf(time.Time{}, "b")} {
		assert.False(t, sameBoot(a, other), other)
		assert.False(t, sameBoot(other, other), other)
	}
	assert.True(t, sameBoot(processOf(bootTime(), "a"), processOf(bootTime(), "b")))
}

// A Lease whose holder stepped down is free; one of nonsense is somebody's.
func TestLeaseThatIsDamaged(t *testing.T) {
	ctx := rigtest.Context(t, 3*time.Minute)
	c := unannounced(t, ctx)
	put := func(change func(*coordinationv1.Lease)) {
		l := ownLeaseOf(t, ctx, c)
		change(l)
		must.Do(c.Client().CoordinationV1().Leases(OwnLeaseNamespace).Update(ctx, l, metav1.UpdateOptions{}))(t)
	}
	k := announcerAt(t, c)
	a := Announcement{"a", "store", 2}
	require.Empty(t, announces(t, ctx, k, a))
	put(func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = nil })
	assert.Empty(t, announces(t, ctx, k, a))
	put(func(l *coordinationv1.Lease) { l.Annotations[epochAnnotation] = "-1" })
	assert.NotEmpty(t, announces(t, ctx, k, a))
	long, short := int32(1<<30), int32(1)
	put(func(l *coordinationv1.Lease) { l.Spec.LeaseDurationSeconds = &long })
	assert.NotEmpty(t, announces(t, ctx, k, a))
	aged(k, 4*time.Minute)
	assert.NotEmpty(t, announces(t, ctx, k, a))
	aged(k, time.Minute)
	assert.Empty(t, announces(t, ctx, k, a), "nobody holds it for more than five minutes without a sign")
	put(func(l *coordinationv1.Lease) { l.Spec.LeaseDurationSeconds, l.Annotations = &short, nil })
	assert.NotEmpty(t, announces(t, ctx, k, a))
	aged(k, 10*time.Second)
	assert.NotEmpty(t, announces(t, ctx, k, a), "nor for less than fifteen seconds")
}

// Without the right to it, and without the API, nobody knows who fences.
func TestLeaseThatCannotBeTaken(t *testing.T) {
	ctx := rigtest.Context(t, 3*time.Minute)
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	for kubeconfig, is := range map[string]func(error) bool{
		must.Do(rigtest.Shared(t).Kubeconfig("nobody-in-particular"))(t): apierrors.IsForbidden,
		k8stest.Kubeconfig(t, gone.URL):                                  func(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) },
	} {
		binds, foreign, err := NewAnnouncer(serversAt(t, kubeconfig).Work).Announce(ctx, Announcement{"a", "store", 1})
		assert.Zero(t, binds)
		assert.Empty(t, foreign)
		assert.True(t, is(err), "%v", err)
	}
}

// Whoever wrote the highest number of changes into a Lease does not keep fenced from taking it.
func TestLeaseWithTheHighestNumberOfChangesIsTaken(t *testing.T) {
	for was, want := range map[int32]int32{0: 1, 7: 8, math.MaxInt32: math.MaxInt32} {
		holder := "nobody"
		l := &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseTransitions: &was}}
		(&NodeLocks{holder: "fenced-1"}).holdNode(l, remediate.Run{}, time.Now())
		assert.Equal(t, want, *l.Spec.LeaseTransitions)
		l.Spec.LeaseTransitions, l.Spec.HolderIdentity = &was, nil
		(&Announcer{}).takeLease(l, Announcement{Instance: "a"})
		assert.Equal(t, want, *l.Spec.LeaseTransitions)
	}
}

// Whoever tells what fenced did must know whether it did anything: an object that has changed, also in the
// moment of the write, is left alone.
func TestHandoversSayWhetherTheyWrote(t *testing.T) {
	o := request.Object{APIVersion: "example.com/v1", Kind: "Reboot", Namespace: "ns", Name: "r", UID: "u", Mark: "store/east/r-1"}
	for name, c := range map[string]struct {
		annotations, status string
		refuses             int // the answer to a write
		wrote               []bool
	}{
		"as it was read":       {wrote: []bool{true, true, true}},
		"its remediator began": {status: `{"phase":"Running"}`, wrote: []bool{true, true, false}},
		"told before": {annotations: `,"remediation.medik8s.io/nhc-timed-out":"2026-01-01T00:00:00Z","remediation.medik8s.io/healthy-delay":"2026-01-01T00:00:00Z"`,
			wrote: []bool{false, false, true}},
		"changed in that moment": {refuses: http.StatusConflict, wrote: []bool{false, false, false}},
		"deleted in that moment": {refuses: http.StatusNotFound, wrote: []bool{false, false, false}},
	} {
		t.Run(name, func(t *testing.T) {
			h := handoversAt(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Method != http.MethodGet && c.refuses != 0 {
					k8stest.Status(w, c.refuses, map[int]string{409: "Conflict", 404: "NotFound"}[c.refuses], o.Name)
					return
				}
				w.Header().Set("Content-Type", "application/json")
				switch r.URL.Path {
				case "/apis/example.com":
					_, _ = fmt.Fprint(w, `{"kind":"APIGroup","apiVersion":"v1","name":"example.com","versions":[{"groupVersion":"example.com/v1","version":"v1"}]}`)
				case "/apis/example.com/v1":
					_, _ = fmt.Fprint(w, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"example.com/v1","resources":[{"name":"reboots","kind":"Reboot","namespaced":true}]}`)
				default:
					text := c.status
					if text == "" {
						text = "{}"
					}
					_, _ = fmt.Fprintf(w, `{"kind":"Reboot","apiVersion":"example.com/v1","status":%s,
						"metadata":{"namespace":"ns","name":"r","uid":"u","resourceVersion":"7","annotations":{"fenced.io/made-by":%q%s}}}`, text, o.Mark, c.annotations)
				}
			})
			for i, write := range []func() (bool, error){
				func() (bool, error) { return h.TimeOut(t.Context(), o) },
				func() (bool, error) { return h.Delay(t.Context(), o) },
				func() (bool, error) { return h.Delete(t.Context(), o, &policy.Request{}) },
			} {
				assert.Equal(t, c.wrote[i], must.Do(write())(t), i)
			}
		})
	}
}

// A template that does not exist limits nothing; one that cannot be read may limit everything.
func TestTemplateAttempts(t *testing.T) {
	const path = "/apis/fenced.io/v1alpha1/namespaces/ns/fencedremediationtemplates/power"
	for name, c := range map[string]struct {
		spec  string // of the template
		code  int    // the answer, if there is no template
		want  int
		fails bool
	}{
		"no retry":       {spec: `{"template":{"spec":{"retryLimit":0}}}`, want: 1},
		"two retries":    {spec: `{"template":{"spec":{"retryLimit":2}}}`, want: 3},
		"no limit":       {spec: `{"template":{"spec":{}}}`},
		"no number":      {spec: `{"template":{"spec":{"retryLimit":"2"}}}`, fails: true},
		"does not exist": {code: http.StatusNotFound},
		"is forbidden":   {code: http.StatusForbidden, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			requests := handoversAt(t, func(w http.ResponseWriter, r *http.Request) {
				switch w.Header().Set("Content-Type", "application/json"); {
				case r.URL.Path == "/apis/fenced.io":
					_, _ = fmt.Fprint(w, `{"kind":"APIGroup","apiVersion":"v1","name":"fenced.io","versions":[{"groupVersion":"fenced.io/v1alpha1","version":"v1alpha1"}]}`)
				case r.URL.Path == "/apis/fenced.io/v1alpha1":
					_, _ = fmt.Fprint(w, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"fenced.io/v1alpha1","resources":[
						{"name":"fencedremediationtemplates","kind":"FencedRemediationTemplate","namespaced":true}]}`)
				case r.URL.Path != path || c.code != 0:
					k8stest.Status(w, max(c.code, http.StatusForbidden), strings.ReplaceAll(http.StatusText(max(c.code, http.StatusForbidden)), " ", ""), "power")
				default:
					_, _ = fmt.Fprintf(w, `{"kind":"FencedRemediationTemplate","apiVersion":"fenced.io/v1alpha1","spec":%s,
						"metadata":{"namespace":"ns","name":"power","uid":"u","resourceVersion":"7"}}`, c.spec)
				}
			})
			template := policy.Template{APIVersion: policy.FencedAPI, Kind: policy.FencedRemediationKind + "Template", Namespace: "ns", Name: "power"}
			for _, check := range []policy.Check{
				{Kind: policy.NodeHealthCheckKind, APIVersion: policy.Medik8sAPI, SelectsNodes: true},
				{Kind: policy.MachineHealthCheckKind, APIVersion: policy.OpenShiftMachineAPI, Namespace: "ns"},
			} {
				got, err := requests.TemplateAttempts(t.Context(), &check, template, remediate.Target{Node: "n"})
				assert.Equal(t, c.fails, err != nil, err)
				if !c.fails {
					assert.Equal(t, c.want, got)
				}
			}
		})
	}
	none := handoversAt(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
	})
	_, err := none.TemplateAttempts(t.Context(), &policy.Check{SelectsNodes: true}, policy.Template{APIVersion: policy.FencedAPI, Kind: "FencedRemediationTemplate", Name: "power"}, remediate.Target{})
	require.Error(t, err, "nobody knows what is installed")
}
