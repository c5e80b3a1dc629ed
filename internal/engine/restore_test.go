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
)

// unrestored is a cluster in which somebody who admits writes refuses what is restored.
type unrestored struct {
	engine.Kube
	refusal atomic.Pointer[error]
}

func (u *unrestored) Act(ctx context.Context, r remediate.Run, a remediate.Action, backups [][]byte, b remediate.Backup) error {
	if refusal := u.refusal.Load(); a == remediate.RestoreTargetNode && refusal != nil {
		return *refusal
	}
	return u.Kube.Act(ctx, r, a, backups, b)
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
