package sweep

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/hosts"
	"github.com/fenced/fenced/internal/reason"
)

// An empty list would read as that all is well.
func TestWhatWasNotSeenYetIsNotHealthy(t *testing.T) {
	w := newWorld()
	_, err := New(Options{Engine: w, Concurrency: 1}).Results(t.Context(), "")
	var refusal *reason.Refusal
	require.ErrorAs(t, err, &refusal)
	assert.Equal(t, reason.NotSynced, refusal.Reason)

	w.subjects = []hosts.Subject{{Cluster: "prod", Err: &reason.Refusal{Reason: reason.NotSynced, Message: "not seen whole"}}}
	w.run(t, func(t *testing.T) {
		w.wait(time.Second)
		all := w.results(t, "")
		require.Len(t, all, 1)
		assert.False(t, all[0].Dependable)
		assert.Equal(t, reason.NotSynced, all[0].Reason)
		assert.Equal(t, StateUnchecked, all[0].State)
		_, bad := w.sweep.Tally()
		assert.Empty(t, bad, "nothing is known to be bad")

		w.change(func() { w.subjects = nil })
		w.host(1)
		w.wait(emptyRefresh)
		assert.Equal(t, "n-1", w.results(t, "")[0].Node, "it is looked at again soon")
	})
}
