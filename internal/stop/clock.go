package stop

import (
	"sync"
	"time"
)

const (
	// smallStep is by how much a clock may be set forward without becoming doubtful.
	smallStep = 2 * time.Second
	// doubtTime is how long a clock that was set forward by more must stay there before it
	// is believed.
	doubtTime = 10 * time.Minute
)

// jumpTolerantClock is this host's clock as people's stops see it. If the clock jumps forward
// for a moment, no stop ends: until the clock has stayed there for doubtTime, the time
// continues from before the jump. If the clock is set back, it is believed at once, which only
// makes stops longer. // I23
type jumpTolerantClock struct {
	mu    sync.Mutex
	start time.Time // the zero of the monotonic clock

	wall time.Time     // the wall clock when it was last believed
	mono time.Duration // the monotonic clock then

	ahead    bool          // the wall clock is farther ahead than it can be
	jumpedAt time.Duration // the monotonic clock at the jump
	jump     time.Duration // the length of the jump

	skippedFrom, skippedTo time.Time // what the last believed jump skipped
}

func (c *jumpTolerantClock) now() time.Time {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.start.IsZero() {
		c.start, c.wall = now, now.Round(0)
	}
	return c.at(now.Round(0), now.Sub(c.start))
}

// at returns the time for these readings of the two clocks. The caller holds c.mu.
func (c *jumpTolerantClock) at(wall time.Time, mono time.Duration) time.Time {
	expected := c.wall.Add(mono - c.mono)
	jump := wall.Sub(expected)
	switch ahead := jump > smallStep; {
	case ahead && (!c.ahead || jump > c.jump+smallStep): // a second jump starts the doubt again
		c.ahead, c.jumpedAt, c.jump = true, mono, jump
		return expected
	case ahead && mono-c.jumpedAt < doubtTime:
		return expected
	}
	if jump > smallStep {
		c.skippedFrom, c.skippedTo = expected, wall
	}
	c.wall, c.mono, c.ahead = wall, mono, false
	return wall
}

// endedAt returns when a stop with this planned end has ended: not before the clock's own time
// after the jump, if the clock jumped over the planned end.
func (c *jumpTolerantClock) endedAt(end time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if end.After(c.skippedFrom) && end.Before(c.skippedTo) {
		return c.skippedTo
	}
	return end
}
