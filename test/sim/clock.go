package sim

import (
	"context"
	"regexp"
	"time"

	"github.com/fenced/fenced/internal/state"
)

// The host of each fenced has a wall clock of its own, which differs from the others', and
// is set wrong now and then. Virtual time is what its monotonic clock shows, and the engine
// takes it for both. So what differs is what others have written: the API server's times,
// and those in the store, which each fenced writes by its own clock.

// differsMost is by how much a right clock differs from the API server's.
const differsMost = 2 * time.Second

// apart is by how much an instance may be wrong about a time that another has written.
func (p Plan) apart() time.Duration {
	if p.Clocks == 0 {
		return 0
	}
	return 2 * differsMost
}

// clock is how the wall clock of an instance's host stands. Guarded by the world's mutex.
type clock struct {
	skew    time.Duration // the API server's clock less this one, as its answers show
	since   time.Time     // when that changed
	differs time.Duration // skew of a right clock
	// ours is that of the times in the store. It follows skew a little later.
	ours    time.Duration
	follows time.Time // zero: it has
	mended  time.Time // when it is set right; zero: it is not wrong by hours
}

// setSkew changes what the API server's answers show. w.mu is held.
func (i *instance) setSkew(skew time.Duration, now time.Time) {
	i.clock.skew, i.clock.since = skew, now
	i.w.fault("clock-skew", "", "%s %s", i.name, skew)
}

// tickClock sets the clock wrong by hours, for a while, and then right. What a process has
// read of the store's times does not move in its memory with the clock, as wall times do:
// so it is wrong first, and a clock is set right while fenced is restarted. w.mu is held.
func (i *instance) tickClock(now time.Time) {
	w, c := i.w, &i.clock
	if !c.follows.IsZero() && now.After(c.follows) {
		c.ours, c.follows = c.skew, time.Time{}
	}
	chance := w.ticks.Float64() < w.plan.Clocks/3600
	switch due := now.After(c.mended); {
	case c.mended.IsZero() && !w.calm && chance:
		c.follows, c.mended = now.Add(10*time.Second), now.Add(between(w.ticks, 20*time.Second, 10*time.Minute))
		i.setSkew(between(w.ticks, -3*time.Hour, 3*time.Hour), now)
	case c.mended.IsZero(), !due:
	case i.cur != nil && !i.cur.dead:
		i.restart = c.mended
	default:
		*c = clock{skew: c.differs, since: now, differs: c.differs, ours: c.differs}
		w.note("", "the clock of %s is right", i.name)
	}
}

// righted is the store as it is read by a clock that is so much behind.
type righted struct {
	*memory
	skew time.Duration
}

// Get implements state.Store.
func (s righted) Get(ctx context.Context, kind state.Kind, key string) (state.Record, error) {
	r, err := s.memory.Get(ctx, kind, key)
	return ahead(r, s.skew), err
}

// List implements state.Store.
func (s righted) List(ctx context.Context, kind state.Kind) ([]state.Record, error) {
	list, err := s.memory.List(ctx, kind)
	for i := range list {
		list[i] = ahead(list[i], s.skew)
	}
	return list, err
}

// written are the times of a record.
var written = regexp.MustCompile(`"(1999|2000)-[0-9]{2}-[0-9]{2}T[0-9:.]+(Z|[+-][0-9:]+)"`)

// ahead is a record whose times are so much later.
func ahead(r state.Record, by time.Duration) state.Record {
	if by == 0 {
		return r
	}
	r.Data = written.ReplaceAllFunc(r.Data, func(quoted []byte) []byte {
		at, err := time.Parse(`"`+time.RFC3339Nano+`"`, string(quoted))
		if err != nil {
			panic("sim: read a time of a record: " + err.Error())
		}
		return []byte(at.Add(by).Format(`"` + time.RFC3339Nano + `"`))
	})
	return r
}
