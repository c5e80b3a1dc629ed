package k8swatch

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// outageAfter is how long a blindness is that ends in a quiet period. // I16
const outageAfter = 60 * time.Second

// View is how far the cached view can be believed.
type View struct {
	Synced bool
	// Age is how long ago every kind of the cache was last proven to be as new as
	// the API itself.
	Age time.Duration
	// Since is when the view was whole again after an outage of more than a
	// minute, or after the API had gone back in time or lost a kind; zero when
	// none of that was.
	Since time.Time
	// Skew is the API server's clock minus this host's, as of now; SkewKnown: it was
	// measured. An API server that does not tell the time cannot be compared.
	Skew      time.Duration
	SkewKnown bool
	Problem   string
}

// freshness is what the reads past every cache have proven. // I16
type freshness struct {
	mu    sync.Mutex
	start time.Time // the view is waited for since then
	good  time.Time // when the whole view was last proven; zero = never
	since time.Time
	// rewound: the API went back in time, or lost a kind, and the view is not whole
	// again yet.
	rewound bool
}

// disturb makes the view one that has just come back, until it is proven whole
// again.
func (f *freshness) disturb(now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.since, f.rewound = now, true
}

// begin notes since when the view is waited for.
func (f *freshness) begin(now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.start = now
}

// View says how good the view is now.
func (c *Cluster) View() View {
	whole, problem := c.proven()
	c.fresh.mu.Lock()
	defer c.fresh.mu.Unlock()
	v := View{Synced: !whole.IsZero(), Since: c.fresh.since, Problem: problem}
	v.Skew, v.SkewKnown = c.skew()
	if !v.Synced {
		whole = c.fresh.start
	}
	if !whole.IsZero() {
		v.Age = max(0, time.Since(whole))
	}
	return v
}

// skew is the clock that is farthest from ours; known only if all are.
func (c *Cluster) skew() (worst time.Duration, known bool) {
	known, now := true, time.Now()
	for _, s := range c.sides() {
		skew, measured := s.clock.by(now)
		if known = known && measured; skew.Abs() > worst.Abs() {
			worst = skew
		}
	}
	return worst, known
}

// proven is when the worst kind was last proven fresh, zero when one never was,
// and what is wrong. Requests count once they were read; until then the checks
// that name them are not judged.
func (c *Cluster) proven() (oldest time.Time, problem string) {
	first := true
	for _, side := range c.sides() {
		for _, s := range side.watched() {
			at, wrong := s.state()
			if s.request && at.IsZero() {
				continue
			}
			if first || at.Before(oldest) {
				oldest, first = at, false
			}
			if problem == "" && wrong != "" {
				problem = "watch " + s.kind + c.on(side) + ": " + wrong
			}
		}
	}
	return oldest, problem
}

// on names an API server where there are two.
func (c *Cluster) on(s *side) string {
	if c.work == c.manage {
		return ""
	}
	return " on the " + s.name + " API"
}

// keepFresh asks the API server in a fixed rhythm, and after each full list,
// how far it has come. When it went back in time, the watches start over.
func (s *side) keepFresh(ctx context.Context, startOver func()) {
	tick := time.NewTicker(s.c.cfg.FreshEvery)
	defer tick.Stop()
	for {
		if s.askAll(ctx) {
			s.log.Warn("the API went back in time; everything is listed again")
			s.rewind()
			startOver()
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-s.listed:
		}
	}
}

// askAll asks about every kind at once, so that one that hangs delays no other.
func (s *side) askAll(ctx context.Context) (back bool) {
	stores := s.watched()
	backs := make([]bool, len(stores))
	var g sync.WaitGroup
	for i, st := range stores {
		g.Go(func() { backs[i] = s.ask(ctx, st) })
	}
	g.Wait()
	for _, b := range backs {
		back = back || b
	}
	return back && ctx.Err() == nil
}

// ask reads one object of a kind past every cache. What counts is the version
// of the list around it, which is where the API server stood: a view that
// reaches it is proven to be as new as this read. back says that the API stands
// at an older version than the view.
func (s *side) ask(ctx context.Context, st *store) (back bool) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	before := st.version()
	sent := time.Now()
	list, err := st.list(ctx, s.api(), metav1.ListOptions{Limit: 1}) // no resourceVersion: a quorum read
	if err != nil {
		return false
	}
	at, err := listRevision(list)
	if err != nil {
		st.fail(fmt.Sprintf("read one %s: %s", st.kind, err))
		return false
	}
	if at < before {
		return true
	}
	st.ask(asked{sent, at})
	st.moved()
	return false
}

func listRevision(list any) (uint64, error) {
	m, err := meta.ListAccessor(list)
	if err != nil {
		return 0, err
	}
	return revision(m.GetResourceVersion())
}

// settle notes what is proven by now, and the end of an outage.
func (c *Cluster) settle(now time.Time) {
	whole, _ := c.proven()
	f := &c.fresh
	f.mu.Lock()
	defer f.mu.Unlock()
	if whole.IsZero() || !whole.After(f.good) {
		return
	}
	first, last := f.good.IsZero(), f.good
	if first {
		last = f.start
	}
	if now.Sub(last) > outageAfter || f.rewound {
		f.since, f.rewound = now, false
		first = true
	}
	f.good = whole
	if first { // there is something to judge now
		c.notify()
	}
}

// rewind forgets what was proven: it belongs to another history, for instance
// that of an etcd before it was restored from a backup.
func (s *side) rewind() {
	for _, st := range s.watched() {
		st.rewind()
	}
	f := &s.c.fresh
	f.mu.Lock()
	defer f.mu.Unlock()
	f.good, f.start, f.rewound = time.Time{}, time.Now(), true
}
