package lead

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// Nobody is told that there is no limit while another installation takes the Lease. // I22
func TestNoticeGivesNoTimeWithoutAnEnd(t *testing.T) {
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
	limitless := 0
	for range 300_000 {
		if end, why := n.until(time.Now()); why == "" && end.IsZero() {
			limitless++
		}
	}
	close(done)
	flip.Wait()
	assert.Zero(t, limitless)
}

// Others stay away as long as the announcement says and not a moment longer, counted
// from before it was made. // I22
func TestNoticeEndsWithWhatBindsOthers(t *testing.T) {
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
