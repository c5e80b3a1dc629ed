package lead

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/suspend"
)

// A leadership has not ended while anything in it runs, not even the goroutine that bounds an action.
func TestLeadershipWaitsForWhatBoundsAnAction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		until := time.Now().Add(10 * time.Second)
		claim := state.Claim{Until: func() time.Time { return until }}
		l := newLeadership(t.Context(), claim, suspend.StayAwake(func() time.Duration { return 0 }))
		var bounded context.Context
		assert.True(t, l.Spawn(func(context.Context) {
			bounded, _ = l.bound(context.Background(), false, until)
		}))
		l.end()
		assert.ErrorIs(t, bounded.Err(), context.Canceled)
		assert.False(t, time.Now().Before(until))
		assert.False(t, l.Spawn(func(context.Context) { t.Error("something began in a leadership that is over") }))
	})
}
