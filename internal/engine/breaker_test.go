package engine_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/fenced/fenced/internal/admit"
	"github.com/fenced/fenced/internal/cluster"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/state/statetest"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/fake"
	"github.com/fenced/fenced/test/must"
)

// relapsing lets a Node fall silent again shortly after each recovery, until it is
// stopped; not so soon that a run could miss that the Node was well.
func relapsing(t *testing.T, w *world) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			time.Sleep(30 * time.Second)
			if w.ReadyFor() > 10*time.Second {
				w.Hang()
			}
		}
	}()
	return func() { cancel(); <-done }
}

func twiceADay(o *engine.Options) { o.Guards.MaxFencesPerDay = 2 }

// A host with too many runs in a day is quarantined for a day. A restart does not end the
// quarantine; time and people do. // I15
func TestHostWithTooManyRunsIsQuarantined(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		defer relapsing(t, w)()
		_, events, stop := start(t, w, store, twiceADay)
		time.Sleep(time.Hour)
		stop()
		assert.Contains(t, refusals(t, events), string(reason.Quarantined))
		holds := must.Do(statetest.LoadHolds(t.Context(), store))(t)
		require.Len(t, holds, 1)
		h := holds[0]
		assert.True(t, h.Quarantine)
		assert.Equal(t, 24*time.Hour, h.Until.Sub(h.At))

		time.Sleep(time.Until(h.Until) - 5*time.Minute) // nobody runs: each second of a day would cost its rounds
		e := running(t, w, store, twiceADay)
		time.Sleep(4 * time.Minute)
		require.Len(t, e.Runs("c"), 2)
		g := gate(t, e, reason.Quarantined)
		assert.Equal(t, h.Until, g.Until.UTC())
		time.Sleep(30 * time.Minute)
		assert.Len(t, e.Runs("c"), 4, "a new day, and no more than that")
		holds = must.Do(statetest.LoadHolds(t.Context(), store))(t)
		assert.True(t, holds[0].At.After(h.Until), "and quarantined anew")
	})
}

// After a release by a person the count of the day starts again. A quarantine does not
// stop an order from a person. // I15
func TestQuarantineIsReleased(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		defer relapsing(t, w)()
		e, _, stop := start(t, w, store, twiceADay)
		time.Sleep(time.Hour)
		gate(t, e, reason.Quarantined)
		accepted(t)(e.ReleaseHold(t.Context(), wire.Order{Cluster: "c", Node: "n-1", Actor: "ada", Reason: "new disk"}))
		time.Sleep(10 * time.Second)
		stop()
		e = running(t, w, store, twiceADay)
		time.Sleep(time.Hour)
		require.Len(t, e.Runs("c"), 4, "two more")
		gate(t, e, reason.Quarantined)
		accepted(t)(e.Fence(t.Context(), wire.Order{Cluster: "c", Node: "n-1", Actor: "ada", Reason: "once more"}))
		time.Sleep(time.Hour)
		assert.Len(t, e.Runs("c"), 5)
	})
}

// ended is a run on record that touched n-1 and ended.
func ended(t *testing.T, store state.Store, n int, ago time.Duration, step remediate.Step) {
	t.Helper()
	at := time.Now().Add(-ago).UTC()
	r := remediate.Begin(remediate.Run{ID: fmt.Sprint("r", n), Strategy: remediate.PowerCycle, Target: remediate.Target{Cluster: "c", Node: "n-1"}}, at.Add(-time.Minute))
	r.Step, r.Ended, r.Intervened = step, at, true
	must.Do(state.SaveRun(t.Context(), store, r))(t)
}

// The wait between runs that fail doubles. // I15
func TestFailedRunsBackOff(t *testing.T) {
	interval := func(o *engine.Options) { o.Guards.MinPowerInterval = 20 * time.Minute }
	for name, c := range map[string]struct {
		ends []remediate.Step // a minute ago, two minutes ago ...
		want time.Duration
	}{
		"one that went well":     {[]remediate.Step{remediate.Done}, 20 * time.Minute},
		"one that did not":       {[]remediate.Step{remediate.Aborted}, 20 * time.Minute},
		"two":                    {[]remediate.Step{remediate.Aborted, remediate.Reprovisioned}, 40 * time.Minute},
		"three":                  {[]remediate.Step{remediate.Aborted, remediate.Aborted, remediate.Aborted}, 80 * time.Minute},
		"since one that did":     {[]remediate.Step{remediate.Aborted, remediate.Aborted, remediate.Done, remediate.Aborted}, 40 * time.Minute},
		"before one that did":    {[]remediate.Step{remediate.Done, remediate.Aborted, remediate.Aborted}, 20 * time.Minute},
		"and nothing before now": {nil, 0},
	} {
		scene(t, name, func(t *testing.T, w *world, store *failingStore) {
			for i, step := range c.ends {
				ended(t, store, i, time.Duration(i+1)*time.Minute, step)
			}
			e := running(t, w, store, interval)
			begun := time.Now()
			for len(e.Runs("c")) == len(c.ends) && time.Since(begun) < 3*time.Hour {
				time.Sleep(time.Second)
			}
			waited := time.Since(begun) + time.Minute // since the newest ended
			assert.InDelta(t, max(c.want, 2*time.Minute).Seconds(), waited.Seconds(), 15)
		})
	}
}

// An hour of Ready after a run resets the back-off.
func TestHealthyHourResetsTheBackoff(t *testing.T) {
	for _, healthy := range []time.Duration{50 * time.Minute, 70 * time.Minute} {
		bubble(t, func(t *testing.T, w *world, store *failingStore) {
			w.SetReady("True")
			for i := range 3 {
				ended(t, store, i, time.Duration(i+1)*time.Minute, remediate.Aborted)
			}
			e := running(t, w, store, func(o *engine.Options) { o.Guards.MinPowerInterval = 30 * time.Minute })
			time.Sleep(healthy)
			w.Hang()
			time.Sleep(3 * time.Minute)
			assert.Equal(t, healthy >= time.Hour, len(e.Runs("c")) > 3, "after %s", healthy)
		})
	}
}

// stormy makes the world's check a NodeHealthCheck that waits after a storm, in
// the middle of one.
func stormy(w *world) {
	one := intstr.FromInt32(1)
	w.changeCheck(func(c *policy.Check) {
		*c = policy.Check{
			Kind: policy.NodeHealthCheckKind, APIVersion: policy.Medik8sAPI, Name: "nhc", UID: "nhc-uid", Selector: labels.Everything(), SelectsNodes: true,
			Strategy: policy.CreateRequests, MaxUnhealthy: &one, StormCooldown: time.Hour,
			Template:   &policy.Template{APIVersion: "fenced.io/v1alpha1", Kind: "FencedRemediationTemplate", Name: "t"},
			Conditions: []policy.UnhealthyCondition{{Type: "Ready", Status: "Unknown", Timeout: time.Minute}},
		}
	})
	w.dropMachines()
	w.setOthersDown(true)
}

// A cooldown can be computed only by one who saw the storm. The state survives when the
// check is read again.
func TestStormStateSurvivesAReread(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		stormy(w)
		e := running(t, w, store, nil)
		time.Sleep(2 * time.Minute)
		gate(t, e, reason.ShortCircuit)
		w.setOthersDown(false)
		time.Sleep(30 * time.Minute)
		assert.Empty(t, e.Runs("c"))
		gate(t, e, reason.StormCooldown)
		time.Sleep(31 * time.Minute)
		assert.NotEmpty(t, e.Runs("c"), "the end of the cooldown needs no event")
	})
}

// After a start it is not known whether there was a storm: fenced assumes that one has
// just ended.
func TestRestartAssumesAStorm(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		stormy(w)
		_, _, stop := start(t, w, store, nil)
		time.Sleep(2 * time.Minute)
		w.setOthersDown(false)
		time.Sleep(time.Minute)
		stop()
		e := running(t, w, store, nil)
		time.Sleep(59 * time.Minute)
		assert.Empty(t, e.Runs("c"))
		gate(t, e, reason.StormCooldown)
		time.Sleep(2 * time.Minute)
		assert.NotEmpty(t, e.Runs("c"))
	})
}

// A check that is created again under an old name starts without the storm of the old one.
func TestStormGoesWithItsCheck(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		stormy(w)
		e := running(t, w, store, nil)
		time.Sleep(2 * time.Hour)
		w.setOthersDown(false)
		time.Sleep(time.Minute)
		gate(t, e, reason.StormCooldown)
		w.changeCheck(func(c *policy.Check) { c.UID = "another" })
		time.Sleep(5 * time.Second)
		assert.NotEmpty(t, e.Runs("c"), "the daemon has watched for longer than the cooldown")
	})
}

// returning is a watch whose outage ends just before what changed is told.
type returning struct {
	admit.Watch
	before atomic.Pointer[func()]
}

func (r *returning) Changes() []policy.Change {
	if ends := r.before.Swap(nil); ends != nil {
		(*ends)()
	}
	return r.Watch.Changes()
}

// When a kind of check vanishes, the storm state of its checks is dropped. When it
// returns, fenced assumes that a storm has just ended.
func TestStormIsAssumedAfterItsKindWasMissing(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		stormy(w)
		watch := &returning{}
		e := running(t, w, store, func(o *engine.Options) {
			watch.Watch, o.Clusters[0].Watch = o.Clusters[0].Watch, watch
		})
		time.Sleep(3 * time.Hour)
		w.Do(func(s *fake.State) { s.DropCheck(s.Check) })
		time.Sleep(2 * time.Second)
		w.setOthersDown(false)
		ends := func() { w.Do(func(s *fake.State) { s.BringUp(); s.ShowCheck(s.Check) }) }
		watch.before.Store(&ends)
		w.Do(func(s *fake.State) { s.ChangeNode("n-1", func(*fake.Node) {}) }) // something is told
		time.Sleep(59 * time.Minute)
		assert.Empty(t, e.Runs("c"))
		time.Sleep(2 * time.Minute)
		assert.NotEmpty(t, e.Runs("c"))
	})
}

// ofACloud makes the world a pool without BMCs: its check deletes Machines, a MachineSet
// owns them, and a deleted Machine stays until the test removes it.
func (w *world) ofACloud() {
	w.ownMachines()
	w.changeCheck(func(c *policy.Check) { c.Strategy, c.StartupTimeout = policy.DeleteMachines, 10*time.Minute })
	w.Do(func(s *fake.State) {
		s.OnDelete = func(m policy.Machine) {
			s.ChangeMachine(m.NodeName, func(m *policy.Machine) { m.Deleting = true })
		}
	})
}

func oneDeletion(o *engine.Options) {
	o.Guards.MaxDeletions, o.Guards.DeletionTimeout = 1, 30*time.Minute
}

func gateOf(t *testing.T, e *engine.Engine, node, name string) reason.Gate {
	t.Helper()
	return gateIn(t, must.Do(e.Explain(t.Context(), "c", node))(t), func(g reason.Gate) bool { return g.Name == name })
}

// The next Machine of a check is deleted when the one before it and its Node are gone, also
// after a restart of the daemon. // I11
func TestOneMachineOfACheckIsDeletedAtATime(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.ofACloud()
		w.Cluster.Handle("other-0").Hang()
		e, _, stop := start(t, w, store, oneDeletion)
		time.Sleep(5 * time.Minute)
		first := stands(t, e, remediate.Reprovisioned)
		node, other := first.Target.Node, "n-1"
		if node == other {
			other = "other-0"
		}
		waits := func() {
			t.Helper()
			time.Sleep(3 * time.Minute)
			only(t, e)
			g := gateOf(t, e, other, "deletions")
			assert.Equal(t, reason.Gate{Name: "deletions", Reason: reason.DeletionLimit, Value: "1 of this check in progress", Threshold: "below 1", Source: "guards.maxDeletions"}, g)
			assert.Equal(t, 1, e.Status()[0].Deleting)
		}
		waits()
		stop()
		e = running(t, w, store, oneDeletion)
		waits()
		w.Do(func(s *fake.State) { s.RemoveMachine(node) }) // its Node is still there
		waits()
		w.Do(func(s *fake.State) { s.RemoveNode(node) })
		time.Sleep(10 * time.Second)
		assert.Len(t, e.Runs("c"), 2)
		assert.Equal(t, other, e.Runs("c")[0].Target.Node)
	})
}

// A Machine that does not disappear frees its place after guards.deletionTimeout, and that is
// reported once.
func TestDeletionThatTakesTooLongFreesItsPlace(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.ofACloud()
		w.Cluster.Handle("other-0").Hang()
		e, events, _ := start(t, w, store, oneDeletion)
		overdue := func() []event.Event {
			return eventsOf(t, events, func(ev event.Event) bool { return ev.Reason == reason.DeletionOverdue })
		}
		time.Sleep(30 * time.Minute)
		first := only(t, e)
		assert.Empty(t, overdue())
		time.Sleep(2 * time.Minute)
		require.Len(t, overdue(), 1)
		assert.Equal(t, first.ID, overdue()[0].Run)
		assert.Contains(t, overdue()[0].Message, "guards.deletionTimeout")
		assert.Len(t, e.Runs("c"), 2, "the next one has its turn")
		assert.Equal(t, 1, e.Status()[0].Overdue)
		assert.Equal(t, 1, e.Status()[0].Deleting)
		time.Sleep(25 * time.Minute)
		assert.Len(t, overdue(), 1)
	})
}

// A deletion takes no slot and no place of a power cycle.
func TestDeletionTakesNoSlot(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.ofACloud()
		var taken atomic.Int64
		taken.Store(-1)
		w.Do(func(s *fake.State) {
			s.OnDelete = func(m policy.Machine) {
				slots, err := state.LoadSlots(t.Context(), store)
				assert.NoError(t, err)
				taken.Store(int64(len(slots)))
				s.RemoveMachine(m.NodeName)
				s.RemoveNode(m.NodeName)
			}
		})
		running(t, w, store, oneDeletion)
		time.Sleep(2 * time.Minute)
		assert.Zero(t, taken.Load())
	})
}

// machineSet makes a replacement for each deleted Machine. The lock of its world protects it.
type machineSet struct {
	w       *world
	made    int
	deleted []time.Time
	works   bool // the replacements become Ready
}

// brokenSet has a MachineSet whose replacements fail at once, before they have a Node.
func brokenSet(w *world) *machineSet {
	ms := &machineSet{w: w}
	w.ofACloud()
	w.eachMachine(func(m *policy.Machine) { m.Created = time.Now().Add(-24 * time.Hour) })
	w.Do(func(s *fake.State) {
		s.OnDelete = func(m policy.Machine) {
			ms.deleted = append(ms.deleted, time.Now())
			s.RemoveMachine(m.NodeName)
			if m.NodeName != "" {
				s.RemoveNode(m.NodeName)
			}
			ms.replace(s, m)
		}
	})
	return ms
}

func (ms *machineSet) replace(s *fake.State, m policy.Machine) {
	ms.made++
	m.Name, m.UID, m.Phase, m.NodeName, m.Deleting = fmt.Sprint("new-", ms.made), fmt.Sprint("m-new-", ms.made), "Failed", "", false
	m.Created, m.LastUpdated = time.Now().Truncate(time.Second), time.Now()
	if ms.works {
		m.Phase, m.NodeName = "Running", fmt.Sprint("made-", ms.made)
		s.PutNode(fake.Node{Name: m.NodeName, Ready: "True", Since: time.Now()})
	}
	s.PutMachine(m)
}

func (ms *machineSet) deletions() (list []time.Time) {
	ms.w.Do(func(*fake.State) { list = slices.Clone(ms.deleted) })
	return list
}

// setWorks says whether the replacements become Ready from now on.
func (ms *machineSet) setWorks(works bool) { ms.w.Do(func(*fake.State) { ms.works = works }) }

// breakDown has the replacement that works fail, and all others from now on.
func (ms *machineSet) breakDown() {
	ms.w.Do(func(s *fake.State) {
		ms.works, ms.deleted = false, nil
		s.SetReady(fmt.Sprint("made-", ms.made), "Unknown")
	})
}

// gaps are the times between the deletions, in minutes.
func (ms *machineSet) gaps() (list []int) {
	deleted := ms.deletions()
	for i := 1; i < len(deleted); i++ {
		list = append(list, int(deleted[i].Sub(deleted[i-1]).Round(time.Minute)/time.Minute))
	}
	return list
}

// The replacements of a broken MachineSet are deleted ever more slowly, also if the daemon
// restarts again and again. One replacement that becomes Ready ends that.
func TestBrokenMachineSetIsNoHotLoop(t *testing.T) {
	for _, every := range []time.Duration{0, 7 * time.Minute} {
		scene(t, every.String(), func(t *testing.T, w *world, store *failingStore) {
			ms := brokenSet(w)
			e, _, stop := start(t, w, store, oneDeletion)
			pass := func(d time.Duration) {
				for end := time.Now().Add(d); time.Now().Before(end); {
					if every == 0 {
						time.Sleep(d)
						return
					}
					time.Sleep(every)
					stop()
					e, _, stop = start(t, w, store, oneDeletion)
				}
			}
			pass(4*time.Hour + 30*time.Minute)
			assert.Equal(t, []int{1, 2, 4, 8, 16, 32, 60, 60, 60}, ms.gaps())
			assert.Equal(t, reason.DeletionBackOff, planned(t, e).Reason)

			ms.setWorks(true)
			pass(time.Hour)
			require.Len(t, ms.deletions(), 11)
			time.Sleep(5 * time.Minute) // it is seen Ready
			ms.breakDown()
			pass(20 * time.Minute)
			assert.Equal(t, []int{1, 2, 4, 8}, ms.gaps(), "it begins again")
		})
	}
}

// planned is what holds back the only target that the checks want remediated.
func planned(t *testing.T, e *engine.Engine) reason.Gate {
	t.Helper()
	time.Sleep(2 * time.Second) // after a start
	p := must.Do(e.Plan(t.Context(), "c"))(t)
	require.Len(t, p.Items, 1)
	require.NotNil(t, p.Items[0].Gate)
	return *p.Items[0].Gate
}

// A replacement has its whole start-up timeout, although the Node that it seems to have is
// the one before it, which has not been Ready for long.
func TestReplacementIsNotDeletedForTheMachineBefore(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		ms := brokenSet(w)
		w.Do(func(s *fake.State) {
			s.OnDelete = func(m policy.Machine) {
				ms.deleted = append(ms.deleted, time.Now())
				m.Name, m.UID, m.Created = fmt.Sprint("new-", len(ms.deleted)), fmt.Sprint("m-new-", len(ms.deleted)), time.Now()
				s.RemoveMachine(m.NodeName)
				s.PutMachine(m) // on the old Node
			}
		})
		e := running(t, w, store, func(o *engine.Options) { oneDeletion(o); o.Guards.MaxDeletions = 9 })
		time.Sleep(5 * time.Minute)
		require.Len(t, ms.deletions(), 1)
		g := gateOf(t, e, "n-1", "replacement")
		assert.Equal(t, reason.ReplacementStarting, g.Reason)
		assert.Equal(t, ms.deletions()[0].Add(10*time.Minute).UTC(), g.Until.UTC())
		time.Sleep(7 * time.Minute)
		assert.Equal(t, []int{10}, ms.gaps())
	})
}

// Nor does a check of policies.d say whether there was a storm, and one that a reload has brought since may have been there before.
func TestRestartAssumesAStormOfAFile(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		stormy(w)
		var check policy.Check
		w.Do(func(s *fake.State) { check = *s.Check; s.DropCheck(s.Check) })
		check.Source = "policies.d/nhc.yaml:1"
		files := []policy.Check{check}
		_, _, stop := start(t, w, store, func(o *engine.Options) { o.Clusters[0].FileChecks = files })
		time.Sleep(2 * time.Minute)
		w.setOthersDown(false)
		time.Sleep(time.Minute)
		stop()
		_, _, stop = start(t, w, store, func(o *engine.Options) { o.Clusters[0].FileChecks = files })
		time.Sleep(59 * time.Minute)
		stop()
		e := running(t, w, store, nil)
		time.Sleep(time.Minute)
		e.ApplyConfig.Policies("c", cluster.Files{Checks: files})
		time.Sleep(58 * time.Minute)
		assert.Empty(t, e.Runs("c"))
		gate(t, e, reason.StormCooldown)
		time.Sleep(2 * time.Minute)
		assert.NotEmpty(t, e.Runs("c"))
	})
}
