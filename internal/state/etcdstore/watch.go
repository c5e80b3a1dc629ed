package etcdstore

import (
	"context"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// rewatch is the pause before a watch that was lost is made anew.
const rewatch = time.Second

// Watch implements state.Store. What this store itself wrote gives no signal, unless it got
// no answer. The loss of the watch and its return do, because of what happened in
// between nothing is known.
func (s *store) Watch(ctx context.Context) <-chan struct{} {
	changed := s.watch(ctx, s.prefix+"rec/", func(e *clientv3.Event) bool {
		return e.Type == clientv3.EventTypeDelete || !s.ours(e.Kv.Value) || s.watchers.unsure()
	})
	s.watchers.add(ctx, changed)
	return changed
}

// watch signals changes below a prefix that matter, several as one, until ctx ends.
func (s *store) watch(ctx context.Context, prefix string, matters func(*clientv3.Event) bool) chan struct{} {
	changed := make(chan struct{}, 1)
	go func() {
		for ctx.Err() == nil {
			s.watchOnce(ctx, prefix, matters, changed)
			signal(changed)
			select {
			case <-ctx.Done():
			case <-s.client.Ctx().Done():
				return
			case <-time.After(rewatch):
			}
		}
	}()
	return changed
}

// watchOnce returns when the watch is lost: its member has no leader, or what it
// should go on from was compacted away.
func (s *store) watchOnce(ctx context.Context, prefix string, matters func(*clientv3.Event) bool, changed chan struct{}) {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	for resp := range s.client.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithCreatedNotify()) {
		if resp.Err() != nil {
			return
		}
		if resp.Created { // from here on nothing is missed
			signal(changed)
		}
		for _, e := range resp.Events {
			if matters(e) {
				signal(changed)
				break
			}
		}
	}
}

func signal(changed chan<- struct{}) {
	select {
	case changed <- struct{}{}:
	default: // one stands there already
	}
}

// watchers are the channels of Watch, to be signalled also when a write of our own was
// given up without an answer.
type watchers struct {
	mu          sync.Mutex
	all         map[chan struct{}]bool
	unsureUntil time.Time
}

// unsureFor is how long after such a write our own writes are signalled too: it may be
// the one that came through after all.
const unsureFor = time.Minute

func (w *watchers) add(ctx context.Context, changed chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.all == nil {
		w.all = map[chan struct{}]bool{}
	}
	w.all[changed] = true
	context.AfterFunc(ctx, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.all, changed)
	})
}

func (w *watchers) signal() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.unsureUntil = time.Now().Add(unsureFor)
	for changed := range w.all {
		signal(changed)
	}
}

func (w *watchers) unsure() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Now().Before(w.unsureUntil)
}
