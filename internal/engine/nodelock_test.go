package engine_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/test/fake"
)

// lockOf is medik8s' Lease on n-1; the zero value if there is none.
func (w *world) lockOf() (l fake.NodeLock) {
	w.Do(func(s *fake.State) { l = s.NodeLocks["n-1"] })
	return l
}

func (w *world) installMedik8s() { w.Do(func(s *fake.State) { s.Medik8s = true }) }

// A run holds medik8s' Lease on its Node from before its first command until its end.
func TestRunHoldsTheNodeLock(t *testing.T) { // I22
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.installMedik8s()
		e, _, stop := start(t, w, store, nil)
		defer stop()
		require.Eventually(t, func() bool { return len(w.Commands()) > 0 }, 10*time.Minute, time.Second)
		r := only(t, e)
		assert.Equal(t, r.ID, w.lockOf().Run)
		for only(t, e).Step != remediate.Done {
			assert.False(t, w.lockOf().Expired())
			time.Sleep(time.Second)
		}
		time.Sleep(10 * time.Second)
		assert.Empty(t, w.lockOf(), "it is given back")
	})
}
