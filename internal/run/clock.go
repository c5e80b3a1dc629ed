package run

import "time"

// clockStep is what a clock may be set by without being taken for another one.
const clockStep = 2 * time.Second

// wallClock is the clock by which a run is looked at.
type wallClock struct {
	last  time.Time // of the looks
	saved bool      // the record was saved since the process began, and since the clock was set
}

// set says whether no record was saved yet by this very clock.
func (c *wallClock) set(now time.Time) bool {
	if by := now.Round(0).Sub(c.last.Round(0)) - now.Sub(c.last); by.Abs() > clockStep && !c.last.IsZero() {
		c.saved = false
	}
	c.last = now
	return !c.saved
}
