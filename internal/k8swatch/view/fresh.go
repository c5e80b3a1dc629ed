package view

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fenced/fenced/internal/k8swatch/client"
	"github.com/fenced/fenced/internal/live"
)

// outageAfter is the length of an outage after which a quiet period
// starts. // I16
const outageAfter = 60 * time.Second

// View is how current the cached view is.
type View struct {
	Synced bool
	// Age is the time since every kind of the cache was last proven to be as new as
	// the API.
	Age time.Duration
	// Since is when the view was complete again after an outage of more than a
	// minute, or after the API went back in time or lost a kind; zero if there was
	// none.
	Since time.Time
	// Skew is the API server's clock minus this host's, as of now: positive if the
	// API server is ahead. Of two API servers it is the larger difference.
	// SkewKnown: it was measured. It is not known for an API server that sends no
	// time.
	Skew      time.Duration
	SkewKnown bool
	SkewOf    string // which API server it is, of a cluster with two
	Problem   string
}

// freshness is what the uncached reads have proven. // I16
type freshness struct {
	mu    sync.Mutex
	start time.Time // start of the wait for the view
	good  time.Time // when the whole view was last proven; zero = never
	since time.Time
	// rewound: the API went back in time, or lost a kind, and the view is not
	// complete since.
	rewound bool
}

// markOutage makes the next complete view count as the end of an outage.
func (f *freshness) markOutage(now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.since, f.rewound = now, true
}

// compareHistory makes the next complete view count as the end of an outage if a list or a watch is at an older version than the view has
// reached: the API went back in time, and keepFresh may find no kind that was not listed anew meanwhile. It is called before the changes
// of a list are journaled. // I16
func (f *freshness) compareHistory(reached, at uint64) {
	if at < reached {
		f.markOutage(time.Now())
	}
}

// markStart records the start of the wait for the view.
func (f *freshness) markStart(now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.start = now
}

// View returns how current the view is now.
func (c *Cache) View() View {
	whole, problem := c.proven()
	c.fresh.mu.Lock()
	defer c.fresh.mu.Unlock()
	v := View{Synced: !whole.IsZero(), Since: c.fresh.since, Problem: problem}
	v.Skew, v.SkewKnown, v.SkewOf = c.skew()
	if !v.Synced {
		whole = c.fresh.start
	}
	if !whole.IsZero() {
		v.Age = max(0, time.Since(whole))
	}
	return v
}

// skew returns the largest difference from our clock, and of which API server it is if there are two; known only if
// all servers' clocks are.
func (c *Cache) skew() (worst time.Duration, known bool, of string) {
	known, now := true, time.Now()
	for _, s := range c.sides() {
		skew, measured := s.Skew(now)
		if known = known && measured; skew.Abs() > worst.Abs() {
			worst = skew
			if c.work != c.manage {
				of = "the " + s.Name + " API server"
			}
		}
	}
	return worst, known, of
}

// proven returns when the oldest kind was last proven fresh, zero if one never
// was, and the problem. Requests count after they were read; until then the
// checks that name them are not evaluated.
func (c *Cache) proven() (oldest time.Time, problem string) {
	first := true
	for _, s := range c.stores() {
		at, wrong := s.state()
		unread := s.request && at.IsZero()
		if unread {
			wrong = s.whyUnread(wrong)
		}
		if problem == "" && wrong != "" {
			problem = "watch " + s.Kind + c.label(s.side) + ": " + wrong
		}
		if !unread && (first || at.Before(oldest)) {
			oldest, first = at, false
		}
	}
	return oldest, problem
}

// whyUnread is the problem of requests that were never read. That of the kinds that are watched although no check
// names them would be told nowhere else: those that fenced carries out cannot be told that nobody does, and without
// Metal3's nobody knows whether a target is contested.
func (s *store) whyUnread(wrong string) string {
	switch waits, kind := time.Since(s.added), (schema.GroupKind{Group: s.Group, Kind: s.Kind}); {
	case kind != client.OwnRequests && kind != client.Metal3Requests:
		return ""
	case wrong == "" && waits > outageAfter:
		return "not read for " + waits.Round(time.Second).String()
	}
	return wrong
}

// label names an API server in messages if there are two.
func (c *Cache) label(s *side) string {
	if c.work == c.manage {
		return ""
	}
	return " on the " + s.Name + " API"
}

// keepFresh compares the view with the API server periodically, and after each
// full list. If the API went back in time, the watches start over.
func (s *side) keepFresh(ctx context.Context, startOver func()) {
	tick := time.NewTicker(s.c.cfg.FreshEvery)
	defer tick.Stop()
	for {
		if s.readAllFresh(ctx) {
			s.Log.Warn("the API went back in time; all objects are listed again")
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

// readAllFresh reads all kinds at the same time, so that one that hangs does not
// delay the others. One read of the API groups answers for all kinds whose absence
// was found before.
func (s *side) readAllFresh(ctx context.Context) (back bool) {
	stores := s.watched()
	backs := make([]bool, len(stores))
	asked := time.Now()
	groups := sync.OnceValue(func() map[string]bool {
		all, _ := s.API().Groups(ctx) // nil after an error: then each kind is read, which tells it
		return all
	})
	var g sync.WaitGroup
	for i, st := range stores {
		g.Go(func() {
			if st.absence.lasts() && lacks(groups(), st.Group) {
				st.recordNotInstalled(asked)
				return
			}
			backs[i] = s.readFresh(ctx, st)
		})
	}
	g.Wait()
	for _, b := range backs {
		back = back || b
	}
	return back && ctx.Err() == nil
}

// lacks reports whether an API server that lists these groups does not serve one.
// Each serves Leases; a list without them is not that of an API server.
func lacks(groups map[string]bool, group string) bool {
	return groups[coordinationv1.GroupName] && !groups[group]
}

// readFresh reads one object of a kind without the cache. The version of the list
// is the state of the API server: a view that reaches it is proven to be as new
// as this read. back means that the API is at an older version than the view.
func (s *side) readFresh(ctx context.Context, st *store) (back bool) {
	ctx, cancel := context.WithTimeout(ctx, client.RequestTimeout)
	defer cancel()
	before := st.version()
	sent := time.Now()
	list, err := st.list(ctx, s.API(), metav1.ListOptions{Limit: 1}) // no resourceVersion: a quorum read
	if err != nil {
		return false
	}
	at, err := listRevision(list)
	if err != nil {
		st.fail(fmt.Sprintf("read one %s: %s", st.Kind, err))
		return false
	}
	if at < before {
		return true
	}
	st.recordRead(freshRead{sent, at})
	st.notifyProgress()
	return false
}

func listRevision(list any) (uint64, error) {
	m, err := meta.ListAccessor(list)
	if err != nil {
		return 0, err
	}
	return revision(m.GetResourceVersion())
}

// updateFreshness records what is proven now, and the end of an outage.
func (c *Cache) updateFreshness(now time.Time) {
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
	if first { // the checks can be evaluated now
		c.notify()
	}
}

// rewind discards what was proven: it belongs to another history, for example of
// an etcd before it was restored from a backup.
func (s *side) rewind() {
	for _, st := range s.watched() {
		st.rewind()
	}
	f := &s.c.fresh
	f.mu.Lock()
	defer f.mu.Unlock()
	f.good, f.start, f.rewound = time.Time{}, time.Now(), true
}

// freshRead is one uncached read: at this time the API server was at this
// version.
type freshRead struct {
	at       time.Time
	revision uint64
}

// maxFreshReads limits the reads that a stuck watch leaves unproven. The oldest
// are kept, because they are proven first.
const maxFreshReads = 32

// recordRead records a read that the view must reach.
func (s *store) recordRead(a freshRead) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.asked) < maxFreshReads {
		s.asked = append(s.asked, a)
	}
	s.updateProven()
}

// updateProven records the newest read that the view has reached; s.mu is held.
func (s *store) updateProven() {
	if !s.synced {
		return
	}
	left := s.asked[:0]
	for _, a := range s.asked {
		switch {
		case a.revision > s.reached:
			left = append(left, a)
		case a.at.After(s.proven):
			s.proven, s.problem = a.at, ""
		}
	}
	s.asked = left
}

// UpdateResourceVersion implements cache.ResourceVersionUpdater: every event up
// to this version has been received. Bookmarks advance it while nothing changes. The
// events of a watch that outlasts the absence of its kind are no list. // I16
func (s *store) UpdateResourceVersion(version string) {
	at, err := revision(version)
	s.mu.Lock()
	if err != nil {
		s.problem = err.Error()
	} else if s.reached > 0 {
		s.side.c.fresh.compareHistory(s.reached, at)
		s.reached = at
		s.updateProven()
	}
	s.mu.Unlock()
	s.notifyProgress()
}

// version is the version that the view has reached; 0 before the first list.
func (s *store) version() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reached
}

// state returns when the store was last proven fresh, and the problem.
func (s *store) state() (proven time.Time, problem string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.synced {
		return time.Time{}, s.problem
	}
	return s.proven, s.problem
}

// recordNotInstalled records that the cluster did not have this kind at that time:
// an answer as fresh as any. If the kind was served until then, a quiet period
// starts, because somebody may be changing the API. // I16
func (s *store) recordNotInstalled(asked time.Time) {
	s.mu.Lock()
	if s.reached > 0 || len(s.items) > 0 {
		s.side.c.fresh.markOutage(time.Now()) // before the removals are journaled
	}
	news := s.clear() || !s.synced
	s.synced, s.reached, s.asked, s.problem = true, 0, nil, ""
	if asked.After(s.proven) {
		s.proven = asked
	}
	if news {
		s.notifyChange() // before anybody can see that it is proven // I16
	}
	s.mu.Unlock()
	s.absence.begin()
	s.notifyProgress()
}

// rewind discards how fresh the content is, not the content.
func (s *store) rewind() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.synced, s.reached, s.asked, s.proven = false, 0, nil, time.Time{}
	s.problem = "the API went back in time"
}

// fail records why a request failed; it is logged once.
func (s *store) fail(problem string) { s.failAt(zapcore.WarnLevel, problem) }

func (s *store) failAt(level zapcore.Level, problem string) {
	s.mu.Lock()
	news, other := s.problem == "", s.problem != problem
	s.problem = problem
	s.mu.Unlock()
	s.absence.end()
	if other && s.request { // the checks that name the kind tell why it cannot be read
		live.Signal(s.side.c.requests.changed)
	}
	if news {
		s.log.Log(level, "the view of the cluster cannot be refreshed", zap.String("kind", s.Kind), zap.String("problem", problem))
	}
}
