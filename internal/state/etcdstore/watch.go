package etcdstore

import (
	"context"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fenced/fenced/internal/live"
	"github.com/fenced/fenced/internal/state"
)

// rewatchPause is the pause before a lost watch is started again.
const rewatchPause = time.Second

// Watch implements state.Store. A write of this store gives no signal, unless it got no
// answer. The loss and the restart of the watch give a signal, because changes in between
// are unknown.
func (s *store) Watch(ctx context.Context) <-chan struct{} {
	prefix := s.prefix + "rec/"
	changed := s.watch(ctx, prefix, func(e *clientv3.Event) bool {
		if e == nil {
			s.watchers.changes.all()
			return true
		}
		if e.Type != clientv3.EventTypeDelete && s.isOwnWrite(e.Kv.Value) && !s.watchers.uncertain() {
			return false
		}
		kind, _, _ := strings.Cut(strings.TrimPrefix(string(e.Kv.Key), prefix), "/")
		s.watchers.changes.of(state.Kind(kind))
		return true
	})
	s.watchers.add(ctx, changed)
	return changed
}

// Changes implements state.Tracking.
func (s *store) Changes(kind state.Kind) uint64 { return s.watchers.changes.number(kind) }

// changes count what other users may have changed.
type changes struct {
	mu      sync.Mutex
	unknown uint64 // how often anything may have changed
	byKind  map[state.Kind]uint64
}

func (c *changes) all() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unknown++
}

func (c *changes) of(kind state.Kind) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byKind == nil {
		c.byKind = map[state.Kind]uint64{}
	}
	c.byKind[kind]++
}

func (c *changes) number(kind state.Kind) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.unknown + c.byKind[kind]
}

// watch signals the relevant changes below a prefix until ctx ends. One signal can stand for
// several changes. It calls relevant with nil if anything may have changed.
func (s *store) watch(ctx context.Context, prefix string, relevant func(*clientv3.Event) bool) chan struct{} {
	changed := make(chan struct{}, 1)
	go func() {
		for ctx.Err() == nil {
			s.watchOnce(ctx, prefix, relevant, changed)
			relevant(nil)
			live.Signal(changed)
			select {
			case <-ctx.Done():
			case <-s.client.Ctx().Done():
				return
			case <-time.After(rewatchPause):
			}
		}
	}()
	return changed
}

// watchOnce returns when the watch is lost: its member has no leader, or its next revision was
// compacted.
func (s *store) watchOnce(ctx context.Context, prefix string, relevant func(*clientv3.Event) bool, changed chan struct{}) {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	for resp := range s.client.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithCreatedNotify()) {
		if resp.Err() != nil {
			return
		}
		if resp.Created { // from here on no change is missed
			relevant(nil)
			live.Signal(changed)
		}
		some := false
		for _, e := range resp.Events {
			some = relevant(e) || some
		}
		if some {
			live.Signal(changed)
		}
	}
}

// watchers are the channels of Watch. They also get a signal when a write of this store ended
// without an answer.
type watchers struct {
	changes        changes
	mu             sync.Mutex
	channels       map[chan struct{}]bool
	uncertainUntil time.Time
}

// uncertainFor is how long after such a write the own writes of this store are signalled too.
// etcd may carry out the unanswered write only then.
const uncertainFor = time.Minute

// add registers a channel until ctx ends.
func (w *watchers) add(ctx context.Context, changed chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.channels == nil {
		w.channels = map[chan struct{}]bool{}
	}
	w.channels[changed] = true
	context.AfterFunc(ctx, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.channels, changed)
	})
}

// signalUncertain signals all channels. From now on the own writes are signalled too.
func (w *watchers) signalUncertain() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.uncertainUntil = time.Now().Add(uncertainFor)
	w.changes.all()
	for changed := range w.channels {
		live.Signal(changed)
	}
}

// uncertain returns whether the own writes are to be signalled.
func (w *watchers) uncertain() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Now().Before(w.uncertainUntil)
}
