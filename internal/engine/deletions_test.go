package engine_test

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/test/fake"
	"github.com/fenced/fenced/test/must"
)

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

// gateOf is the gate of a Node with this name.
func gateOf(t *testing.T, e *engine.Engine, node, name string) reason.Gate {
	t.Helper()
	x := must.Do(e.Explain(t.Context(), "c", node))(t)
	for _, g := range x.Gates {
		if g.Name == name {
			return g
		}
	}
	require.Failf(t, "no such gate", "%s is not among %+v", name, x.Gates)
	return reason.Gate{}
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

// deletions are the times of the deletions so far.
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
