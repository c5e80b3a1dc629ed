package sim

import (
	"context"
	"regexp"
	"time"

	"github.com/fenced/fenced/internal/state"
)

// The host of each fenced has its own wall clock, which differs from the others'
// and is sometimes set wrong. Virtual time is the monotonic clock, and the engine
// uses it for both. So only times that others wrote differ: the API server's, and
// those in the store, which each fenced writes by its own clock.

// differsMost is the maximum difference between a correct clock and the API
// server's.
const differsMost = 2 * time.Second

// apart is the maximum error of an instance about a time that another instance
// wrote.
func (p Plan) apart() time.Duration {
	if p.Clocks == 0 {
		return 0
	}
	return 2 * differsMost
}

// clock is the wall clock of an instance's host. Guarded by the world's mutex.
type clock struct {
	skew    time.Duration // the API server's clock minus this one, as its answers show
	since   time.Time     // time of the last change
	differs time.Duration // skew of a right clock
	// ours is the skew of the times in the store. It follows skew a little later.
	ours    time.Duration
	follows time.Time // zero: it has
	mended  time.Time // when it is set right; zero: it is not wrong by hours
}

// setSkew changes what the API server's answers show. w.mu is held.
func (i *instance) setSkew(skew time.Duration, now time.Time) {
	i.clock.skew, i.clock.since = skew, now
	i.w.fault("clock-skew", "", "%s %s", i.name, skew)
}

// tickClock sets the clock wrong by hours, for a while, and then right. Times
// from the store that a process holds in memory do not change when the clock is
// set, unlike its wall times. So the clock is set wrong before the start, and set
// right while fenced is restarted. w.mu is held.
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

// stamp is the version of a record and the skew with which it was written.
type stamp struct {
	version uint64
	skew    time.Duration
}

func stampKey(r state.Record) string { return string(r.Kind) + "/" + r.Key }

// correctedStore is the store as read with a clock that is behind by that much.
type correctedStore struct {
	*memory
	skew time.Duration
}

// Get implements state.Store.
func (s correctedStore) Get(ctx context.Context, kind state.Kind, key string) (state.Record, error) {
	r, err := s.memory.Get(ctx, kind, key)
	return shiftRecord(r, s.skew), err
}

// List implements state.Store.
func (s correctedStore) List(ctx context.Context, kind state.Kind) ([]state.Record, error) {
	list, err := s.memory.List(ctx, kind)
	for i := range list {
		list[i] = shiftRecord(list[i], s.skew)
	}
	return list, err
}

// written matches the times in a record.
var written = regexp.MustCompile(`"(1999|2000)-[0-9]{2}-[0-9]{2}T[0-9:.]+(Z|[+-][0-9:]+)"`)

// shiftRecord returns a record with times that are later by that much.
func shiftRecord(r state.Record, by time.Duration) state.Record {
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
