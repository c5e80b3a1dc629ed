package engine_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/test/fake"
)

// The store fails just after the isolation, so nobody can send On. docs/state.md ("When the etcd has no
// quorum") says what to do: "power the host on with its BMC. The run notices that." The host was
// off, and boots anew: its BMC told the truth, and must not be frozen. // I5, I20
func TestHostPoweredOnByHandWhileTheStoreIsLost(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.Do(func(s *fake.State) {
			s.OnIsolate = func(*fake.Node, remediate.Run, remediate.Backup) { store.set(true) }
		})
		e, _, stop := start(t, w, store, waiting)
		for w.Isolations() == 0 {
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(5 * time.Minute)
		require.False(t, w.On(), "On needs a record")
		w.SetPower(true) // as docs/state.md says
		time.Sleep(5 * time.Minute)
		require.True(t, w.Ready())
		store.set(false)
		time.Sleep(10 * time.Minute)
		r := only(t, e)
		assert.Equal(t, remediate.Done, r.Step, "%s: %s", r.Reason, r.Note)
		freezes, err := store.List(t.Context(), state.KindFreeze)
		require.NoError(t, err)
		assert.Empty(t, freezes, "the BMC is frozen although it told the truth")
		stop()
	})
}
