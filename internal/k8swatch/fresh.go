package k8swatch

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// View is how far the cached view can be believed.
type View struct {
	Synced bool
	// Age is how long ago every kind of the cache was last proven to be as new as
	// the API itself.
	Age time.Duration
	// Since is when the view was whole again after an outage of more than a
	// minute, or after the API had gone back in time; zero when neither was.
	Since   time.Time
	Skew    time.Duration // the API server's clock minus this host's
	Problem string
}

// freshness is what the reads past every cache have proven. // I16
type freshness struct {
	mu    sync.Mutex
	start time.Time // the view is waited for since then
	good  time.Time // when the whole view was last proven; zero = never
	since time.Time
	// rewound: the API went back in time, and the view is not whole again yet.
	rewound bool
	skew    time.Duration
}

// View says how good the view is now.
func (c *Cluster) View() View {
	whole, problem := c.proven()
	c.fresh.mu.Lock()
	defer c.fresh.mu.Unlock()
	v := View{Synced: !whole.IsZero(), Since: c.fresh.since, Skew: c.fresh.skew, Problem: problem}
	if !v.Synced {
		whole = c.fresh.start
	}
	if !whole.IsZero() {
		v.Age = max(0, time.Since(whole))
	}
	return v
}

// proven is when the worst kind was last proven fresh, zero when one never was,
// and what is wrong.
func (c *Cluster) proven() (oldest time.Time, problem string) {
	for i, s := range c.stores {
		at, wrong := s.state()
		if i == 0 || at.Before(oldest) {
			oldest = at
		}
		if problem == "" && wrong != "" {
			problem = "watch " + s.kind + ": " + wrong
		}
	}
	return oldest, problem
}

// keepFresh asks the API server in a fixed rhythm, and after each full list,
// how far it has come. When it went back in time, the watches start over.
func (c *Cluster) keepFresh(ctx context.Context, startOver func()) {
	tick := time.NewTicker(c.cfg.FreshEvery)
	defer tick.Stop()
	for {
		if c.askAll(ctx) {
			c.log.Warn("the API went back in time; everything is listed again")
			c.rewind()
			startOver()
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-c.listed:
		}
	}
}

// askAll asks about every kind at once, so that one that hangs delays no other.
func (c *Cluster) askAll(ctx context.Context) (back bool) {
	backs := make([]bool, len(c.stores))
	var g sync.WaitGroup
	for i, s := range c.stores {
		g.Go(func() { backs[i] = c.ask(ctx, s) })
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
func (c *Cluster) ask(ctx context.Context, s *store) (back bool) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	ctx, clock := withClock(ctx)
	before := s.version()
	sent := time.Now()
	list, err := c.api().list(ctx, s, metav1.ListOptions{Limit: 1}) // no resourceVersion: a quorum read
	if apierrors.IsNotFound(err) && !s.gvr.Empty() {
		s.absent(sent)
		c.settle(time.Now())
		return false
	}
	var at uint64
	if err == nil {
		at, err = listRevision(list)
	}
	if err != nil {
		if ctx.Err() != context.Canceled {
			s.fail(fmt.Sprintf("read one %s: %s", s.kind, err))
		}
		return false
	}
	c.fresh.mu.Lock()
	c.fresh.skew = clock.skew(sent, time.Now())
	c.fresh.mu.Unlock()
	if at < before {
		return true
	}
	s.ask(asked{sent, at})
	c.settle(time.Now())
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
func (c *Cluster) rewind() {
	for _, s := range c.stores {
		s.rewind()
	}
	c.fresh.mu.Lock()
	defer c.fresh.mu.Unlock()
	c.fresh.good, c.fresh.start, c.fresh.rewound = time.Time{}, time.Now(), true
}
