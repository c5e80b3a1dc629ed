package engine

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// Nobody is told that there is no limit while another installation takes the Lease. // I22
func TestNoticeGivesNoTimeWithoutAnEnd(t *testing.T) {
	var n notice
	var flip sync.WaitGroup
	done := make(chan struct{})
	flip.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			n.note(time.Now(), "", nil)
			n.note(time.Now(), "another fenced", nil)
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
