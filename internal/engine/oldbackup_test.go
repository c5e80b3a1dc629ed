package engine_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/state/boltstore"
	"github.com/fenced/fenced/test/fake"
)

var backedUp = []state.Kind{state.KindRun, state.KindBackup, state.KindCluster, state.KindHold, state.KindPin, state.KindFreeze}

func backupOf(t *testing.T, s state.Store) (all []state.Record) {
	t.Helper()
	for _, k := range backedUp {
		list, err := s.List(t.Context(), k)
		require.NoError(t, err)
		all = append(all, list...)
	}
	return all
}

// docs/state.md, "Restore": a run that was open in the backup and has ended since "is open again, looks, and ends by
// itself. A host that is healthy keeps its power, and its Node is not deleted again". This takes a backup in each second of
// a run, lets the run end, and puts the backup back (cp -a) an hour later.
func TestRunOfAnOldBackupEndsByItself(t *testing.T) {
	for at := 60 * time.Second; at < 90*time.Second; at += time.Second {
		dir := t.TempDir()
		t.Run(at.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world, store *failingStore) {
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
				time.Sleep(time.Hour)
				require.Equal(t, remediate.Done, only(t, e).Step)
				stop()
				require.Equal(t, 1, w.Isolations())
				offs := w.Count(bmc.CommandOff)

				old, err := boltstore.Open(dir + "/old.db")
				require.NoError(t, err)
				defer func() { require.NoError(t, old.Close()) }()
				for _, r := range backup {
					r.Version = 0
					_, err := old.Put(t.Context(), r)
					require.NoError(t, err)
				}
				e, _, stop = start(t, w, old, waiting)
				time.Sleep(time.Hour)
				r := only(t, e)
				assert.True(t, r.Step.Ended(), "backup at %s, in step %s: %s %s: %s", at, step, r.Step, r.Reason, r.Note)
				assert.Equal(t, offs, w.Count(bmc.CommandOff), "backup in step %s", step)
				assert.Equal(t, 1, w.Isolations(), "backup in step %s", step)
				freezes, err := old.List(t.Context(), state.KindFreeze)
				require.NoError(t, err)
				assert.Empty(t, len(freezes), "backup in step %s: the BMC is frozen", step)
				stop()
			})
		})
	}
}

// The same for a host that was fenced by hand: the order has had its effect long ago, and is not given anew by a
// backup. This one is of the moment after the first command was saved. // I4
func TestOrderOfAnOldBackupSwitchesNothing(t *testing.T) {
	dir := t.TempDir()
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.Recover()
		slowly := func(o *engine.Options) { waiting(o); o.Run.OffDeadline = time.Hour }
		e, _, stop := start(t, w, store, slowly)
		time.Sleep(10 * time.Second)
		_, err := e.Fence(t.Context(), byHand)
		require.NoError(t, err)
		var backup []state.Record
		for only(t, e).Step == remediate.PowerOff {
			if backup == nil && only(t, e).Intervened {
				backup = backupOf(t, store)
			}
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(20 * time.Minute)
		require.Equal(t, remediate.Aborted, only(t, e).Step, "the control plane reports the Node Ready all the time")
		stop()
		time.Sleep(12 * time.Minute)
		offs := w.Count(bmc.CommandOff)

		old, err := boltstore.Open(dir + "/old.db")
		require.NoError(t, err)
		defer func() { require.NoError(t, old.Close()) }()
		for _, r := range backup {
			r.Version = 0
			_, err := old.Put(t.Context(), r)
			require.NoError(t, err)
		}
		e, _, stop = start(t, w, old, slowly)
		time.Sleep(30 * time.Minute)
		r := only(t, e)
		assert.True(t, r.Step.Ended(), "%s %s: %s", r.Step, r.Reason, r.Note)
		assert.Equal(t, offs, w.Count(bmc.CommandOff))
		stop()
	})
}
