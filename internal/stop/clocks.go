package stop

import (
	"sync/atomic"
	"time"
)

// clocks are the clocks that decide when a stop begins and ends: this host's, and those of
// the API servers. None of them alone can end a stop early. // I23
type clocks struct {
	clusters *clusters
	own      jumpTolerantClock
	// heldBack is the last time, by this host's clock, at which an API server's clock that
	// was behind kept a stop from ending.
	heldBack atomic.Pointer[time.Time]
}

// endBy is the time by which the stops of a cluster, or of all, end. It is the clock that is
// farthest behind, so that a clock that is ahead ends nothing. It is zero, and nothing ends,
// until the cluster was seen: before that, nobody knows whether this host's clock is right. // I23
func (c *clocks) endBy(cluster string) time.Time {
	own, anySeen := c.own.now(), false
	end := own
	for _, each := range c.counting(cluster) {
		skew, seen := each.Clock()
		anySeen = anySeen || seen
		if byServer := time.Now().Add(skew); skew != 0 && byServer.Before(end) {
			end = byServer
		}
	}
	switch {
	case !anySeen:
		return time.Time{}
	case end.Before(own):
		c.heldBack.Store(&own)
	}
	return end
}

// startBy is the time from which the length of a stop counts. It is the clock that is
// farthest ahead, so that by no clock the stop ends before its time. // I23
func (c *clocks) startBy(cluster string) time.Time {
	now := time.Now()
	start := now
	for _, each := range c.counting(cluster) {
		skew, _ := each.Clock()
		start = later(start, now.Add(skew))
	}
	return start.UTC()
}

// counting returns the clusters whose clocks count for a stop. If the stop is about a cluster
// that is not configured, the clocks of all clusters count.
func (c *clocks) counting(cluster string) map[string]Cluster {
	if one := c.clusters.named(cluster); len(one) > 0 {
		return one
	}
	return c.clusters.All()
}

// endedAt returns when a stop that is over has ended. This is its planned end, or later if a
// clock jumped over the planned end, or if a clock that is behind held it back: what follows
// the end, the quiet period, could not begin before.
func (c *clocks) endedAt(end time.Time) time.Time {
	ended := c.own.endedAt(end)
	if at := c.heldBack.Load(); at != nil {
		ended = later(ended, *at)
	}
	return ended
}

// overdueText explains why a stop continues although this host's clock has passed its end. It
// is "" if the clock has not.
func (c *clocks) overdueText(until time.Time) string {
	if until.IsZero() || c.own.now().Before(until) {
		return ""
	}
	return " (it goes on while the API server was not seen, or its clock has not passed the end)"
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
