package engine

import "time"

// view is the watched one. One from before a suspend is as good as none: like the first
// one after a start it counts once it was proven. The end of a suspend also begins a quiet
// period, like that of an outage: what came meanwhile was missed here. // I16
func (c *cluster) view() View {
	v := c.opt.Watch.View()
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if why := c.awake.Over(); why != "" {
		c.awake, c.suspend, c.woken = c.e.stayAwake(), why, now
		c.quiet = later(c.quiet, now.Add(c.e.opt.Guards.QuietPeriod))
		clear(c.evidence)
	}
	if !c.woken.IsZero() && now.Sub(c.woken) <= v.Age {
		v.Synced, v.Problem = false, joined(c.suspend, v.Problem)
	}
	return v
}
