package sim

import (
	"slices"
	"time"

	"github.com/fenced/fenced/internal/admit"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/test/fake"
)

// view is the cached view of one fenced; it implements admit.Watch. It is late,
// sometimes stuck, and dead while the API server cannot be reached. Guarded by
// the world's mutex.
type view struct {
	inc    *incarnation
	signal chan struct{}
	pos    int // in the history
	synced bool
	begun  time.Time
	proven time.Time // when it was last as new as the API server
	since  time.Time // of the end of the last outage
	lag    time.Duration
	stuck  time.Time     // until then
	dated  time.Duration // skew of the times in its objects
}

// outageAfter is the length of an outage after which a quiet period
// starts. // I16
const outageAfter = time.Minute

func newView(inc *incarnation) *view {
	return &view{inc: inc, signal: make(chan struct{}, 1), begun: time.Now().Add(time.Second), proven: time.Now()}
}

// Changed implements admit.Watch.
func (v *view) Changed() <-chan struct{} { return v.signal }

// Changes implements admit.Watch.
func (v *view) Changes() []policy.Change {
	w := v.inc.i.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if !v.synced || v.inc.dead {
		return nil
	}
	begun := v.pos
	for v.pos < len(w.api.History) && v.visible(w.api.History[v.pos]) {
		v.pos++
	}
	news := w.api.History[begun:v.pos]
	switch skew := v.inc.i.clock.skew; {
	case begun == 0:
		news, v.dated = fake.Listed(w.api.History[:v.pos]), skew
	case v.dated != skew: // a new list tells also what has gone
		gone := slices.DeleteFunc(slices.Clone(news), func(c fake.Change) bool { return c.Value != nil })
		news, v.dated = append(gone, fake.Listed(w.api.History[:v.pos])...), skew
	}
	var list []policy.Change
	for _, each := range news {
		c := each.Change
		c.Value = dated(c.Value, v.inc.i.clock.skew)
		v.inc.knows.take(w, c, time.Now())
		list = append(list, c)
	}
	return list
}

// dated returns an object of an API server whose clock is ahead by that much.
func dated(object any, ahead time.Duration) any {
	switch o := object.(type) {
	case *policy.Node:
		c := *o
		c.Conditions = slices.Clone(o.Conditions)
		for i := range c.Conditions {
			c.Conditions[i].LastTransition = c.Conditions[i].LastTransition.Add(ahead)
		}
		return &c
	case *policy.Request:
		c := *o
		for _, at := range []*time.Time{&c.Created, &c.TimedOut, &c.HealthyDelaySince} {
			if !at.IsZero() {
				*at = at.Add(ahead)
			}
		}
		return &c
	}
	return object
}

func (v *view) visible(c fake.Change) bool {
	return v.inc.reaches() && !time.Now().Before(v.stuck) && time.Since(c.At) >= v.lag+v.inc.i.w.defect.LateViews
}

// View implements admit.Watch.
func (v *view) View() admit.View {
	w := v.inc.i.w
	w.mu.Lock()
	defer w.mu.Unlock()
	return admit.View{Synced: v.synced, Age: time.Since(v.proven), Since: v.since, Skew: v.inc.i.clock.skew, SkewKnown: v.synced}
}

// tick simulates one second of the watch.
func (v *view) tick(now time.Time) {
	w := v.inc.i.w
	if !v.inc.reaches() || now.Before(v.begun) {
		return
	}
	if !v.synced {
		v.synced = true
		if now.Sub(v.begun) > outageAfter { // the first list was late
			v.since = now
		}
	}
	if !now.Before(v.stuck) {
		if now.Sub(v.proven) > outageAfter {
			v.since = now
		}
		v.proven = now
		v.lag = time.Duration(w.rng.IntN(1500)) * time.Millisecond
	}
	if !w.calm && w.chance(w.plan.Outages*2) {
		v.stuck = now.Add(between(w.rng, 5*time.Second, 50*time.Second))
		w.fault("watch-stuck", "", "%s until %s", v.inc, v.stuck.Sub(w.began).Round(time.Second))
	}
	if v.pos < len(w.api.History) && v.visible(w.api.History[v.pos]) || v.dated != v.inc.i.clock.skew {
		select {
		case v.signal <- struct{}{}:
		default:
		}
	}
}
