package engine_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/fenced/fenced/internal/admit"
	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/request"
	"github.com/fenced/fenced/test/fake"
)

// slowFullDisk is an audit log that takes a while to find out that nothing can be written.
func slowFullDisk(event.Event) error {
	time.Sleep(3 * time.Second)
	return errors.New("no space left on device")
}

// Without the finalizer no run begins.
func TestRequestThatCannotBeHeldIsNotCarriedOut(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.Do(func(s *fake.State) { s.FinalizerFails = errors.New("forbidden") })
		ask(w, nil)
		e, _, stop := start(t, w, store, responding(w))
		time.Sleep(5 * time.Minute)
		assert.Empty(t, e.Runs("c"))
		assert.Empty(t, w.Commands())
		assert.True(t, slices.ContainsFunc(refusedNow(e), func(r admit.Refused) bool {
			return r.Gate.Reason == reason.RequestNotHeld &&
				strings.HasPrefix(r.Gate.Value, "cannot set the finalizer fenced.io/power on FencedRemediation ns/m-1, so no run starts: ") &&
				strings.HasSuffix(r.Gate.Value, "; apply rbac.yaml")
		}), "status lists it: %+v", refusedNow(e))
		w.Do(func(s *fake.State) { s.FinalizerFails = nil })
		time.Sleep(6 * time.Minute)
		assert.Equal(t, remediate.Done, only(t, e).Step)
		stop()
	})
}

// The refusal of a request is told once, whether the policy or a gate refuses; and that it has
// ended.
func TestRefusalOfARequestIsToldOnce(t *testing.T) {
	cases := map[reason.Code]func(*world, *engine.Options){
		reason.Budget: func(_ *world, o *engine.Options) {
			o.Clusters[0].FileBudgets = []policy.DisruptionBudget{{Name: "all", Selector: labels.Everything(), MaxUnavailable: intstr.FromInt32(0)}}
		},
		reason.Protected: func(w *world, _ *engine.Options) { w.ChangeEntry(func(h *bmc.Host) { h.Protected = true }) },
		// Those of a start take their time, and the run holds its place meanwhile.
		reason.RequestNotHeld: func(w *world, _ *engine.Options) {
			w.Do(func(s *fake.State) { s.FinalizerFails, s.FinalizerTakes = errors.New("forbidden"), 3*time.Second })
		},
		reason.AuditFailed: func(_ *world, o *engine.Options) { o.Record = slowFullDisk },
	}
	for code, refuse := range cases {
		t.Run(string(code), func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world, store *failingStore) {
				ask(w, nil)
				e, events, stop := start(t, w, store, func(o *engine.Options) { responding(w)(o); refuse(w, o) })
				time.Sleep(2 * time.Minute)
				for range 30 * 60 { // also while a start is tried
					time.Sleep(time.Second)
					_, told := asked(w)
					require.Equal(t, request.Pending, told.Phase)
				}
				listed := slices.ContainsFunc(refusedNow(e), func(r admit.Refused) bool {
					return r.Check.Kind == policy.FencedRemediationKind && r.Gate.Reason == code
				})
				assert.True(t, listed, "status lists it")
				w.Do(func(s *fake.State) { s.Withdraw("m-1") })
				time.Sleep(5 * time.Minute)
				stop()
				told := eventsOf(t, events, func(ev event.Event) bool {
					return ev.Check == "FencedRemediation.fenced.io ns/m-1" && (ev.Type == event.RefusalEnded || ev.Type == event.Refused && ev.Reason == code)
				})
				if assert.Len(t, told, 2) { // a start that found the request gone, at the end, is told by itself
					assert.Equal(t, []string{event.Refused, event.RefusalEnded}, []string{told[0].Type, told[1].Type})
				}
			})
		})
	}
}

// Too many requests are told so, once in the journal, and keep the oldest from nothing.
func TestTooManyRequestsAreTold(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		ask(w, nil)
		time.Sleep(time.Second)
		w.Do(func(s *fake.State) {
			for i := range 1000 {
				s.Ask(fmt.Sprint("x-", i), func(q *policy.Request) { q.NodeName = "n-1" })
			}
		})
		w.ChangeEntry(func(h *bmc.Host) { h.Protected = true }) // until all are told
		e, events, stop := start(t, w, store, responding(w))
		time.Sleep(90 * time.Second) // 50 in two seconds
		reasons := map[string]int{}
		w.Do(func(s *fake.State) {
			for _, told := range s.Told {
				reasons[told.Conditions[0].Reason]++
			}
		})
		assert.Equal(t, 1, reasons[string(reason.RequestLimit)], "%v", reasons)
		assert.NotZero(t, reasons[string(reason.Protected)], "%v", reasons)
		assert.Len(t, eventsOf(t, events, func(ev event.Event) bool { return ev.Reason == reason.RequestLimit }), 1)
		open, more := engine.NewLookup(e).Requests("c", time.Now())
		assert.Len(t, open, 100)
		assert.Equal(t, 901, more)
		assert.Equal(t, []string{"m-1", request.Pending, string(reason.Protected)}, []string{open[0].Ref.Name, open[0].Status.Phase, open[0].Status.Conditions[0].Reason}, "the oldest")
		w.ChangeEntry(func(h *bmc.Host) { h.Protected = false })
		until(t, e, remediate.Done)
		time.Sleep(90 * time.Second)
		open, more = engine.NewLookup(e).Requests("c", time.Now())
		assert.Empty(t, open, "nothing is left to do")
		assert.Zero(t, more)
		stop()
	})
}

// A request that a gate refuses does not keep a check from its own run of another kind: the host has
// no BMC, and the check replaces the Machine.
func TestRefusedRequestLeavesTheTargetToTheCheck(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.ownMachines()
		w.changeCheck(func(c *policy.Check) { c.Strategy = policy.DeleteMachines })
		w.DropEntry()
		ask(w, nil)
		e, events, stop := start(t, w, store, func(o *engine.Options) { o.Clusters[0].Requests = w.Requests() })
		until(t, e, remediate.Reprovisioned)
		assert.Nil(t, only(t, e).Request)
		told := eventsOf(t, events, func(ev event.Event) bool {
			return ev.Reason == reason.NoHost && ev.Check == "FencedRemediation.fenced.io ns/m-1"
		})
		assert.NotEmpty(t, told)
		stop()
	})
}
