package report

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fenced/fenced/internal/event"
)

const (
	// marksEvery is how often marks are compared with the open runs, beside each change.
	marksEvery = 2 * time.Second
	// marksPerTurn is how many marks of a cluster are written after one comparison, and
	// marksAtOnce how many of them at the same time.
	marksPerTurn = 32
	marksAtOnce  = 4
	markRetry    = 10 * time.Second // after a mark that could not be written, doubled each time
	markRetryMax = 5 * time.Minute
)

// marker keeps the marks of one cluster. It compares what the view shows with the open runs,
// again and again. So a mark that was lost, or left behind by whichever instance, is found.
type marker struct {
	r       *Report
	name    string
	c       Cluster
	changed chan struct{} // a run began or entered a step
	retry   map[markKey]backoff
	failing map[string]bool // the last write to a kind of object failed, which was reported
}

// markKey identifies an object with a mark.
type markKey struct{ apiVersion, kind, namespace, name, uid string }

func keyOf(m event.RunMark) markKey { return markKey{m.APIVersion, m.Kind, m.Namespace, m.Name, m.UID} }

// backoff is when an object may be tried again.
type backoff struct {
	next  time.Time
	pause time.Duration
}

// dueMark is a mark to write until a time; zero: at any time.
type dueMark struct {
	event.RunMark
	until time.Time
}

func newMarker(r *Report, name string, c Cluster) *marker {
	return &marker{r: r, name: name, c: c, changed: make(chan struct{}, 1), retry: map[markKey]backoff{}, failing: map[string]bool{}}
}

// wake makes the marker compare now.
func (m *marker) wake() {
	select {
	case m.changed <- struct{}{}:
	default:
	}
}

func (m *marker) run(ctx context.Context) error {
	tick := time.NewTicker(marksEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-m.changed:
		case <-tick.C:
		}
		if s := m.r.opt.State(m.name); s.Acts { // of several instances, the owner marks
			m.write(ctx, m.due(s, time.Now()))
		}
		rest(ctx)
	}
}

// due lists the marks to write or to remove now, the urgent ones first.
func (m *marker) due(s State, now time.Time) []dueMark {
	want, busy := m.wanted(s.Runs, now)
	var list []dueMark
	for _, seen := range m.c.Marked() {
		key := keyOf(seen)
		switch w, wanted := want[key]; {
		case wanted && w.RunMark == seen:
			delete(want, key)
		case !wanted && !busy[objectName{seen.Kind, seen.Namespace, seen.Name}]: // of no open run
			seen.Run, seen.Step, seen.Instance = "", "", ""
			list = append(list, dueMark{RunMark: seen})
		}
	}
	list = append(list, slices.Collect(maps.Values(want))...)
	known := map[markKey]bool{}
	list = slices.DeleteFunc(list, func(d dueMark) bool {
		known[keyOf(d.RunMark)] = true
		return now.Before(m.retry[keyOf(d.RunMark)].next)
	})
	maps.DeleteFunc(m.retry, func(k markKey, _ backoff) bool { return !known[k] })
	slices.SortFunc(list, func(a, b dueMark) int {
		urgent := func(d dueMark) int {
			if d.until.IsZero() {
				return 1
			}
			return 0
		}
		return cmp.Or(cmp.Compare(urgent(a), urgent(b)), cmp.Compare(a.Kind+a.Namespace+a.Name, b.Kind+b.Namespace+b.Name))
	})
	return list[:min(len(list), marksPerTurn)]
}

// write writes marks, and returns when all of them are written or have failed.
func (m *marker) write(ctx context.Context, list []dueMark) {
	errs := make([]error, len(list))
	var g errgroup.Group
	g.SetLimit(marksAtOnce)
	for i, d := range list {
		g.Go(func() error {
			ctx := ctx
			if !d.until.IsZero() {
				if !time.Now().Before(d.until) { // it waited for others
					return nil
				}
				var cancel context.CancelFunc
				ctx, cancel = context.WithDeadline(ctx, d.until.Add(markTime))
				defer cancel()
			}
			errs[i] = m.c.Mark(ctx, d.RunMark)
			return nil
		})
	}
	_ = g.Wait() // errs has the errors
	for i, err := range errs {
		if ctx.Err() == nil {
			m.note(list[i].RunMark, err)
		}
	}
}

// note remembers the result of a write. Of several failures at one kind of object, the first is
// reported: one right may be missing.
func (m *marker) note(mark event.RunMark, err error) {
	key := keyOf(mark)
	if err == nil {
		delete(m.retry, key)
		delete(m.failing, mark.Kind)
		return
	}
	pause := min(max(2*m.retry[key].pause, markRetry), markRetryMax)
	m.retry[key] = backoff{next: time.Now().Add(pause), pause: pause}
	if !m.failing[mark.Kind] {
		m.failing[mark.Kind] = true
		m.r.opt.Events.Emit(event.Event{Type: event.Failed, Cluster: m.name,
			Message: "mark what is being remediated, which delays no fencing and is tried again: " + err.Error()})
	}
}
