package engine_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/test/fake"
)

// A BMC that falls silent during a run is told when it begins, and not at each look; one that
// answers every other look, once a minute at most.
func TestSilentBMCOfARunIsToldOnce(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.SetFault(fake.IgnoresOff)
		e, events, stop := start(t, w, store, func(o *engine.Options) { o.Run.OffDeadline = time.Hour })
		time.Sleep(70 * time.Second)
		require.Equal(t, remediate.PowerOff, only(t, e).Step)
		told := func() []event.Event {
			return eventsOf(t, events, func(ev event.Event) bool { return ev.Type == event.Failed && ev.Run != "" })
		}
		require.Empty(t, told())
		w.FailReads(noAnswer())
		time.Sleep(10 * time.Minute)
		require.Len(t, told(), 1)
		assert.Equal(t, "BMCUnreachable", string(told()[0].Reason))
		assert.Contains(t, told()[0].Message, "no answer")
		assert.Equal(t, remediate.PowerOff, told()[0].Step)
		for i := range 150 {
			if i%2 == 0 {
				w.FailReads(nil)
			} else {
				w.FailReads(noAnswer())
			}
			time.Sleep(4 * time.Second)
		}
		assert.Greater(t, len(told()), 3)
		assert.LessOrEqual(t, len(told()), 12, "in 10 minutes")
		stop()
	})
}
