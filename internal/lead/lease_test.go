package lead

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// While another installation takes the Lease, until never answers that there is no end. // I22
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
		if end, why := n.until(time.Now()); why == "" && end.IsZero() {
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
	end, why := n.until(at.Add(7*time.Second - 1))
	assert.Equal(t, at.Add(7*time.Second), end)
	assert.Empty(t, why)
	_, why = n.until(at.Add(7 * time.Second))
	assert.NotEmpty(t, why)

	n.note(at, 0, "", nil) // binds nobody
	_, why = n.until(at)
	assert.NotEmpty(t, why)
}
