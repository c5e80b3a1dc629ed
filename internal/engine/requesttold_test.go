package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
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
	"github.com/fenced/fenced/internal/state"
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
		e := running(t, w, store, responding(w))
		time.Sleep(5 * time.Minute)
		untouched(t, w, e)
		assert.True(t, slices.ContainsFunc(refusedNow(e), func(r admit.Refused) bool {
			return r.Gate.Reason == reason.RequestNotHeld &&
				strings.HasPrefix(r.Gate.Value, "cannot set the finalizer fenced.io/power on FencedRemediation ns/m-1, so no run starts: ") &&
				strings.HasSuffix(r.Gate.Value, "; apply rbac.yaml")
		}), "status lists it: %+v", refusedNow(e))
		w.Do(func(s *fake.State) { s.FinalizerFails = nil })
		time.Sleep(6 * time.Minute)
		assert.Equal(t, remediate.Done, only(t, e).Step)
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
		scene(t, string(code), func(t *testing.T, w *world, store *failingStore) {
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
		e, events, _ := start(t, w, store, responding(w))
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
		e, events, _ := start(t, w, store, func(o *engine.Options) { o.Clusters[0].Requests = w.Requests() })
		until(t, e, remediate.Reprovisioned)
		assert.Nil(t, only(t, e).Request)
		told := eventsOf(t, events, func(ev event.Event) bool {
			return ev.Reason == reason.NoHost && ev.Check == "FencedRemediation.fenced.io ns/m-1"
		})
		assert.NotEmpty(t, told)
	})
}

// watchedPower calls a function before each Off.
type watchedPower struct {
	bmc.Power
	beforeOff func()
}

func (p watchedPower) Send(ctx context.Context, c bmc.Command) (bmc.Receipt, error) {
	if c == bmc.CommandOff {
		p.beforeOff()
	}
	return p.Power.Send(ctx, c)
}

// countedRequests counts the writes to the status of requests.
type countedRequests struct {
	engine.Requests
	writes *atomic.Int64
}

func (r countedRequests) Report(ctx context.Context, q remediate.Request, s request.Status) error {
	r.writes.Add(1)
	return r.Requests.Report(ctx, q, s)
}

// leisurelyStore takes its time for each write: what else happens at the start of a run is over when that is saved.
type leisurelyStore struct{ state.Store }

func (s leisurelyStore) Put(ctx context.Context, r state.Record) (uint64, error) {
	time.Sleep(700 * time.Millisecond)
	return s.Store.Put(ctx, r)
}

// Whoever made a request may begin while it is not processed. So it is told that it is before the first Off of each
// attempt, by whatever the run was begun. // I22
func TestRequestIsToldBeforeTheOff(t *testing.T) {
	for name, change := range map[string]func(w *world, o *engine.Options){
		"its own run":      func(w *world, o *engine.Options) { responding(w)(o) },
		"a run of a check": func(w *world, o *engine.Options) { o.Clusters[0].Requests = w.Requests() },
	} {
		scene(t, name, func(t *testing.T, w *world, store *failingStore) {
			var told [][]string
			offs := &atomic.Int64{}
			w.SetBootTime(never) // at first
			e := running(t, w, store, func(o *engine.Options) {
				change(w, o)
				o.Open = func(bmc.Device) (bmc.Power, error) {
					return watchedPower{w.bmc(), func() {
						_, s := asked(w)
						told = append(told, []string{s.Phase, conditionOf(s, request.Processing), s.Run})
						offs.Add(1)
					}}, nil
				}
			})
			time.Sleep(10 * time.Second)
			ask(w, nil)
			for offs.Load() < 2 { // the second attempt has switched it off: a host that boots earlier needs no second Off
				time.Sleep(time.Second)
			}
			w.SetBootTime(time.Minute)
			time.Sleep(time.Hour)
			r := only(t, e)
			require.Equal(t, []any{remediate.Done, 2}, []any{r.Step, r.Attempt}, "%s: %s", r.Reason, r.Note)
			_, last := asked(w)
			assert.Equal(t, request.Succeeded, last.Phase)
			require.GreaterOrEqual(t, len(told), 2)
			for _, s := range told {
				assert.Equal(t, []string{request.Running, "True", r.ID}, s)
			}
		})
	}
}

// A host is not left as it is because the status cannot be written.
func TestOffDoesNotWaitForAStatusThatCannotBeWritten(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		fails := &atomic.Bool{}
		fails.Store(true)
		ask(w, nil)
		e := running(t, w, store, func(o *engine.Options) {
			responding(w)(o)
			o.Clusters[0].Requests = withoutStatus{w.Requests(), fails}
		})
		time.Sleep(10 * time.Minute)
		assert.Equal(t, remediate.Done, only(t, e).Step)
	})
}

// The status follows each step of the run, also where it cannot switch anything yet, and is not written more often
// than that needs.
func TestRequestFollowsItsRun(t *testing.T) {
	for name, waits := range map[string]bool{"switches at once": false, "waits before its Off": true} {
		scene(t, name, func(t *testing.T, w *world, store *failingStore) {
			writes := &atomic.Int64{}
			w.OnLook(func(looks int) {
				if waits && looks == 2 { // the first of the run, after that of the probe
					w.setContested(remediate.CannotTell)
				}
			})
			e := running(t, w, leisurelyStore{store}, func(o *engine.Options) {
				responding(w)(o)
				o.Clusters[0].Requests = countedRequests{w.Requests(), writes}
			})
			time.Sleep(time.Minute + 900*time.Millisecond) // the run is saved right after one of the looks that need no change
			ask(w, nil)
			var behind, most time.Duration
			began := time.Now()
			done := func() bool { runs := e.Runs("c"); return len(runs) > 0 && runs[0].Step == remediate.Done }
			for !done() {
				time.Sleep(50 * time.Millisecond)
				if time.Since(began) > 20*time.Second {
					w.setContested(remediate.No)
				}
				behind += 50 * time.Millisecond
				if runs := e.Runs("c"); len(runs) == 0 || runs[0].Version == 0 { // it is not saved yet
					behind = 0
				} else if _, told := asked(w); len(told.Conditions) > 0 && told.Conditions[0].Reason == string(runs[0].Step) {
					behind = 0
				}
				most = max(most, behind)
			}
			assert.LessOrEqual(t, most, time.Second)
			time.Sleep(5 * time.Second)
			_, told := asked(w)
			assert.Equal(t, request.Succeeded, told.Phase)
			assert.LessOrEqual(t, int(writes.Load()), len(only(t, e).Steps)+3)
		})
	}
}

// Who changes many requests all the time, or makes them anew, delays no other one: each is told in its turn, and let go. // L1, I20
func TestRequestsThatChangeAllTheTimeDelayNoOther(t *testing.T) {
	remake := func(s *fake.State, name string) {
		s.Withdraw(name)
		s.Ask(name, func(q *policy.Request) { q.Namespace, q.NodeName = "tenant", "other-100" })
	}
	for name, again := range map[string]func(s *fake.State, name string){
		"changed": func(s *fake.State, name string) { s.ChangeRequest(name, func(q *policy.Request) { q.Generation++ }) },
		"new":     remake,
	} {
		scene(t, name, func(t *testing.T, w *world, store *failingStore) {
			w.addOther(100)
			w.Do(func(s *fake.State) { s.Host("other-100").Hang(time.Time{}); s.SetReady("other-100", "Unknown") })
			each := func(f func(s *fake.State, name string)) {
				w.Do(func(s *fake.State) {
					for i := range 200 {
						f(s, fmt.Sprint("x-", i))
					}
				})
			}
			each(remake)
			time.Sleep(time.Second)
			ask(w, nil)
			e := running(t, w, store, responding(w))
			until(t, e, remediate.PowerOn)
			for range 60 {
				time.Sleep(500 * time.Millisecond)
				each(again)
			}
			require.Equal(t, remediate.Done, only(t, e).Step)
			q, told := asked(w)
			assert.Equal(t, request.Succeeded, told.Phase)
			assert.False(t, q.Power.HasFinalizer)
		})
	}
}
