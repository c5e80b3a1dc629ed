package etcdstore

import (
	"context"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// rewatchPause is the pause before a lost watch is started again.
const rewatchPause = time.Second

// Watch implements state.Store. A write of this store gives no signal, unless it got no
// answer. The loss and the restart of the watch give a signal, because changes in between
// are unknown.
func (s *store) Watch(ctx context.Context) <-chan struct{} {
	changed := s.watch(ctx, s.prefix+"rec/", func(e *clientv3.Event) bool {
		return e.Type == clientv3.EventTypeDelete || !s.isOwnWrite(e.Kv.Value) || s.watchers.uncertain()
	})
	s.watchers.add(ctx, changed)
	return changed
}

// watch signals the relevant changes below a prefix until ctx ends. One signal can stand for
// several changes.
func (s *store) watch(ctx context.Context, prefix string, relevant func(*clientv3.Event) bool) chan struct{} {
	changed := make(chan struct{}, 1)
	go func() {
		for ctx.Err() == nil {
			s.watchOnce(ctx, prefix, relevant, changed)
			signal(changed)
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
			signal(changed)
		}
		for _, e := range resp.Events {
			if relevant(e) {
				signal(changed)
				break
			}
		}
	}
}

// signal puts a value on the channel, unless there is one.
func signal(changed chan<- struct{}) {
	select {
	case changed <- struct{}{}:
	default:
	}
}

// watchers are the channels of Watch. They also get a signal when a write of this store ended
// without an answer.
type watchers struct {
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
	for changed := range w.channels {
		signal(changed)
	}
}

// uncertain returns whether the own writes are to be signalled.
func (w *watchers) uncertain() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Now().Before(w.uncertainUntil)
}
