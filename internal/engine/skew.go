package engine

import (
	"time"

	"github.com/fenced/fenced/internal/remediate"
)

// skewed says by how much this clock is wrong; "" when it is not known to be. // I16
func (c *cluster) skewed(v View) string {
	if v.Skew.Abs() <= c.e.opt.Guards.ClockSkewMax {
		return ""
	}
	return "this clock and the API server's differ by " + v.Skew.Abs().Round(time.Second).String()
}

// clockAgrees says whether this clock agrees with the API server's.
func (c *cluster) clockAgrees() remediate.Answer {
	v := c.view()
	if !v.SkewKnown {
		return remediate.CannotTell
	}
	return remediate.Ask(c.skewed(v) == "")
}

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
