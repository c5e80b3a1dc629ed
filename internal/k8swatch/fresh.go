package k8swatch

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// View is how far the cached view can be believed.
type View struct {
	Synced bool
	// Age is how long ago every kind of the cache was seen to be as new as the
	// API itself.
	Age time.Duration
	// Since is when the view was whole again after an outage of more than a
	// minute, or after the API had gone back in time; zero when neither was.
	Since   time.Time
	Skew    time.Duration // this host's clock minus the API server's
	Problem string
}

// freshness is what the checks against the API found. // I16
type freshness struct {
	mu      sync.Mutex
	good    time.Time // last check that every kind passed; zero = none yet
	since   time.Time
	skew    time.Duration
	problem string
}

const catchUp = 5 * time.Second // a watch event may be under way this long

// View says how good the view is now.
func (c *Cluster) View() View {
	v := View{Synced: true}
	for _, s := range c.stores {
		s.mu.Lock()
		v.Synced = v.Synced && s.synced
		if s.problem != "" {
			v.Problem = "watch " + s.kind + ": " + s.problem
		}
		s.mu.Unlock()
	}
	c.fresh.mu.Lock()
	defer c.fresh.mu.Unlock()
	v.Synced = v.Synced && !c.fresh.good.IsZero()
	v.Since, v.Skew = c.fresh.since, c.fresh.skew
	if !c.fresh.good.IsZero() {
		v.Age = time.Since(c.fresh.good)
	}
	if c.fresh.problem != "" {
		v.Problem = c.fresh.problem
	}
	return v
}

// keepFresh compares the cache with the API until ctx ends. When the API went
// back in time it starts the watches over.
func (c *Cluster) keepFresh(ctx context.Context, restart func()) {
	tick := time.NewTicker(min(c.cfg.FreshEvery, 100*time.Millisecond))
	defer tick.Stop()
	for {
		back, err := c.compare(ctx)
		if ctx.Err() != nil {
			return
		}
		c.fresh.note(err, back)
		if back {
			c.log.Warn("the API went back in time; everything is listed again")
			for _, s := range c.stores {
				s.mu.Lock()
				s.synced = false
				s.mu.Unlock()
			}
			restart()
			return
		}
		c.notify()
		if err == nil {
			tick.Reset(c.cfg.FreshEvery)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// note records one comparison.
func (f *freshness) note(err error, back bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	switch {
	case back:
		f.since, f.problem = now, "the API went back in time"
	case err != nil:
		f.problem = err.Error()
	default:
		if !f.good.IsZero() && now.Sub(f.good) > outageAfter {
			f.since = now
		}
		f.good, f.problem = now, ""
	}
}

// compare reads one object of each kind past every cache; the view must hold it
// at that version or a later one, soon. back says that the API showed an older
// version than the view has.
func (c *Cluster) compare(ctx context.Context) (back bool, err error) {
	for _, s := range c.stores {
		if !s.ready() {
			return false, fmt.Errorf("the first list of %s has not come yet", s.kind)
		}
		back, err = c.compareKind(ctx, s)
		if back || err != nil {
			return back, err
		}
	}
	return false, nil
}

func (s *store) ready() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.synced
}

func (c *Cluster) compareKind(ctx context.Context, s *store) (back bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout+catchUp)
	defer cancel()
	list, err := c.api().list(ctx, s, metav1.ListOptions{Limit: 1}) // no resourceVersion: a quorum read
	if apierrors.IsNotFound(err) && !s.gvr.Empty() {
		return false, nil // the kind is not installed
	}
	if err != nil {
		return false, fmt.Errorf("read one %s: %w", s.kind, err)
	}
	items, err := meta.ExtractList(list)
	if err != nil || len(items) == 0 {
		return false, err
	}
	_, want, err := s.entry(items[0])
	if err != nil {
		return false, err
	}
	for {
		have, ok := s.find(want.key.Namespace, want.key.Name)
		switch {
		case ok && have.uid == want.uid && have.revision == want.revision:
			return false, nil
		case ok && have.uid == want.uid && have.revision > want.revision:
			return c.goneBack(ctx, s, want)
		}
		if !sleep(ctx, 20*time.Millisecond) {
			return false, fmt.Errorf("the view does not show version %d of %s %s, which the API has", want.revision, s.kind, want.key.Name)
		}
		// The object may have been deleted or replaced since; ask again.
		if list, err := c.api().list(ctx, s, metav1.ListOptions{Limit: 1}); err == nil {
			if items, err := meta.ExtractList(list); err == nil && len(items) == 0 {
				return false, nil
			} else if err == nil {
				if _, e, err := s.entry(items[0]); err == nil {
					want = e
				}
			}
		}
	}
}

// goneBack makes sure: the view may simply have got a newer version between the
// API's read and ours.
func (c *Cluster) goneBack(ctx context.Context, s *store, first entry) (bool, error) {
	list, err := c.api().list(ctx, s, metav1.ListOptions{Limit: 1})
	if err != nil {
		return false, fmt.Errorf("read one %s: %w", s.kind, err)
	}
	items, err := meta.ExtractList(list)
	if err != nil || len(items) == 0 {
		return false, err
	}
	_, again, err := s.entry(items[0])
	if err != nil || again.key != first.key || again.uid != first.uid {
		return false, err
	}
	have, ok := s.find(again.key.Namespace, again.key.Name)
	return ok && have.uid == again.uid && again.revision == first.revision && have.revision > again.revision, nil
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// dateReader reads the API server's clock off its answers.
type dateReader struct {
	next  http.RoundTripper
	fresh *freshness
}

// RoundTrip implements http.RoundTripper.
func (d *dateReader) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := d.next.RoundTrip(r)
	if err != nil {
		return resp, err
	}
	if at, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		d.fresh.mu.Lock()
		d.fresh.skew = time.Since(at.Add(500 * time.Millisecond)).Round(time.Second) // the header is cut to seconds
		d.fresh.mu.Unlock()
	}
	return resp, nil
}

// WrappedRoundTripper lets client-go find the transport beneath.
func (d *dateReader) WrappedRoundTripper() http.RoundTripper { return d.next }
