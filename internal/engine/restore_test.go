package engine_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/test/fake"
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
		e, _, stop := start(t, w, store, func(o *engine.Options) { o.Clusters[0].Kube = u })
		time.Sleep(20 * time.Minute)
		r := only(t, e)
		require.Equal(t, remediate.Held, r.Step)
		assert.Equal(t, "RestoreFailed", string(r.Reason))
		assert.Contains(t, r.Note, "denied the request")
		assert.NotContains(t, r.Note, "\x1b")
		saved, err := state.Backups(t.Context(), store, r.ID)
		require.NoError(t, err)
		require.NotEmpty(t, saved)

		u.refusal.Store(nil)
		_, err = e.Retry(t.Context(), ofRun(r))
		require.NoError(t, err)
		time.Sleep(5 * time.Minute)
		assert.Equal(t, remediate.Done, only(t, e).Step)
		assert.True(t, w.Restored())
		assert.Equal(t, 1, w.Isolations())
		stop()
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
				e, _, stop = start(t, w, store, counting)
			}
			time.Sleep(10 * time.Minute)
			r := only(t, e)
			assert.Equal(t, remediate.Done, r.Step, "%s: %s", r.Reason, r.Note)
			assert.Equal(t, int32(1), k.writes.Load())
			assert.Nil(t, r.Restored, "the history stays small")
			stop()
		})
	}
}
