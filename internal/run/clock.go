package run

import "time"

// clockStep is by how much a clock may be set without counting as another clock.
const clockStep = 2 * time.Second

// wallClock is the clock by which one run is looked at.
type wallClock struct {
	last  time.Time // the time of the last look
	saved bool      // the record was saved since the process started, and since the clock was set
}

// unsaved reports whether no record was saved yet by this clock as it is now.
func (c *wallClock) unsaved(now time.Time) bool {
	if by := now.Round(0).Sub(c.last.Round(0)) - now.Sub(c.last); by.Abs() > clockStep && !c.last.IsZero() {
		c.saved = false
	}
	c.last = now
	return !c.saved
}
