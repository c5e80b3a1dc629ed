package stop

import (
	"context"
	"fmt"
	"time"

	"github.com/fenced/fenced/internal/state"
)

// EndBy is the time by which stops end in a cluster, or in all, and records are old enough
// to be forgotten: of this host's clock and those of the API servers the one that is
// farthest behind, so that a clock which is ahead ends nothing. It is zero, and nothing is
// over, until the cluster was seen: whether this clock is right is not known before. // I23
func (s *Stop) EndBy(cluster string) time.Time {
	own, anySeen := s.clock.now(), false
	end := own
	for _, c := range s.clocksOf(cluster) {
		skew, seen := c.Clock()
		anySeen = anySeen || seen
		if byServer := time.Now().Add(skew); skew != 0 && byServer.Before(end) {
			end = byServer
		}
	}
	switch {
	case !anySeen:
		return time.Time{}
	case end.Before(own):
		s.behind.Store(&own)
	}
	return end
}

// beginBy is the time from which the length of a stop counts: the clock that is
// farthest ahead, so that nobody takes it for over before its time. // I23
func (s *Stop) beginBy(cluster string) time.Time {
	now := time.Now()
	begin := now
	for _, c := range s.clocksOf(cluster) {
		skew, _ := c.Clock()
		begin = later(begin, now.Add(skew))
	}
	return begin.UTC()
}

// clocksOf are the clusters whose API servers have a say about a stop. For one of a
// cluster that is not configured all have.
func (s *Stop) clocksOf(name string) map[string]Cluster {
	if c := s.clusters[name]; c != nil && name != state.AllClusters {
		return map[string]Cluster{name: c}
	}
	return s.clusters
}

// reached is when a stop that is over, and was to end then, has ended: not before what
// follows the end could begin, if a clock jumped over it, or one that was behind held it
// back.
func (s *Stop) reached(end time.Time) time.Time {
	ended := s.clock.reached(end)
	if at := s.behind.Load(); at != nil {
		ended = later(ended, *at)
	}
	return ended
}

// lockForOrder waits for the turn to change a stop, no longer than a person should.
func (s *Stop) lockForOrder(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, saveTime)
	defer cancel()
	return s.lockSaving(ctx)
}

// lockSaving waits for the turn as long as ctx lasts: who has it may wait for a store that
// hangs.
func (s *Stop) lockSaving(ctx context.Context) error {
	if err := s.saving.Acquire(ctx, 1); err != nil {
		return fmt.Errorf("wait until another change is stored: %w", err)
	}
	return nil
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
