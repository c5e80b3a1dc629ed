package stop

import (
	"cmp"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/times"
	"github.com/fenced/fenced/internal/wire"
)

// key names what a stop is about: a Node by its name or a Machine by its "namespace/name", a
// cluster if node is empty, all clusters if both are empty.
type key struct{ cluster, node string }

// event completes an event about what the key names.
func (k key) event(e event.Event) event.Event {
	e.Cluster = k.cluster
	if strings.Contains(k.node, "/") {
		e.Machine = k.node
	} else {
		e.Node = k.node
	}
	return e
}

// holdOver is the event that a hold has ended by its time.
func (k key) holdOver(by string) event.Event {
	return k.event(event.Event{Type: event.Ordered, Message: "the hold by " + by + " is over"})
}

func compareKeys(a, b key) int {
	return cmp.Or(strings.Compare(a.cluster, b.cluster), strings.Compare(a.node, b.node))
}

// stop is a person's pause or hold. The zero value means that there is none.
type stop struct {
	by, reason string
	at, until  time.Time // until is zero if a person must end the stop
	selector   string    // of a hold: see state.Hold
}

// active reports whether there is a stop and its time is not over.
func (s stop) active(now time.Time) bool {
	return s.by != "" && (s.until.IsZero() || now.Before(s.until))
}

// orLonger returns s, or the active stop old if that ends no earlier. Then old continues with
// the name and the reason of the person who gave it.
func (s stop) orLonger(old stop, now time.Time) stop {
	if old.active(now) && (old.until.IsZero() || !s.until.IsZero() && !old.until.Before(s.until)) {
		return old
	}
	return s
}

// earlierThan says who gave the stop that binds in place of the one that was ordered, and why; "" if the ordered one binds.
func (s stop) earlierThan(ordered stop) string {
	if s.by == ordered.by && s.reason == ordered.reason && s.selector == ordered.selector {
		return ""
	}
	return s.by + ": " + s.reason
}

// untilText is the end of a stop in a sentence; "" if it has none.
func untilText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return " until " + t.UTC().Format(time.RFC3339)
}

// pauseText says that a cluster, or everything, is paused.
func pauseText(cluster string, p stop) string {
	what := "cluster " + cluster
	if cluster == state.AllClusters {
		what = "everything"
	}
	return what + " is paused by " + p.by + untilText(p.until) + ": " + p.reason
}

// pauseOf is the pause in a cluster's record.
func pauseOf(r state.Cluster) stop {
	if !r.Paused {
		return stop{}
	}
	return stop{by: cmp.Or(r.PausedBy, "nobody known"), reason: r.PausedReason, at: r.PausedAt, until: r.PausedUntil}
}

// holdOf is the hold in a record, unless a person released it.
func holdOf(h state.Hold) stop {
	if h.ReleasedBy != "" {
		return stop{}
	}
	return stop{h.By, h.Reason, h.At, h.Until, h.Selector}
}

// unsavedStops are the stops that bind already and that the store has not saved yet.
type unsavedStops struct {
	mu    sync.Mutex
	byKey map[key]stop
}

// get returns the unsaved stop of a key. The zero value means that there is none.
func (u *unsavedStops) get(k key) stop {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.byKey[k]
}

// extend sets a stop, unless one that is there ends no earlier, and returns the one that is there then.
func (u *unsavedStops) extend(k key, v stop, now time.Time) stop {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.byKey[k] = v.orLonger(u.byKey[k], now)
	return u.byKey[k]
}

// drop removes this stop, but not another one that has taken its place.
func (u *unsavedStops) drop(k key, v stop) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.byKey[k] == v {
		delete(u.byKey, k)
	}
}

func (u *unsavedStops) all() map[key]stop {
	u.mu.Lock()
	defer u.mu.Unlock()
	return maps.Clone(u.byKey)
}

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

// clocks are the clocks that decide when a stop begins and ends: this host's, and those of
// the API servers. None of them alone can end a stop early. // I23
type clocks struct {
	clusters *clusters
	own      jumpTolerantClock
	// heldBack is the last time, by this host's clock, at which an API server's clock that
	// was behind kept a stop from ending.
	heldBack atomic.Pointer[time.Time]
}

// EndBy is the time by which the stops of a cluster, or of all, end, and by which old records are
// deleted. It is the clock that is farthest behind, so that a clock that is ahead ends nothing. It is
// zero, and nothing ends, until the cluster was seen: before that, nobody knows whether this host's
// clock is right. // I23
func (s *Stop) EndBy(cluster string) time.Time {
	c := s.clocks
	own, anySeen := c.own.now(), false
	end := own
	for _, each := range c.counting(cluster) {
		skew, seen := each.Skew()
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

// stopBy is the stop that an order asks for.
func (c *clocks) stopBy(o wire.Order) stop {
	return stop{by: o.Actor, reason: o.Reason, at: time.Now().UTC(), until: o.Ends(c.startBy(o.Cluster))}
}

// startBy is the time from which the length of a stop counts. It is the clock that is
// farthest ahead, so that by no clock the stop ends before its time. // I23
func (c *clocks) startBy(cluster string) time.Time {
	now := time.Now()
	start := now
	for _, each := range c.counting(cluster) {
		skew, _ := each.Skew()
		start = times.Later(start, now.Add(skew))
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
		ended = times.Later(ended, *at)
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
