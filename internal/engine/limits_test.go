package engine_test

import (
	"reflect"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/fake"
)

// flying counts the runs that hold a place, and those whose host may be off.
func flying(runs []remediate.Run) (flying, off int) {
	for _, r := range runs {
		if !r.Open() || r.Step == remediate.Held || r.Step == remediate.RestoreNode {
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
		t.Run(every.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, _ *world, store *failingStore) {
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
				slots, err := state.LoadSlots(t.Context(), store)
				require.NoError(t, err)
				assert.Empty(t, slots, "all are free again")
			})
		})
	}
}

// A host whose Node was created again without its labels still counts in its zone, even if
// the daemon has not seen the old Node. // I11
func TestNodeWithoutLabelsIsStillInItsZone(t *testing.T) {
	for _, every := range []time.Duration{0, 20 * time.Second} {
		t.Run(every.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, _ *world, store *failingStore) {
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
		e, events, stop := fleets{f}.guard(t, store, func(o *engine.Options) { meddles(o); o.Clusters[0].FileChecks[0].MaxUnhealthy = &one })
		running.Store(e)
		time.Sleep(15 * time.Second)
		require.True(t, meddled.Load())
		for _, r := range e.Runs("a") {
			assert.Equal(t, "a-001", r.Target.Node, "%s", r.Trigger)
		}
		assert.Contains(t, refusals(t, events), string(reason.ShortCircuit))
		stop()
	})
}
