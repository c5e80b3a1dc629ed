package engine

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

// pause is one pause, of one cluster or of all.
type pause struct {
	by, reason string
	at, until  time.Time // until is zero for one that somebody must end
}

func pauseOf(r state.Cluster) (p pause, stands bool) {
	return pause{r.PausedBy, r.PausedReason, r.PausedAt, r.PausedUntil}, r.Paused
}

func (p pause) over(now time.Time) bool { return !p.until.IsZero() && !now.Before(p.until) }

func (p pause) text(cluster string) string {
	what := "cluster " + cluster
	if cluster == state.AllClusters {
		what = "everything"
	}
	return what + " is paused by " + p.by + until(p.until) + ": " + p.reason
}

// lengthened is the pause, or the one that stands there if that ends no earlier: then
// it goes on under the name and the reason of who gave it.
func (p pause) lengthened(old pause, stands bool) pause {
	if stands && noEarlier(old.until, p.until) {
		return old
	}
	return p
}

// put writes the pause into a cluster's record.
func (p pause) put(s *state.Cluster) {
	s.Paused, s.PausedBy, s.PausedReason, s.PausedAt, s.PausedUntil = true, p.by, p.reason, p.at, p.until
}

// resume takes the pause out of a cluster's record.
func resume(s *state.Cluster, at time.Time) {
	s.Paused, s.PausedBy, s.PausedReason, s.PausedAt, s.PausedUntil = false, "", "", time.Time{}, time.Time{}
	s.ResumedAt = later(s.ResumedAt, at)
}

func until(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return " until " + t.UTC().Format(time.RFC3339)
}

// paused says why nothing new may be begun in c, "" when it may. The end of a pause
// that nobody took back begins a quiet period, here and nowhere else: whoever sees
// that the pause is over sees the quiet period, too. // I16, I23
func (e *Engine) paused(c *cluster) string {
	why, ended := e.file.look(time.Now())
	if why == "" {
		why = e.corrupt.why()
	}
	for _, name := range []string{state.AllClusters, c.opt.Name} {
		for _, find := range []func(string) (pause, bool){e.stops.pause, e.storedPause} {
			p, stands := find(name)
			switch {
			case !stands:
			case p.over(e.stopsEndBy(name)):
				ended = later(ended, e.reached(p.until))
			case why == "":
				why = p.text(name) + e.overdue(p.until)
			}
		}
	}
	if !ended.IsZero() {
		c.beQuiet(ended)
	}
	return why
}

// beQuiet begins a quiet period. // I16
func (c *cluster) beQuiet(from time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.quiet = later(c.quiet, from.Add(c.e.opt.Guards.QuietPeriod))
}

// beQuiet begins a quiet period in one cluster, or in all.
func (e *Engine) beQuiet(cluster string, from time.Time) {
	for name, c := range e.clusters {
		if cluster == state.AllClusters || cluster == name {
			c.beQuiet(from)
		}
	}
}

func (e *Engine) storedPause(name string) (pause, bool) { return pauseOf(e.record(name)) }

// Pause stops everything new and everything that can still be taken back, in
// one cluster or, with no name, in all. It binds at once, whatever the store does. // I23
func (e *Engine) Pause(ctx context.Context, o order.Order) (order.Outcome, error) {
	if err := e.knows(o.Cluster); err != nil {
		return order.Outcome{}, err
	}
	now := time.Now().UTC()
	p := pause{by: o.Actor, reason: o.Reason, at: now, until: o.Ends(e.stopsBeginBy(o.Cluster))}
	length := until(p.until)
	for _, find := range []func(string) (pause, bool){e.stops.pause, e.storedPause} { // none is shortened
		p = p.lengthened(find(o.Cluster))
	}
	e.stops.setPause(o.Cluster, p)
	e.stirred(o.Cluster)
	e.opt.Events.Emit(o.Event("pauses" + length))
	out := order.Outcome{}
	if err := e.savePause(ctx, o.Cluster, p); err != nil {
		out.Unsaved = unsaved("paused", err)
		e.opt.Events.Emit(event.Event{Type: event.Failed, Cluster: o.Cluster, Message: out.Unsaved})
	} else if stored, stands := e.storedPause(o.Cluster); stands {
		p = stored // longer than what was known here, perhaps
	}
	out.Until, out.Earlier = p.until, earlier(o, p.by, p.reason)
	return out, nil
}

// knows refuses the name of a cluster that is not configured; none means all.
func (e *Engine) knows(cluster string) error {
	if cluster == state.AllClusters {
		return nil
	}
	_, err := e.cluster(cluster)
	return err
}

// savePause stores a pause that binds already.
func (e *Engine) savePause(ctx context.Context, name string, p pause) error {
	ctx, cancel := context.WithTimeout(ctx, saveTime)
	defer cancel()
	if err := e.stops.saving.lock(ctx); err != nil {
		return err
	}
	defer e.stops.saving.unlock()
	if now, stands := e.stops.pause(name); !stands || now != p { // taken back, or replaced, meanwhile
		return nil
	}
	err := e.changeRecord(ctx, name, func(s *state.Cluster) {
		old, stands := pauseOf(*s)
		p.lengthened(old, stands).put(s)
	})
	if err == nil {
		e.stops.dropPause(name, p)
	}
	return err
}

// Resume ends a pause; the quiet period follows. It does not take the pause file
// away: Outcome.Still says what pauses on.
func (e *Engine) Resume(ctx context.Context, o order.Order) (order.Outcome, error) {
	if err := e.knows(o.Cluster); err != nil {
		return order.Outcome{}, err
	}
	if err := e.stops.begin(ctx); err != nil {
		return order.Outcome{}, fmt.Errorf("resume; it stays as it is: %w", err)
	}
	defer e.stops.saving.unlock()
	now := time.Now().UTC()
	waiting, stands := e.stops.pause(o.Cluster)
	err := e.changeRecord(ctx, o.Cluster, func(s *state.Cluster) { resume(s, now) })
	if _, stored := e.storedPause(o.Cluster); err != nil && (stored || !stands) {
		return order.Outcome{}, fmt.Errorf("save that it is resumed; it stays as it is: %w", err)
	}
	e.beQuiet(o.Cluster, now)
	e.stops.dropPause(o.Cluster, waiting)
	e.stirred(o.Cluster)
	e.opt.Events.Emit(o.Event("resumes"))
	return order.Outcome{Still: e.stillPaused(o.Cluster)}, nil
}

// stillPaused says why a cluster (one of them, with no name) is paused although it
// was resumed; "" when none is.
func (e *Engine) stillPaused(cluster string) string {
	for _, name := range slices.Sorted(maps.Keys(e.clusters)) {
		if cluster != state.AllClusters && cluster != name {
			continue
		}
		if why := e.paused(e.clusters[name]); why != "" {
			return why + e.endsElsewhere(why, cluster, name)
		}
	}
	return ""
}

// endsElsewhere says how a pause ends that the order to resume did not mean; "" when
// why is not that of such a pause.
func (e *Engine) endsElsewhere(why, resumed, cluster string) string {
	name, hint := state.AllClusters, " (that ends without --cluster)"
	if resumed == state.AllClusters {
		name, hint = cluster, " (that ends with --cluster "+cluster+")"
	}
	for _, find := range []func(string) (pause, bool){e.stops.pause, e.storedPause} {
		if p, stands := find(name); stands && p.text(name) == why {
			return hint
		}
	}
	return ""
}
