package stop

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/order"
	"github.com/fenced/fenced/internal/state"
)

// pauseText says that a cluster, or everything, is paused.
func pauseText(cluster string, p stop) string {
	what := "cluster " + cluster
	if cluster == state.AllClusters {
		what = "everything"
	}
	return what + " is paused by " + p.by + untilText(p.until) + ": " + p.reason
}

// pauses are those of one cluster, or of all: the one that waits for the store, and the
// one that the store has.
func (s *Stop) pauses(cluster string) []stop {
	return []stop{s.getWaiting(key{cluster: cluster}), s.stored(key{cluster: cluster})}
}

// Paused says why nothing new may be begun in a cluster, "" when it may. The end of a pause
// that nobody took back begins a quiet period, here and nowhere else: whoever sees that the
// pause is over sees the quiet period, too. // I16, I23
func (s *Stop) Paused(cluster string) string {
	why, ended := s.file.look(time.Now())
	if why == "" {
		why = s.corrupt.why()
	}
	for _, name := range []string{state.AllClusters, cluster} {
		for _, p := range s.pauses(name) {
			switch {
			case p == stop{}:
			case !p.active(s.EndBy(name)):
				ended = later(ended, s.reached(p.until))
			case why == "":
				why = pauseText(name, p) + s.overdue(p.until)
			}
		}
	}
	if c := s.clusters[cluster]; c != nil && !ended.IsZero() {
		c.BeQuiet(ended)
	}
	return why
}

// Pause stops everything new and everything that can still be taken back, in one cluster
// or, with no name, in all. // I23
func (s *Stop) Pause(ctx context.Context, o order.Order) order.Outcome {
	return s.begin(ctx, key{cluster: o.Cluster}, o, "pauses", "paused")
}

// savePause stores a pause, unless a longer one is there.
func (s *Stop) savePause(ctx context.Context, cluster string, p stop) error {
	return s.Change(ctx, cluster, func(r *state.Cluster) {
		p := p.orLonger(pauseOf(*r), s.EndBy(cluster))
		r.Paused, r.PausedBy, r.PausedReason, r.PausedAt, r.PausedUntil = true, p.by, p.reason, p.at, p.until
	})
}

// clearPause takes the pause out of a cluster's record.
func clearPause(r *state.Cluster, at time.Time) {
	r.Paused, r.PausedBy, r.PausedReason, r.PausedAt, r.PausedUntil = false, "", "", time.Time{}, time.Time{}
	r.ResumedAt = later(r.ResumedAt, at)
}

// Resume ends a pause; the quiet period follows. It does not remove the pause file:
// Outcome.Still says what pauses on.
func (s *Stop) Resume(ctx context.Context, o order.Order) (order.Outcome, error) {
	if err := s.lockForOrder(ctx); err != nil {
		return order.Outcome{}, fmt.Errorf("resume; it stays as it is: %w", err)
	}
	defer s.saving.Release(1)
	now, k := time.Now().UTC(), key{cluster: o.Cluster}
	waiting := s.getWaiting(k)
	err := s.Change(ctx, o.Cluster, func(r *state.Cluster) { clearPause(r, now) })
	if err != nil && (s.stored(k) != stop{} || waiting == stop{}) {
		return order.Outcome{}, fmt.Errorf("save that it is resumed; it stays as it is: %w", err)
	}
	s.beQuiet(o.Cluster, now)
	s.dropWaiting(k, waiting)
	s.wake(o.Cluster)
	s.opt.Emit(o.Event("resumes"))
	return order.Outcome{Still: s.stillPaused(o.Cluster)}, nil
}

// stillPaused says why a cluster (one of them, with no name) is paused although it
// was resumed; "" when none is.
func (s *Stop) stillPaused(cluster string) string {
	for _, name := range slices.Sorted(maps.Keys(s.clusters)) {
		if cluster != state.AllClusters && cluster != name {
			continue
		}
		if why := s.Paused(name); why != "" {
			return why + s.endsElsewhere(why, cluster, name)
		}
	}
	return ""
}

// endsElsewhere says how a pause ends that the order to resume did not mean; "" when
// why is not that of such a pause.
func (s *Stop) endsElsewhere(why, resumed, cluster string) string {
	name, hint := state.AllClusters, " (that ends without --cluster)"
	if resumed == state.AllClusters {
		name, hint = cluster, " (that ends with --cluster "+cluster+")"
	}
	for _, p := range s.pauses(name) {
		if (p != stop{}) && pauseText(name, p) == why {
			return hint
		}
	}
	return ""
}

// endPauses ends in the store what is over, and begins the quiet period. // I16, I23
func (s *Stop) endPauses(ctx context.Context) {
	for _, name := range append(slices.Sorted(maps.Keys(s.clusters)), state.AllClusters) {
		now := s.EndBy(name)
		if p := s.stored(key{cluster: name}); (p == stop{}) || p.active(now) {
			continue
		}
		var ended stop
		err := s.Change(ctx, name, func(r *state.Cluster) {
			ended = stop{}
			if p := pauseOf(*r); (p != stop{}) && !p.active(now) { // unless another instance was faster
				ended = p
				clearPause(r, s.reached(p.until))
			}
		})
		if err == nil && (ended != stop{}) {
			s.opt.Emit(event.Event{Type: event.Ordered, Cluster: name, Message: "the pause by " + ended.by + " is over; the quiet period begins"})
		}
	}
}

// storeFileEnd makes the quiet period after the pause file survive a restart.
func (s *Stop) storeFileEnd(ctx context.Context, now time.Time) {
	_, ended := s.file.look(now)
	if ended.IsZero() || !s.Record(state.AllClusters).ResumedAt.Before(ended) {
		return
	}
	_ = s.Change(ctx, state.AllClusters, func(r *state.Cluster) { r.ResumedAt = later(r.ResumedAt, ended.UTC()) })
}
