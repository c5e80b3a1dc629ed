package stop

import (
	"sync"
	"time"
)

const (
	// smallStep is what a clock may be set forward by without being doubted.
	smallStep = 2 * time.Second
	// doubted is how long a clock that was set forward by more must stay there.
	doubted = 10 * time.Minute
)

// jumpTolerantClock is the time by which people's stops end. A clock that jumps forward for a
// moment ends none: until it has stayed there, the time goes on from before the jump.
// One that is set back is believed at once, which only lengthens them. // I23
type jumpTolerantClock struct {
	mu     sync.Mutex
	began  time.Time     // of the monotonic clock
	wall   time.Time     // that was believed last,
	mono   time.Duration // and when
	ahead  bool          // the clock is further on than it can be,
	jumped time.Duration // since then,
	by     time.Duration // and by so much

	from, to time.Time // what the last jump that was believed passed over
}

func (s *jumpTolerantClock) now() time.Time {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.began.IsZero() {
		s.began, s.wall = now, now.Round(0)
	}
	return s.at(now.Round(0), now.Sub(s.began))
}

// at is the time when the clocks show these. s.mu is held.
func (s *jumpTolerantClock) at(wall time.Time, mono time.Duration) time.Time {
	expected := s.wall.Add(mono - s.mono)
	by := wall.Sub(expected)
	switch ahead := by > smallStep; {
	case ahead && (!s.ahead || by > s.by+smallStep): // a jump on top of one begins anew
		s.ahead, s.jumped, s.by = true, mono, by
		return expected
	case ahead && mono-s.jumped < doubted:
		return expected
	}
	if by > smallStep {
		s.from, s.to = expected, wall
	}
	s.wall, s.mono, s.ahead = wall, mono, false
	return wall
}

// reached is when a stop that is over, and was to end then, has ended: not before what
// follows the end could begin, if the clock jumped over it.
func (s *jumpTolerantClock) reached(end time.Time) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if end.After(s.from) && end.Before(s.to) {
		return s.to
	}
	return end
}
