package engine

import (
	"context"
	"time"
)

const (
	// nap is the longest suspend that is none: claims and proofs leave that much.
	nap = time.Second
	// suspendCheck is how often it is asked whether there was one.
	suspendCheck = time.Second
)

// awake is a time in which this host was not suspended. The monotonic clock, by which
// proofs, claims and views grow old, stands still in a suspend: none of them outlasts
// one. // I1, I16, I19
type awake struct {
	suspended func() time.Duration
	before    time.Duration
}

// stayAwake begins such a time.
func (e *Engine) stayAwake() awake { return awake{e.opt.Suspended, e.opt.Suspended()} }

// over says that it is over, and for how long the host was suspended; "" while it is not.
func (a awake) over() string {
	if by := a.suspended() - a.before; by > nap {
		return "this host was suspended for " + by.Round(time.Second).String()
	}
	return ""
}

// wait returns when it is over, and says so, or "" when ctx ends.
func (a awake) wait(ctx context.Context) string {
	tick := time.NewTicker(suspendCheck)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ""
		case <-tick.C:
		}
		if why := a.over(); why != "" {
			return why
		}
	}
}

// view is the watched one. One from before a suspend is as good as none: like the first
// one after a start it counts once it was proven. The end of a suspend also begins a quiet
// period, like that of an outage: what came meanwhile was missed here. // I16
func (c *cluster) view() View {
	v := c.opt.Watch.View()
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if why := c.awake.over(); why != "" {
		c.awake, c.suspend, c.woken = c.e.stayAwake(), why, now
		c.quiet = later(c.quiet, now.Add(c.e.opt.Guards.QuietPeriod))
		clear(c.evidence)
	}
	if !c.woken.IsZero() && now.Sub(c.woken) <= v.Age {
		v.Synced, v.Problem = false, joined(c.suspend, v.Problem)
	}
	return v
}
