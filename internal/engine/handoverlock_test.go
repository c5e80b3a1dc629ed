package engine_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/test/fake"
)

// In place of a NodeHealthCheck's controller fenced holds medik8s' Lease on the Node from before it asks
// another remediator until the request is gone, also after a restart.
func TestAskedRemediatorHasTheNodeLock(t *testing.T) { // I22
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.installMedik8s()
		w.Do(func(s *fake.State) {
			s.OnHandover = func() error {
				assert.NotEmpty(t, w.lockOf().Run, "the Lease is taken before the request is made")
				return nil
			}
		})
		change := handingOver(w)
		_, _, stop := start(t, w, store, change)
		awaitAsked(t, w, "one is asked", func() bool { return len(others(w)) == 1 })
		record := askedRecord(t, store).ID
		answer(w, "True")
		for range 20 {
			time.Sleep(time.Minute)
			assert.Equal(t, record, w.lockOf().Run)
			assert.Less(t, time.Since(w.lockOf().Renewed), 2*time.Minute, "it is renewed")
		}
		stop()
		_, _, stop = start(t, w, store, change)
		time.Sleep(20 * time.Minute)
		assert.Equal(t, record, w.lockOf().Run)
		assert.False(t, w.lockOf().Expired())
		answer(w, "False")
		w.Recover()
		time.Sleep(5 * time.Minute)
		assert.Empty(t, others(w))
		assert.Empty(t, w.lockOf(), "it is given back")
		stop()
	})
}

// While somebody else has the Node, no other remediator is asked.
func TestNodeLockOfOthersDelaysTheRequest(t *testing.T) { // I22
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.installMedik8s()
		w.Do(func(s *fake.State) {
			s.NodeLocks["n-1"] = fake.NodeLock{Holder: "node-maintenance", Renewed: time.Now().Add(10 * time.Minute)}
		})
		e, _, stop := start(t, w, store, handingOver(w))
		time.Sleep(14 * time.Minute)
		assert.Empty(t, others(w))
		assert.Contains(t, gate(t, e, reason.Contested).Value, "node-maintenance")
		awaitAsked(t, w, "one is asked when the Lease has expired", func() bool { return len(others(w)) == 1 })
		stop()
	})
}

// foreignLockKube answers that somebody has taken the Lease on the Node since it was looked at.
type foreignLockKube struct {
	engine.Kube
	until time.Time
}

func (k foreignLockKube) LockNode(ctx context.Context, r remediate.Run) (time.Duration, string, error) {
	if time.Now().Before(k.until) {
		return 0, "node-maintenance holds the Lease node-n-1", nil
	}
	return k.Kube.LockNode(ctx, r)
}

// Somebody takes the Node after the look, or the Lease cannot be taken: the request is not made, and no
// record of it stays.
func TestNoRequestWithoutTheNodeLock(t *testing.T) { // I22
	for name, c := range map[string]struct {
		change func(o *engine.Options, mended time.Time)
		code   reason.Code
		says   string
	}{
		"taken by somebody": {func(o *engine.Options, mended time.Time) {
			o.Clusters[0].Kube = foreignLockKube{o.Clusters[0].Kube, mended}
		}, reason.Contested, "node-maintenance"},
		"refused": {func(o *engine.Options, mended time.Time) {
			withLock(func(context.Context, remediate.Run) error {
				if time.Now().Before(mended) {
					return errors.New("forbidden")
				}
				return nil
			})(o)
		}, reason.RequestFailed, "keep other remediators away from Node n-1: forbidden"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world, store *failingStore) {
				w.installMedik8s()
				mended := time.Now().Add(30 * time.Minute)
				hand := handingOver(w)
				e, _, stop := start(t, w, store, func(o *engine.Options) { hand(o); c.change(o, mended) })
				time.Sleep(29 * time.Minute)
				assert.Empty(t, others(w))
				assert.Contains(t, gate(t, e, c.code).Value, c.says)
				awaitAsked(t, w, "one is asked", func() bool { return len(others(w)) == 1 })
				assert.Len(t, askedRecord(t, store).Objects, 1)
				stop()
			})
		})
	}
}

// A Lease that is lost while a remediator works delays nothing that fenced does with the request.
func TestLostNodeLockDelaysNoEndOfARequest(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.installMedik8s()
		_, _, stop := start(t, w, store, handingOver(w))
		awaitAsked(t, w, "one is asked", func() bool { return len(others(w)) == 1 })
		answer(w, "True")
		w.Do(func(s *fake.State) {
			s.NodeLocks["n-1"] = fake.NodeLock{Holder: "node-maintenance", Renewed: time.Now().Add(time.Hour)}
		})
		time.Sleep(10 * time.Minute)
		require.Len(t, others(w), 1)
		answer(w, "False")
		w.Recover()
		time.Sleep(5 * time.Minute)
		assert.Empty(t, others(w))
		assert.Equal(t, "node-maintenance", w.lockOf().Holder)
		stop()
	})
}
