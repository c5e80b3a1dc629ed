package engine_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/remediate"
)

// Runs whose Nodes do not exist any more, because they deleted them, and the limits.

// breakHost takes a host down, for good: it does not come back after a power cycle.
func (f *fleet) breakHost(name string) {
	h := f.Handle(name)
	h.SetBootTime(never)
	h.Hang()
}

// A FencePolicy for ten Nodes allows two of them to be unhealthy. Every twenty minutes one more host
// hangs and does not return after its power cycle. fenced must not go on through the whole cluster
// only because the Nodes that it has deleted itself are not there any more. // I11
func TestLimitOfACheckCountsTheNodesThatFencedDeleted(t *testing.T) {
	for _, restarts := range []bool{false, true} {
		t.Run(fmt.Sprintf("restarts=%v", restarts), func(t *testing.T) {
			bubble(t, func(t *testing.T, _ *world, store *failingStore) {
				f := newFleet("c", 5, "a", "b")
				change := func(o *engine.Options) {
					waiting(o)
					o.Clusters[0].FileChecks[0].MaxUnhealthy = new(intstr.FromInt32(2))
					o.Run.MaxAttempts = 1
				}
				_, _, stop := fleets{f}.guard(t, store, change)
				time.Sleep(time.Minute)
				for i := range 9 {
					f.breakHost(fmt.Sprintf("c-%03d", i))
					time.Sleep(20 * time.Minute)
					if restarts {
						stop()
						_, _, stop = fleets{f}.guard(t, store, change)
					}
				}
				fenced, deleted := 0, 0
				for i := range 10 {
					h := f.Handle(fmt.Sprintf("c-%03d", i))
					fenced += min(1, h.Count(bmc.CommandOff))
					deleted += min(1, h.Isolations())
				}
				assert.Equal(t, 2, fenced, "hosts that were switched off; the limit of the check is 2")
				assert.Equal(t, 2, deleted, "of ten Nodes")
				stop()
			})
		})
	}
}

// Three hosts that hang at once are left alone by that check.
func TestLimitOfACheckHoldsForThreeAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, _ *world, store *failingStore) {
		f := newFleet("c", 5, "a", "b")
		e, _, stop := fleets{f}.guard(t, store, func(o *engine.Options) {
			waiting(o)
			o.Clusters[0].FileChecks[0].MaxUnhealthy = new(intstr.FromInt32(2))
		})
		time.Sleep(time.Minute)
		f.fail(3)
		time.Sleep(time.Hour)
		assert.Empty(t, e.Runs("c"))
		stop()
	})
}

// A Node that is gone counts in the checks that selected it, also after a restart of the daemon, and
// in no others. // I11
func TestLabelsOfADeletedNodeOutliveARestart(t *testing.T) {
	bubble(t, func(t *testing.T, _ *world, store *failingStore) {
		f := newFleet("c", 5, "a", "b")
		change := func(o *engine.Options) {
			waiting(o)
			o.Run.MaxAttempts = 1
			all := o.Clusters[0].FileChecks[0]
			o.Clusters[0].FileChecks = nil
			for _, zone := range []string{"a", "b"} {
				p := all
				p.Name, p.Selector, p.MaxUnhealthy = zone, labels.SelectorFromSet(labels.Set{"zone": zone}), new(intstr.FromInt32(1))
				o.Clusters[0].FileChecks = append(o.Clusters[0].FileChecks, p)
			}
		}
		_, _, stop := fleets{f}.guard(t, store, change)
		f.breakHost("c-000")
		time.Sleep(20 * time.Minute)
		stop()
		e, _, stop := fleets{f}.guard(t, store, change)
		time.Sleep(time.Minute)
		report, err := e.Report("c")
		require.NoError(t, err)
		counted := map[string][2]int{}
		for _, c := range report.Checks {
			counted[c.Name] = [2]int{c.Expected, c.Healthy}
		}
		assert.Equal(t, map[string][2]int{"a": {5, 4}, "b": {5, 5}}, counted)

		f.breakHost("c-001")
		f.breakHost("c-005")
		time.Sleep(20 * time.Minute)
		assert.Zero(t, f.Handle("c-001").Count(bmc.CommandOff), "the second of its check")
		assert.NotZero(t, f.Handle("c-005").Count(bmc.CommandOff), "the first of its check")
		for _, r := range e.Runs("c") {
			assert.Equal(t, remediate.Waiting, r.Step)
			assert.Equal(t, map[string]string{"c-000": "a", "c-005": "b"}[r.Target.Node], r.NodeLabels["zone"])
		}
		stop()
	})
}

// maxInFlightPerZone is 1. None of four hosts of a zone comes back after its power cycle. The runs wait
// with AttemptsExhausted and try again by themselves, one at a time. // I11
func TestZoneLimitHoldsForRunsThatBeginAgain(t *testing.T) {
	bubble(t, func(t *testing.T, _ *world, store *failingStore) {
		f := newFleet("c", 8, "a", "b")
		for i := range 4 {
			f.breakHost(fmt.Sprintf("c-%03d", i))
		}
		e, _, stop := fleets{f}.guard(t, store, func(o *engine.Options) {
			o.Run.RetryInterval, o.Run.MaxAttempts, o.Run.ReadyTimeout, o.Run.MinPowerInterval = time.Second, 1, time.Minute, time.Second
			o.Guards.MaxFencesPerDay = 50
		})
		time.Sleep(90 * time.Minute)
		again := 0
		for _, r := range e.Runs("c") {
			if r.Attempt > 1 {
				again++
			}
		}
		assert.Equal(t, 4, again, "all of them have tried again")
		assert.Equal(t, 1, f.MostOff("a"), "hosts of the zone that were off at once")
		stop()
	})
}

// A run that begins again takes a start like a new run, each time: runs that never end do not pass the
// rate, with and without restarts of the daemon. // I11
func TestRunThatBeginsAgainCountsAtEachStart(t *testing.T) {
	for _, every := range []time.Duration{0, 25 * time.Minute} {
		t.Run(every.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, _ *world, store *failingStore) {
				f := newFleet("c", 8, "")
				for i := range 3 {
					f.breakHost(fmt.Sprintf("c-%03d", i))
				}
				change := func(o *engine.Options) {
					o.Run.RetryInterval, o.Run.MaxAttempts, o.Run.ReadyTimeout, o.Run.MinPowerInterval = time.Second, 1, time.Minute, time.Second
					o.Guards.MaxFencesPerDay, o.Guards.MaxInFlight, o.Guards.StartsPerHour = 50, 2, 4
				}
				e, _, stop := fleets{f}.guard(t, store, change)
				begun, offs := time.Now(), 0
				for age := 5 * time.Minute; age <= 3*time.Hour; age += 5 * time.Minute {
					time.Sleep(5 * time.Minute)
					offs = f.Handle("c-000").Count(bmc.CommandOff) + f.Handle("c-001").Count(bmc.CommandOff) + f.Handle("c-002").Count(bmc.CommandOff)
					assert.LessOrEqual(t, float64(offs), 2+4*time.Since(begun).Hours(), "after %s", age)
					if every > 0 && age%every == 0 {
						stop()
						e, _, stop = fleets{f}.guard(t, store, change)
					}
				}
				for _, r := range e.Runs("c") {
					assert.True(t, r.Open(), "no run has ended")
				}
				assert.Greater(t, offs, 9, "and they have begun again")
				stop()
			})
		})
	}
}
