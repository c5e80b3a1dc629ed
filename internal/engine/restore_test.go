package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/state/boltstore"
	"github.com/fenced/fenced/test/fake"
	"github.com/fenced/fenced/test/must"
)

// unrestored is a cluster in which somebody who admits writes refuses what is restored.
type unrestored struct {
	engine.Kube
	refusal atomic.Pointer[error]
}

func (u *unrestored) Restore(ctx context.Context, r remediate.Run, backups [][]byte) ([]string, error) {
	if refusal := u.refusal.Load(); refusal != nil {
		return nil, *refusal
	}
	return u.Kube.Restore(ctx, r, backups)
}

// If the API server refuses to restore the Node, the run is Held with that refusal as its
// reason, and the backup is kept. Once the restore is allowed, an order completes the
// run. // I21
func TestRefusedRestoreIsHeldWithItsReason(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		refusal := errors.New("restore Node n-1: admission webhook \"no\x1b[31mlabels\" denied the request")
		u := &unrestored{Kube: w}
		u.refusal.Store(&refusal)
		e := running(t, w, store, func(o *engine.Options) { o.Clusters[0].Kube = u })
		time.Sleep(20 * time.Minute)
		r := stands(t, e, remediate.Held, "RestoreFailed")
		assert.Contains(t, r.Note, "denied the request")
		assert.NotContains(t, r.Note, "\x1b")

		changed := fmt.Errorf("restore Node n-1: %w", remediate.ErrChanged)
		u.refusal.Store(&changed)
		accepted(t)(e.Retry(t.Context(), ofRun(r)))
		time.Sleep(20 * time.Minute)
		assert.Contains(t, stands(t, e, remediate.Held, "RestoreFailed").Note, "denied the request", "the kubelet's change says less")
		require.NotEmpty(t, must.Do(state.Backups(t.Context(), store, r.ID))(t))

		u.refusal.Store(nil)
		accepted(t)(e.Retry(t.Context(), ofRun(r)))
		time.Sleep(5 * time.Minute)
		assert.Equal(t, remediate.Done, only(t, e).Step)
		assert.True(t, w.Restored())
		assert.Equal(t, 1, w.Isolations())
	})
}

// counted counts how often a restore put the label back on a Node that lacked it.
type counted struct {
	engine.Kube
	w      *world
	writes atomic.Int32
}

func (c *counted) Restore(ctx context.Context, r remediate.Run, backups [][]byte) ([]string, error) {
	had := c.w.hasRack()
	readBack, err := c.Kube.Restore(ctx, r, backups)
	if !had && c.w.hasRack() {
		c.writes.Add(1)
	}
	return readBack, err
}

func (w *world) hasRack() (has bool) {
	w.Do(func(s *fake.State) { _, has = s.Nodes["n-1"].Labels["rack"] })
	return has
}

// A label that was read back once belongs to its owner, also for a fenced that starts while step 5
// waits for the Node to be Ready. // I19, I21
func TestOwnerOfALabelIsNotFoughtAfterARestart(t *testing.T) {
	for _, restarts := range []bool{false, true} {
		bubble(t, func(t *testing.T, w *world, store *failingStore) {
			w.Do(func(s *fake.State) { s.ReadyAfter = 2 * time.Minute })
			k := &counted{Kube: w, w: w}
			counting := func(o *engine.Options) { o.Clusters[0].Kube = k }
			e, _, stop := start(t, w, store, counting)
			until(t, e, remediate.RestoreNode)
			time.Sleep(10 * time.Second)
			require.True(t, w.hasRack())
			if restarts {
				stop()
			}
			w.Do(func(s *fake.State) { s.ChangeNode("n-1", func(n *fake.Node) { delete(n.Labels, "rack") }) })
			if restarts {
				e, _, _ = start(t, w, store, counting)
			}
			time.Sleep(10 * time.Minute)
			r := stands(t, e, remediate.Done)
			assert.Equal(t, int32(1), k.writes.Load())
			assert.Nil(t, r.Restored, "the history stays small")
		})
	}
}

var backedUp = []state.Kind{state.KindRun, state.KindBackup, state.KindCluster, state.KindHold, state.KindPin, state.KindFreeze}

func backupOf(t *testing.T, s state.Store) (all []state.Record) {
	t.Helper()
	for _, k := range backedUp {
		list := must.Do(s.List(t.Context(), k))(t)
		all = append(all, list...)
	}
	return all
}

// putBack makes a store of a backup, as cp -a does.
func putBack(t *testing.T, dir string, backup []state.Record) state.Store {
	t.Helper()
	s := must.Do(boltstore.Open(dir + "/old.db"))(t)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	for _, r := range backup {
		r.Version = 0
		must.Do(s.Put(t.Context(), r))(t)
	}
	return s
}

// docs/state.md, "Restore": a run that was open in the backup and has ended since "is open again, looks, and ends by
// itself. A host that is healthy keeps its power, and its Node is not deleted again". This takes a backup in each second of
// a run, lets the run end, and puts the backup back (cp -a) half an hour later.
func TestRunOfAnOldBackupEndsByItself(t *testing.T) {
	for at := 60 * time.Second; at < 90*time.Second; at += time.Second {
		dir := t.TempDir()
		scene(t, at.String(), func(t *testing.T, w *world, store *failingStore) {
			var backup []state.Record
			step := remediate.Step("none")
			if at == time.Minute { // in place of that: in the moment of the isolation
				w.Do(func(s *fake.State) {
					s.OnIsolate = func(_ *fake.Node, r remediate.Run, _ remediate.Backup) { backup, step = backupOf(t, store), r.Step }
				})
			}
			e, _, stop := start(t, w, store, waiting)
			time.Sleep(at)
			if at != time.Minute {
				backup = backupOf(t, store)
				if runs := e.Runs("c"); len(runs) == 1 {
					step = runs[0].Step
				}
			} else {
				time.Sleep(time.Minute)
			}
			if step == "none" || step.Ended() {
				stop()
				return
			}
			if at != time.Minute {
				until(t, e, remediate.Done)
			}
			time.Sleep(30 * time.Minute)
			require.Equal(t, remediate.Done, only(t, e).Step)
			stop()
			require.Equal(t, 1, w.Isolations())
			offs := w.Count(bmc.CommandOff)

			old := putBack(t, dir, backup)
			e = running(t, w, old, waiting)
			time.Sleep(30 * time.Minute)
			r := only(t, e)
			assert.True(t, r.Step.Ended(), "backup at %s, in step %s: %s %s: %s", at, step, r.Step, r.Reason, r.Note)
			assert.Equal(t, offs, w.Count(bmc.CommandOff), "backup in step %s", step)
			assert.Equal(t, 1, w.Isolations(), "backup in step %s", step)
			assert.Empty(t, len(must.Do(old.List(t.Context(), state.KindFreeze))(t)), "backup in step %s: the BMC is frozen", step)
		})
	}
}

// The same for a host that was fenced by hand: the order has had its effect long ago, and is not given anew by a
// backup. One is of the moment after the first command was saved, the other of the moment before, put back while the order
// is still fresh. // I4
func TestOrderOfAnOldBackupSwitchesNothing(t *testing.T) {
	for name, c := range map[string]struct {
		intervened bool
		since      time.Duration
	}{
		"after the first command":  {true, 32 * time.Minute},
		"before the first command": {false, 8 * time.Minute},
	} {
		dir := t.TempDir()
		scene(t, name, func(t *testing.T, w *world, store *failingStore) {
			w.Recover()
			slowly := func(o *engine.Options) { waiting(o); o.Run.OffDeadline = time.Hour }
			e, _, stop := start(t, w, store, slowly)
			time.Sleep(10 * time.Second)
			ordered := time.Now()
			accepted(t)(e.Fence(t.Context(), byHand))
			var backup []state.Record
			for r := only(t, e); r.Step == remediate.PowerOff; r = only(t, e) {
				if backup == nil && r.Intervened == c.intervened {
					backup = backupOf(t, store)
				}
				time.Sleep(100 * time.Millisecond)
			}
			require.NotNil(t, backup)
			until(t, e, remediate.Aborted) // the control plane reports the Node Ready all the time
			stop()
			time.Sleep(time.Until(ordered.Add(c.since)))
			offs := w.Count(bmc.CommandOff)

			e = running(t, w, putBack(t, dir, backup), slowly)
			time.Sleep(30 * time.Minute)
			r := only(t, e)
			assert.True(t, r.Step.Ended(), "%s %s: %s", r.Step, r.Reason, r.Note)
			assert.Equal(t, offs, w.Count(bmc.CommandOff))
		})
	}
}

// spoiled are the records of what is forbidden, each of which may be damaged.
var spoiled = map[string]state.Record{
	"hold":                 {Kind: state.KindHold, Key: "c/other-1"},
	"freeze":               {Kind: state.KindFreeze, Key: "r-1"},
	"pause of a cluster":   {Kind: state.KindCluster, Key: "c"},
	"pause of another one": {Kind: state.KindCluster, Key: "elsewhere"},
	"pause of everything":  {Kind: state.KindCluster, Key: "*"},
}

// spoil writes a record that nobody can read.
func spoil(t *testing.T, s state.Store, r state.Record) {
	t.Helper()
	if old, err := s.Get(t.Context(), r.Kind, r.Key); err == nil {
		r.Version = old.Version
	}
	r.Data = []byte(`{"v":1,"data":{"from":"a bad disk"}}`)
	must.Do(s.Put(t.Context(), r))(t)
}

// alarms counts what failed in no run, of a wording.
func alarms(t *testing.T, events *event.Stream, words string) int {
	t.Helper()
	return len(eventsOf(t, events, func(ev event.Event) bool {
		return ev.Type == event.Failed && ev.Node == "" && strings.Contains(ev.Message, words)
	}))
}

// Stops that cannot be read forbid everything, and keep no host off: a run before the
// isolation is rolled back, and an isolated host is brought back. // I20, I23
func TestUnreadableStopsStopAndBringBack(t *testing.T) {
	for name, record := range spoiled {
		for isolated, end := range map[bool]remediate.Step{false: remediate.Aborted, true: remediate.Done} {
			bubble(t, func(t *testing.T, w *world, store *failingStore) {
				_, _, stop := start(t, w, store, nil)
				for w.Count(bmc.CommandOff) == 0 || isolated && w.Isolations() == 0 {
					time.Sleep(500 * time.Millisecond)
				}
				stop()
				spoil(t, store, record)

				e, events, _ := start(t, w, store, nil)
				time.Sleep(10 * time.Minute)
				assert.Equal(t, end, only(t, e).Step, "%s, isolated: %t", name, isolated)
				assert.True(t, w.On(), name)
				assert.Equal(t, 1, w.Count(bmc.CommandOff), name)
				assert.Contains(t, gate(t, e, reason.Paused).Value, "cannot be read", name)
				assert.Contains(t, e.Status()[0].Paused, "cannot be read", name)
				assert.Equal(t, 1, alarms(t, events, "cannot be read"), "told once: %s", name)
				_, err := e.Fence(t.Context(), byHand)
				require.Error(t, err, name)
				accepted(t)(e.Pause(t.Context(), byHand)) // a stop is always allowed
				bad := must.Do(store.Get(t.Context(), record.Kind, record.Key))(t)
				assert.Contains(t, string(bad.Data), "a bad disk", "it is not written over")
			})
		}
	}
}

// A freeze that cannot be read does not prevent the takeover of a cluster, although its
// run is Held for it.
func TestUnreadableFreezeOfAHeldRun(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.pauseCheck()
		must.Do(state.SaveRun(t.Context(), store, remediate.Run{ID: "r-1", Step: remediate.Held, Reason: "FalseOff",
			Target: remediate.Target{Cluster: "c", Node: "n-9", Host: "c/n-9"}}))(t)
		spoil(t, store, spoiled["freeze"])
		e := running(t, w, store, nil)
		time.Sleep(10 * time.Second)
		assert.True(t, e.Status()[0].Owner)
	})
}

// Once all records can be read again, fenced continues, after a quiet period. // I16
func TestUnreadableStopThatIsRepaired(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		spoil(t, store, spoiled["hold"])
		e, events, _ := start(t, w, store, func(o *engine.Options) { o.Guards.QuietPeriod = 5 * time.Minute })
		time.Sleep(20 * time.Minute)
		require.Empty(t, e.Runs("c"))
		bad := must.Do(store.Get(t.Context(), state.KindHold, "c/other-1"))(t)
		require.NoError(t, store.Delete(t.Context(), bad.Kind, bad.Key, bad.Version))
		store.syncChanges()
		assert.Equal(t, 1, heard(t, events, "can be read again"))
		time.Sleep(4*time.Minute + 50*time.Second)
		require.Empty(t, e.Runs("c"), "the quiet period follows")
		time.Sleep(5 * time.Minute)
		assert.Equal(t, remediate.Done, only(t, e).Step)
	})
}

// A record that is damaged while fenced runs has the same effect as one that was damaged
// before.
func TestStopThatBecomesUnreadable(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e := running(t, w, store, slowProof)
		time.Sleep(untilOff)
		require.Equal(t, 1, w.Count(bmc.CommandOff))
		spoil(t, store, spoiled["pause of everything"])
		store.syncChanges()
		time.Sleep(10 * time.Minute)
		r := stands(t, e, remediate.Aborted)
		assert.Contains(t, r.Note, "cannot be read")
		assert.True(t, w.On())
		assert.Zero(t, w.Isolations())
	})
}

// The store fails just after the isolation, so nobody can send On. docs/state.md ("When the etcd has no
// quorum") says what to do: "power the host on with its BMC. The run notices that." The host was
// off, and boots anew: its BMC told the truth, and must not be frozen. // I5, I20
func TestHostPoweredOnByHandWhileTheStoreIsLost(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.Do(func(s *fake.State) {
			s.OnIsolate = func(*fake.Node, remediate.Run, remediate.Backup) { store.set(true) }
		})
		e := running(t, w, store, waiting)
		await(t, func() bool { return w.Isolations() > 0 })
		time.Sleep(5 * time.Minute)
		require.False(t, w.On(), "On needs a record")
		w.SetPower(true) // as docs/state.md says
		time.Sleep(5 * time.Minute)
		require.True(t, w.Ready())
		store.set(false)
		time.Sleep(10 * time.Minute)
		stands(t, e, remediate.Done)
		assert.Empty(t, must.Do(store.List(t.Context(), state.KindFreeze))(t), "the BMC is frozen although it told the truth")
	})
}
