package engine_test

import (
	"context"
	"reflect"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/cluster"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/state/statetest"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/fake"
	"github.com/fenced/fenced/test/must"
)

// flying counts the runs that hold a place, and those whose host may be off. A run that is not stored yet counts in
// neither: the store may still refuse it the last slot, because another cluster took it at the same moment.
func flying(runs []remediate.Run) (flying, off int) {
	for _, r := range runs {
		if cluster.IsUnsaved(r) || !r.Open() || r.Step == remediate.Held || r.Step == remediate.RestoreNode {
			continue
		}
		flying++
		if r.Step != remediate.AwaitNode {
			off++
		}
	}
	return flying, off
}

// atOnce counts the runs of two clusters at one moment: while those of b are looked at,
// none of a may begin or end.
func atOnce(e *engine.Engine) (inA, offA, inB int) {
	for {
		before := e.Runs("a")
		inB, _ = flying(e.Runs("b"))
		if inA, offA = flying(before); reflect.DeepEqual(before, e.Runs("a")) {
			return inA, offA, inB
		}
	}
}

// disturbed watches an engine second by second, and restarts it every so often,
// until the fleets are well.
func disturbed(t *testing.T, all fleets, store state.Store, every time.Duration, change func(*engine.Options), each func(e *engine.Engine)) *engine.Engine {
	t.Helper()
	e, _, stop := all.guard(t, store, change)
	begun := time.Now()
	for age := time.Duration(0); ; age += time.Second {
		time.Sleep(time.Second)
		each(e)
		silent := 0
		for _, f := range all {
			silent += f.NotReady()
		}
		if n, _ := flying(e.Runs("")); silent == 0 && n == 0 {
			time.Sleep(2 * time.Second) // for the last slot to be freed
			stop()
			return e
		}
		require.Less(t, time.Since(begun), 12*time.Hour, "%d Nodes never came back", silent)
		if every > 0 && age >= every {
			age = 0
			stop()
			e, _, stop = all.guard(t, store, change)
		}
	}
}

// However many Nodes fail at once, and however often the daemon restarts meanwhile, no
// limit is exceeded, and all hosts come back. // I11, I12
func TestLimitsHoldForManyAtOnce(t *testing.T) {
	for _, every := range []time.Duration{0, 7 * time.Second, 40 * time.Second} {
		scene(t, every.String(), func(t *testing.T, _ *world, store *failingStore) {
			a, b := newFleet("a", 8, "x", "y"), newFleet("b", 5, "x")
			a.fail(12)
			b.fail(4)
			change := func(o *engine.Options) { o.Guards.MaxInFlight, o.Guards.MaxInFlightTotal = 3, 4 }
			together := 0
			disturbed(t, fleets{a, b}, store, every, change, func(e *engine.Engine) {
				inA, offA, inB := atOnce(e)
				assert.LessOrEqual(t, inA, 3, "in the cluster")
				assert.LessOrEqual(t, inA+inB, 4, "over all clusters")
				assert.LessOrEqual(t, offA, 2, "in two zones")
				together = max(together, inA+inB)
			})
			assert.LessOrEqual(t, a.MostOff("x"), 1, "in the zone")
			assert.LessOrEqual(t, a.MostOff("y"), 1, "in the zone")
			assert.Equal(t, 4, together, "the limit is reached")
			assert.Empty(t, must.Do(state.LoadSlots(t.Context(), store))(t), "all are free again")
		})
	}
}

// A host whose Node was created again without its labels still counts in its zone, even if
// the daemon has not seen the old Node. // I11
func TestNodeWithoutLabelsIsStillInItsZone(t *testing.T) {
	for _, every := range []time.Duration{0, 20 * time.Second} {
		scene(t, every.String(), func(t *testing.T, _ *world, store *failingStore) {
			f := newFleet("a", 8, "x")
			f.fail(3)
			made := 0
			disturbed(t, fleets{f}, store, every, func(*engine.Options) {}, func(*engine.Engine) {
				f.Do(func(s *fake.State) {
					for _, h := range s.Hosts {
						if s.Nodes[h.Name] == nil {
							s.PutFromGit(h.Name)
							made++
						}
					}
				})
			})
			assert.Equal(t, 3, made)
			assert.Equal(t, 1, f.MostOff("x"))
		})
	}
}

// Control-plane hosts are fenced one after the other, and only if etcd keeps its
// quorum. // I12
func TestControlPlaneHostsAreFencedOneByOne(t *testing.T) {
	bubble(t, func(t *testing.T, _ *world, store *failingStore) {
		f := newFleet("a", 3, "")
		for i := range 5 {
			name := f.add("a-cp", "")
			f.Do(func(s *fake.State) { s.MakeControlPlane(name) })
			if i < 2 {
				f.Handle(name).Hang()
			}
		}
		disturbed(t, fleets{f}, store, 25*time.Second, nil, func(e *engine.Engine) {
			open := 0
			for _, r := range e.Runs("a") {
				if r.Open() {
					open++
				}
			}
			assert.LessOrEqual(t, open, 1)
		})
		assert.Equal(t, 1, f.MostOff("all"))
	})
}

// The place in the zone is free as soon as the host reads On, that in the cluster at
// registration.
func TestZoneIsFreeAtOn(t *testing.T) {
	bubble(t, func(t *testing.T, _ *world, store *failingStore) {
		f := newFleet("a", 4, "x")
		f.fail(3)
		waiting := 0
		disturbed(t, fleets{f}, store, 0, nil, func(e *engine.Engine) {
			in, off := flying(e.Runs("a"))
			waiting = max(waiting, in)
			assert.LessOrEqual(t, off, 1)
		})
		assert.Greater(t, waiting, 1, "the next was begun while the one before was booting")
	})
}

// The rate of starts is computed from the runs on record: a restart allows no extra
// start. // I11
func TestStartsKeepToTheirRate(t *testing.T) {
	for _, every := range []time.Duration{0, 30 * time.Second} {
		bubble(t, func(t *testing.T, _ *world, store *failingStore) {
			f := newFleet("a", 10, "")
			f.fail(9)
			refused := false
			e := disturbed(t, fleets{f}, store, every, func(o *engine.Options) { o.Guards.MaxInFlight, o.Guards.StartsPerHour = 2, 6 }, func(e *engine.Engine) {
				x, err := e.Explain(t.Context(), "a", "a-008")
				if err != nil { // it is deleted
					return
				}
				for _, g := range x.Gates {
					if g.Reason == reason.StartRate {
						refused = true
						assert.True(t, g.Until.After(time.Now()))
					}
				}
			})
			assert.True(t, refused, "explain says so")
			var starts []time.Time
			for _, r := range e.Runs("a") {
				starts = append(starts, r.Started)
			}
			slices.SortFunc(starts, time.Time.Compare)
			require.GreaterOrEqual(t, len(starts), 9)
			for i := range starts {
				for j := i; j < len(starts); j++ {
					assert.LessOrEqual(t, float64(j-i+1), 2+6*starts[j].Sub(starts[i]).Hours()+1e-6)
				}
			}
			assert.Less(t, starts[len(starts)-1].Sub(starts[0]), 80*time.Minute, "and no slower than it may be")
		})
	}
}

// A run that a person started a moment ago counts before the next run starts: the limit of
// the check is evaluated again then.
func TestLimitOfTheCheckIsEvaluatedAgainAtTheStart(t *testing.T) {
	bubble(t, func(t *testing.T, _ *world, store *failingStore) {
		f := newFleet("a", 5, "")
		f.fail(1)
		var running atomic.Pointer[engine.Engine]
		var meddled atomic.Bool
		meddles := onDecision(func(node string) {
			e := running.Load()
			if node != "a-000" || meddled.Load() || e == nil || f.Handle(node).Reads() == 0 {
				return
			}
			meddled.Store(true) // in the middle of the decision about a-000, whose probe is done
			_, err := e.Fence(t.Context(), wire.Order{Cluster: "a", Node: "a-001", Actor: "ada", Reason: "smoke"})
			assert.NoError(t, err)
		})
		one := intstr.FromInt32(1)
		e, events, _ := fleets{f}.guard(t, store, func(o *engine.Options) { meddles(o); o.Clusters[0].FileChecks[0].MaxUnhealthy = &one })
		running.Store(e)
		time.Sleep(15 * time.Second)
		require.True(t, meddled.Load())
		for _, r := range e.Runs("a") {
			assert.Equal(t, "a-001", r.Target.Node, "%s", r.Trigger)
		}
		assert.Contains(t, refusals(t, events), string(reason.ShortCircuit))
	})
}

// A host that always returns slightly too late is fenced again and again, and each run
// ends while it waits for its second attempt. The daily limit counts these runs, and the
// host is quarantined. // I15
func TestRunsThatEndBeforeTheirNextAttemptCount(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e := running(t, w, store, func(o *engine.Options) {
			o.Run.ReadyTimeout = 15 * time.Second // the kubelet needs 20 s
			o.Guards.MaxFencesPerDay, o.Guards.MinPowerInterval = 3, 3*time.Minute
		})
		for end := time.Now().Add(4 * time.Hour); time.Now().Before(end); {
			time.Sleep(10 * time.Minute)
			if w.On() && w.Ready() {
				w.Hang()
			}
		}
		assert.Equal(t, 3, w.Count(bmc.CommandOff), "power cycles within a day")
		assert.NotEmpty(t, e.Holds("c"), "quarantine")
	})
}

func slotsOf(t *testing.T, store state.Store) (runs []string) {
	t.Helper()
	list := must.Do(state.LoadSlots(t.Context(), store))(t)
	for _, s := range list {
		runs = append(runs, s.Run)
	}
	return runs
}

// slow is the world where labels come back a while after the Node.
type slow struct {
	engine.Kube
	since atomic.Int64 // when it was first tried, in Unix nanoseconds; zero: not yet
}

func (s *slow) Restore(ctx context.Context, r remediate.Run, backups [][]byte) ([]string, error) {
	s.since.CompareAndSwap(0, time.Now().UnixNano())
	if time.Since(time.Unix(0, s.since.Load())) < 20*time.Second {
		return nil, fake.ErrAPI
	}
	return s.Kube.Restore(ctx, r, backups)
}

// A run has a slot from its start until its Node has registered. // I11
func TestSlotIsHeldUntilRegistration(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e := running(t, w, store, func(o *engine.Options) { o.Clusters[0].Kube = &slow{Kube: w} })
		var held, free int
		var registered time.Time
		for range 5 * 60 {
			time.Sleep(time.Second)
			if len(e.Runs("c")) == 0 {
				require.Empty(t, slotsOf(t, store))
				continue
			}
			switch r, slots := only(t, e), slotsOf(t, store); r.Step {
			case remediate.PowerOff, remediate.DeleteNode, remediate.PowerOn, remediate.AwaitNode:
				held++
				assert.Equal(t, []string{r.ID}, slots, "in %s", r.Step)
			case remediate.RestoreNode:
				if registered.IsZero() {
					registered = time.Now()
				}
				if time.Since(registered) > 2*time.Second {
					free++
					assert.Empty(t, slots)
				}
			case remediate.Done:
				assert.Empty(t, slots)
			}
		}
		assert.Positive(t, held)
		assert.Positive(t, free)
	})
}

// A Held run does not keep a slot from other runs. // I11
func TestHeldRunHasNoSlot(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.SetFault(fake.IgnoresOff)
		e := running(t, w, store, func(o *engine.Options) { o.Guards.MaxInFlight, o.Guards.MaxInFlightTotal = 1, 1 })
		time.Sleep(70 * time.Second)
		require.Equal(t, remediate.PowerOff, only(t, e).Step)
		require.Len(t, slotsOf(t, store), 1)
		time.Sleep(2 * time.Minute)
		stands(t, e, remediate.Held, "PowerOffFailed")
		assert.Zero(t, w.Isolations())
		gate(t, e, reason.UnderRemediation)
		assert.Empty(t, slotsOf(t, store))
	})
}

// At the start, slots left over from a crash are freed, a run that lost its slot gets one
// again, even above the limit, and slots of clusters that other instances own stay. // I11
func TestSlotsAreCorrectedAtTheStart(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		limit := func(o *engine.Options) { o.Guards.MaxInFlightTotal = 1 }
		e, _, stop := start(t, w, store, limit)
		time.Sleep(70 * time.Second)
		stop()
		id := only(t, e).ID
		require.NoError(t, statetest.FreeSlot(t.Context(), store, id))
		for cluster, run := range map[string]string{"c": "crashed-before-it-was-saved", "other": "r9"} {
			must.Do(statetest.TakeSlot(t.Context(), store, 9, state.Slot{Cluster: cluster, Run: run}))(t)
		}
		running(t, w, store, limit)
		time.Sleep(2 * time.Second)
		assert.ElementsMatch(t, []string{id, "r9"}, slotsOf(t, store))
	})
}

// A cluster that left the configuration before it had freed the slot of its last run takes no place from the others for ever. What is not known
// to have ended keeps its slot: it may be another instance's. // I11
func TestSlotOfAClusterThatIsGoneIsFreed(t *testing.T) {
	bubble(t, func(t *testing.T, _ *world, store *failingStore) {
		must.Do(state.SaveRun(t.Context(), store, remediate.Run{ID: "ended", Step: remediate.Done, Target: remediate.Target{Cluster: "gone", Node: "n"}, Started: time.Now(), Ended: time.Now()}))(t)
		for _, run := range []string{"ended", "theirs"} {
			must.Do(statetest.TakeSlot(t.Context(), store, 9, state.Slot{Cluster: "gone", Run: run}))(t)
		}
		f := newFleet("a", 4, "")
		f.fail(1)
		e, _, _ := fleets{f}.guard(t, store, func(o *engine.Options) { o.Guards.MaxInFlightTotal = 2 })
		time.Sleep(10 * time.Minute)
		assert.Len(t, e.Runs("a"), 1)
		assert.Equal(t, []string{"theirs"}, slotsOf(t, store))
	})
}

// Another instance may take the last slot after the gate was evaluated: the store decides. The audit log has no start of a run that then does not
// begin: nothing would ever end it there. // I11, I24
func TestLastSlotIsTakenInTheStore(t *testing.T) {
	bubble(t, func(t *testing.T, _ *world, store *failingStore) {
		f := newFleet("a", 4, "")
		f.fail(1)
		var meddled atomic.Bool
		meddles := onDecision(func(node string) {
			if !meddled.Load() && f.Handle(node).Reads() > 0 {
				meddled.Store(true) // the probe is done, the gate is asked
				_, err := statetest.TakeSlot(t.Context(), store, 1, state.Slot{Cluster: "elsewhere", Run: "theirs"})
				assert.NoError(t, err)
			}
		})
		var starts atomic.Int64
		e, events, _ := fleets{f}.guard(t, store, func(o *engine.Options) {
			meddles(o)
			o.Guards.MaxInFlightTotal = 1
			o.Record = func(ev event.Event) error {
				if ev.Type == event.Started {
					starts.Add(1)
				}
				return nil
			}
		})
		time.Sleep(time.Minute)
		require.True(t, meddled.Load())
		require.Empty(t, e.Runs("a"))
		require.Zero(t, starts.Load())
		require.Contains(t, refusals(t, events), string(reason.TotalInFlight))
		x := must.Do(e.Explain(t.Context(), "a", "a-000"))(t)
		require.True(t, refusing(x.Gates, reason.TotalInFlight), "explain counts the others', too: %+v", x.Gates)

		out := accepted(t)(e.Fence(t.Context(), wire.Order{Cluster: "a", Node: "a-001", Actor: "ada", Reason: "smoke"})) // a person does not wait for a slot
		assert.ElementsMatch(t, []string{"theirs", out.Run}, slotsOf(t, store), "but the run has one")
		time.Sleep(5 * time.Minute)
		require.Len(t, e.Runs("a"), 1)

		require.NoError(t, statetest.FreeSlot(t.Context(), store, "theirs"))
		time.Sleep(5 * time.Minute)
		assert.Len(t, e.Runs("a"), 2)
		assert.Zero(t, f.NotReady())
	})
}

func refusing(gates []reason.Gate, code reason.Code) bool {
	for _, g := range gates {
		if g.Reason == code {
			return true
		}
	}
	return false
}
