package run

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/fenced/fenced/test/wall"
)

// After a start, and after the clock was set, the record was saved by another clock. // I16
func TestClockThatWasSetIsAnotherClock(t *testing.T) {
	var c wallClock
	now := time.Now()
	assert.True(t, c.unsaved(now), "a new process")
	assert.True(t, c.unsaved(now.Add(time.Second)), "nothing was saved yet")
	c.saved = true
	assert.False(t, c.unsaved(now.Add(time.Hour)))
	assert.False(t, c.unsaved(wall.Set(now.Add(time.Hour), time.Second)), "it is corrected all the time")
	for _, by := range []time.Duration{time.Hour, -time.Hour} {
		c.last, c.saved = now, true
		assert.True(t, c.unsaved(wall.Set(now.Add(time.Minute), by)))
		c.saved = true
		assert.False(t, c.unsaved(wall.Set(now.Add(2*time.Minute), by)))
	}
}
