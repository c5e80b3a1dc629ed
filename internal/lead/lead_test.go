package lead

import (
	"context"
	"sync"
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

// While another installation takes the Lease, it is never answered that there is no end. // I22
func TestLeaseStatusAlwaysHasAnEnd(t *testing.T) {
	var n leaseStatus
	var flip sync.WaitGroup
	done := make(chan struct{})
	flip.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			n.note(time.Now(), time.Hour, "", nil)
			n.note(time.Now(), 0, "another fenced", nil)
		}
	})
	endless := 0
	for range 300_000 {
		if end, _, why := n.known(time.Now()); why == "" && end.IsZero() {
			endless++
		}
	}
	close(done)
	flip.Wait()
	assert.Zero(t, endless)
}

// Others do not act for as long as the announcement binds them, counted from before the
// call. // I22
func TestLeaseStatusEndsWhenOthersMayAct(t *testing.T) {
	var n leaseStatus
	at := time.Now()
	n.note(at, 7*time.Second, "", nil)
	end, _, why := n.known(at.Add(7*time.Second - 1))
	assert.Equal(t, at.Add(7*time.Second), end)
	assert.Empty(t, why)
	_, _, why = n.known(at.Add(7 * time.Second))
	assert.NotEmpty(t, why)

	n.note(at, 0, "", nil) // binds nobody
	_, _, why = n.known(at)
	assert.NotEmpty(t, why)
}
