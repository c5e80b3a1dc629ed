package engine

import (
	"time"

	"github.com/fenced/fenced/internal/state"
)

// stopsEndBy is the time by which stops of people end in a cluster, or in all, and records
// are old enough to be forgotten: of this host's clock and those of the API servers the one
// that is farthest behind, so that a clock which is ahead ends nothing. It is zero, and
// nothing is over, until the cluster was seen: whether this clock is right is not known
// before. // I23
func (e *Engine) stopsEndBy(cluster string) time.Time {
	own, seen := e.clock.now(), false
	end := own
	for _, c := range e.clocksOf(cluster) {
		v := c.view()
		if seen = seen || v.Synced; c.skewed(v) != "" {
			end = earliest(end, time.Now().Add(v.Skew))
		}
	}
	switch {
	case !seen:
		return time.Time{}
	case end.Before(own):
		e.behind.Store(&own)
	}
	return end
}

// stopsBeginBy is the time from which the length of a stop counts: the clock that is
// farthest ahead, so that nobody takes it for over before its time. // I23
func (e *Engine) stopsBeginBy(cluster string) time.Time {
	now := time.Now()
	begin := now
	for _, c := range e.clocksOf(cluster) {
		if v := c.view(); c.skewed(v) != "" {
			begin = later(begin, now.Add(v.Skew))
		}
	}
	return begin.UTC()
}

// clocksOf are the clusters whose API servers have a say about a stop. For one of a
// cluster that is not configured all have.
func (e *Engine) clocksOf(name string) map[string]*cluster {
	if c := e.clusters[name]; c != nil && name != state.AllClusters {
		return map[string]*cluster{name: c}
	}
	return e.clusters
}

// reached is when a stop that is over, and was to end then, has ended: not before what
// follows the end could begin, if a clock jumped over it, or one that was behind held it
// back.
func (e *Engine) reached(end time.Time) time.Time {
	ended := e.clock.reached(end)
	if at := e.behind.Load(); at != nil {
		ended = later(ended, *at)
	}
	return ended
}

// overdue says why a stop goes on although this clock has passed its end; "" where it has
// not.
func (e *Engine) overdue(until time.Time) string {
	if until.IsZero() || e.clock.now().Before(until) {
		return ""
	}
	return " (it goes on while the API server was not seen, or its clock has not passed the end)"
}
