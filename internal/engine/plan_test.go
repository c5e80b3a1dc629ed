package engine_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/must"
)

func TestPlanNamesWhatLimits(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.setUnsynced(true)
		w.setOthersDown(true)
		w.setContested(remediate.Yes) // only a probe shows the rival
		e := running(t, w, store, func(o *engine.Options) { o.Clusters[0].Mode = guard.ModeObserve })
		_, err := e.Plan(t.Context(), "c")
		refusedFor(t, err, reason.NotSynced) // nothing was seen yet
		w.setUnsynced(false)
		time.Sleep(2 * time.Minute)
		p := must.Do(e.Plan(t.Context(), "c"))(t)
		require.Len(t, p.Items, 2)
		assert.Equal(t, []string{"n-1", "other-0"}, []string{p.Items[0].Node, p.Items[1].Node}, "in the order of the report")
		assert.Equal(t, reason.Observing, p.Items[0].Gate.Reason)
		assert.Zero(t, w.Reads(), "a plan asks no BMC")
		armed := must.Do(e.Arming.Plan(t.Context(), "c"))(t)
		assert.Nil(t, armed.Items[0].Gate, "it would be fenced as soon as the cluster is armed")
		assert.Equal(t, reason.NoHost, armed.Items[1].Gate.Reason)
		must.Do(e.Arming.Arm(t.Context(), wire.Order{Cluster: "c", Actor: "ada", Reason: "go"}))(t)
		synctest.Wait()
		p = must.Do(e.Plan(t.Context(), "c"))(t)
		assert.Equal(t, reason.Contested, p.Items[0].Gate.Reason, "as the probe found")
		assert.Equal(t, reason.NoHost, p.Items[1].Gate.Reason)
	})
}

func TestCoverageOfTheLiveCluster(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		p, little := nodePolicy(), intstr.FromString("20%")
		p.MaxUnhealthy = &little
		e := running(t, w, store, withPolicy(w, p))
		time.Sleep(time.Second)
		all, err := e.Coverage("c")
		require.NoError(t, err)
		require.Len(t, all, 2)
		assert.Equal(t, policy.FencePolicyKind, all[0].Check.Kind)
		assert.Equal(t, 4, all[0].Targets)
		assert.Equal(t, policy.FoundLimitIsZero, all[0].Findings[0].Code)
		assert.Equal(t, policy.FoundNotEvaluated, all[1].Findings[0].Code)
	})
}

// An object that is missing from an incomplete view may exist. // I16
func TestUnsyncedViewIsNotEvaluated(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.SetReady("True")
		e := running(t, w, store, nil)
		time.Sleep(1500 * time.Millisecond) // no decision runs at this moment
		w.setUnsynced(true)
		w.RemoveNode()
		w.ChangeEntry(func(h *bmc.Host) { h.PinnedUUID = hostUUID })
		time.Sleep(time.Minute)
		assert.Equal(t, policy.Healthy, explained(t, e).Verdict, "as last seen")
		assert.Empty(t, w.Commands())
		w.setUnsynced(false)
		time.Sleep(5 * time.Second)
		assert.Len(t, e.Runs("c"), 1)
	})
}

// If a check has its own zone label, that label defines the zone of its targets.
func TestBreakerCountsByTheChecksOwnZoneKey(t *testing.T) {
	for _, key := range []string{"rack", ""} {
		bubble(t, func(t *testing.T, w *world, store *failingStore) {
			w.setOthersDown(true)
			p := nodePolicy()
			p.ZoneKey = key
			e := running(t, w, store, func(o *engine.Options) {
				withPolicy(w, p)(o)
				o.Guards.ZoneBreakerPercent, o.Guards.ZoneBreakerMin = 50, 2
			})
			time.Sleep(2 * time.Minute)
			if key == "" {
				assert.NotEmpty(t, e.Runs("c"))
			} else {
				assert.Empty(t, e.Runs("c"))
				assert.Equal(t, "2 of 4 of zone r1 not ready", gate(t, e, reason.ZoneBreaker).Value)
			}
		})
	}
}

// One event never causes an evaluation of all targets: only the ledger evaluates.
func TestEngineNeverEvaluatesAllTargets(t *testing.T) {
	files := must.Do(filepath.Glob("*.go"))(t)
	for _, f := range files {
		text := must.Do(os.ReadFile(f))(t)
		if !strings.HasSuffix(f, "_test.go") {
			assert.NotContains(t, string(text), "policy.Decide(", f)
		}
	}
}

// The plan of a large outage looks up only as many targets as can start soon, and none
// where the result does not depend on it.
func TestPlanOfALargeOutageLooksUpLittle(t *testing.T) {
	for mode, lookups := range map[string]int{guard.ModeEvaluate: 50, guard.ModeObserve: 0} {
		bubble(t, func(t *testing.T, w *world, store *failingStore) {
			crowd := inCrowd(w, 80)
			crowd.hangs = true // no probe comes to an end
			e := running(t, w, store, func(o *engine.Options) {
				withPolicy(w, nodePolicy())(o)
				crowd.options(o)
				o.Guards.MaxInFlight, o.Clusters[0].Mode = 100, mode
			})
			time.Sleep(2 * time.Minute)
			synctest.Wait()
			_, before := crowd.counted()
			crowd.mu.Lock()
			crowd.hangs = false
			crowd.mu.Unlock()
			assert.Len(t, must.Do(e.Plan(t.Context(), "c"))(t).Items, 81)
			_, after := crowd.counted()
			assert.Equal(t, lookups, after-before, mode)
		})
	}
}

// board is where the checks live: it keeps what it is told.
type board struct {
	mu       sync.Mutex
	alive    remediate.Answer
	refuses  bool
	denies   bool // ControllerAlive fails
	hangs    bool
	written  []policy.CheckReport
	asked    int
	verdicts []policy.CheckReport // what WriteVerdicts was told
	known    []int                // how many Machines it was told to be written, in each call
	more     int                  // how often it says that Machines are left
}

func (b *board) WriteVerdicts(_ context.Context, r policy.CheckReport, written map[string]string) (bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.verdicts = append(b.verdicts, r)
	b.known = append(b.known, len(written))
	for i := range r.Targets {
		written[r.Targets[i].MachineUID] = "True"
	}
	b.more--
	return b.more >= 0, nil
}

func (b *board) verdictCalls() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.verdicts)
}

func (b *board) ControllerAlive(context.Context, policy.CheckID) (remediate.Answer, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked++
	if b.denies {
		return b.alive, errors.New("leases are forbidden")
	}
	return b.alive, nil
}

func (b *board) WriteStatus(ctx context.Context, r policy.CheckReport) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.hangs {
		b.mu.Unlock()
		<-ctx.Done()
		b.mu.Lock()
		return ctx.Err()
	}
	b.written = append(b.written, r)
	if b.refuses {
		return errors.New("forbidden")
	}
	return nil
}

// questions is how often it was asked who is alive.
func (b *board) questions() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.asked
}

// told gives what was told so far.
func (b *board) told() []policy.CheckReport {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.written)
}

// calm is a world in which nothing is wrong and one unhealthy Node is too many.
func calm(w *world, b *board) func(*engine.Options) {
	zero := intstr.FromInt32(0)
	w.SetReady("True")
	w.changeCheck(func(c *policy.Check) { c.MaxUnhealthy, c.UID, c.Source = &zero, "check-uid", "cluster" })
	return func(o *engine.Options) { o.Clusters[0].Checks = b }
}

func TestStatusIsWrittenOnChangeOnly(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		b := &board{alive: remediate.No}
		_, events, stop := start(t, w, store, calm(w, b))
		time.Sleep(10 * time.Minute)
		assert.Len(t, b.told(), 1)
		assert.Zero(t, b.verdictCalls(), "Machines of OpenShift have no such condition")
		w.setOthersDown(true)
		time.Sleep(10 * time.Minute)
		written := b.told()
		assert.Len(t, written, 2)
		assert.Equal(t, []int{4, 3}, []int{written[1].Expected, written[1].Healthy})
		w.setOthersDown(false)
		time.Sleep(10 * time.Minute)
		stop()
		assert.Len(t, b.told(), 3)
		limit := eventsOf(t, events, func(ev event.Event) bool { return ev.Type == event.LimitClosed || ev.Type == event.LimitOpened })
		if assert.Len(t, limit, 2, "a start is no transition") {
			assert.Equal(t, []string{event.LimitClosed, event.LimitOpened}, []string{limit[0].Type, limit[1].Type})
			assert.Equal(t, "check-uid", limit[0].About.UID)
		}
	})
}

// While the controller of a check is alive only it writes the status. An instance that
// only observes writes nothing.
func TestStatusIsLeftToALiveController(t *testing.T) {
	cases := map[string]func(*board, *engine.Options){
		"alive":    func(b *board, _ *engine.Options) { b.alive = remediate.Yes },
		"unknown":  func(b *board, _ *engine.Options) { b.alive = remediate.CannotTell },
		"observer": func(_ *board, o *engine.Options) { o.Clusters[0].Mode = guard.ModeObserve },
	}
	for name, change := range cases {
		scene(t, name, func(t *testing.T, w *world, store *failingStore) {
			b := &board{alive: remediate.No}
			_, _, stop := start(t, w, store, func(o *engine.Options) { calm(w, b)(o); change(b, o) })
			w.setOthersDown(true)
			time.Sleep(5 * time.Minute)
			stop()
			written := b.told()
			assert.Empty(t, written)
			assert.LessOrEqual(t, b.questions(), 21, "one question each 15 s")
		})
	}
}

// Who may not read the Leases of the controllers is told so, once.
func TestUnreadableControllerIsReportedOnce(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		b := &board{alive: remediate.No, denies: true}
		_, events, stop := start(t, w, store, calm(w, b))
		time.Sleep(5 * time.Minute)
		stop()
		assert.Empty(t, b.told())
		failed := eventsOf(t, events, func(ev event.Event) bool { return ev.Type == event.Failed })
		if assert.Len(t, failed, 1) {
			assert.Contains(t, failed[0].Message, "machine.openshift.io/v1beta1 MachineHealthCheck")
			assert.Contains(t, failed[0].Message, "leases are forbidden")
		}
	})
}

// An API server that refuses or hangs is tried again with a back-off, and delays no
// decision.
func TestStatusWriteNeverDelaysADecision(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		b := &board{alive: remediate.No, hangs: true}
		e := running(t, w, store, func(o *engine.Options) { o.Clusters[0].Checks = b })
		w.changeCheck(func(c *policy.Check) { c.UID, c.Source = "check-uid", "cluster" })
		time.Sleep(5 * time.Minute)
		assert.Equal(t, remediate.Done, only(t, e).Step)
	})
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		b := &board{alive: remediate.No, refuses: true}
		_, events, stop := start(t, w, store, calm(w, b))
		time.Sleep(5 * time.Minute)
		stop()
		written := b.told()
		assert.Len(t, written, 5, "after 0, 10, 30, 70 and 150 s")
		failed := eventsOf(t, events, func(ev event.Event) bool { return ev.Type == event.Failed })
		assert.Len(t, failed, 1, "told once")
	})
}

// The status of a check that was handed over to fenced is written although the controller is alive. The health
// of its Machines is written on them, if need be in several calls, and compared again every five minutes, because
// two Machines may have changed places.
func TestCheckThatWasHandedOverIsTold(t *testing.T) {
	for _, more := range []int{0, 2} {
		scene(t, fmt.Sprint(1+more, " calls"), func(t *testing.T, w *world, store *failingStore) {
			b := &board{alive: remediate.Yes, more: more}
			_, _, stop := start(t, w, store, func(o *engine.Options) { calm(w, b)(o); handOver(w) })
			time.Sleep(time.Minute)
			if written := b.told(); assert.Len(t, written, 1+more, "with each call") {
				assert.Len(t, written[0].Targets, 4, "this lineage's status names the targets")
			}
			assert.Zero(t, b.questions())
			assert.Equal(t, 1+more, b.verdictCalls(), "until none is left")
			time.Sleep(6 * time.Minute)
			assert.Equal(t, 2+more, b.verdictCalls())
			stop()
			assert.Len(t, b.verdicts[0].Targets, 4)
		})
	}
}

// The view grows old just after a Node has become Unknown, and does not show that it is Ready again. Nothing says that the time of the check has
// passed for it: its Machine is not called unhealthy. // I16
func TestOldViewWritesNoVerdict(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		b, l := &board{alive: remediate.Yes}, &lateKind{kind: "Node"}
		w.SetReady("True")
		_, _, stop := start(t, w, store, func(o *engine.Options) {
			calm(w, b)(o)
			handOver(w)
			w.changeCheck(func(c *policy.Check) {
				c.Conditions = []policy.UnhealthyCondition{{Type: "Ready", Status: "Unknown", Timeout: 5 * time.Minute}}
			})
			l.Watch = o.Clusters[0].Watch
			o.Clusters[0].Watch = l
		})
		time.Sleep(10 * time.Minute)
		w.SetReady("Unknown")
		time.Sleep(10 * time.Second)
		l.setLate(true)
		w.SetReady("True")
		time.Sleep(30 * time.Minute)
		before := b.verdictCalls()
		l.setLate(false)
		w.SetReady("True")
		time.Sleep(10 * time.Minute)
		stop()
		assert.Greater(t, b.verdictCalls(), before)
		for _, r := range b.verdicts {
			for i := range r.Targets {
				assert.NotEqual(t, policy.Unhealthy, r.Targets[i].Verdict)
			}
		}
	})
}

// A check that is created again is another check: nothing was written about it yet.
func TestStatusOfARecreatedCheckIsWritten(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		b := &board{alive: remediate.No}
		change := calm(w, b)
		w.setOthersDown(true) // from the first look on
		_, _, stop := start(t, w, store, change)
		time.Sleep(time.Minute)
		w.changeCheck(func(c *policy.Check) { c.UID, c.MaxUnhealthy = "another", nil })
		time.Sleep(time.Minute)
		stop()
		written := b.told()
		assert.Equal(t, "another", written[len(written)-1].UID)
	})
}

// What this instance wrote is forgotten while another one owns the cluster, which may have
// written something else.
func TestStatusIsWrittenAnewByAnOwnerThatReturns(t *testing.T) {
	inTurn := func(t *testing.T, w *world, store *failingStore, alive remediate.Answer, change func()) *board {
		boards := map[string]*board{"a": {alive: alive}, "b": {alive: alive}}
		p := newPair(t, w, store, func(name string, o *engine.Options) { calm(w, boards[name])(o); change() })
		for _, owner := range []string{"a", "b", "a"} {
			p.give(owner)
			time.Sleep(time.Minute)
			p.take(owner)
			time.Sleep(time.Second)
		}
		p.end()
		return boards["a"]
	}
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		a := inTurn(t, w, store, remediate.No, func() {})
		assert.Len(t, a.told(), 2, "the status, although it is the same")
	})
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		a := inTurn(t, w, store, remediate.Yes, func() { handOver(w) })
		assert.Equal(t, []int{0, 0}, a.known, "nothing is known of the Machines any more")
	})
}
