package state

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// rewatch is the pause before a watch that was lost is made anew.
const rewatch = time.Second

// Watch implements Store. What this store itself wrote gives no signal; the loss of
// the watch and its return do, because of what happened in between nothing is known.
func (s *etcdStore) Watch(ctx context.Context) <-chan struct{} {
	return s.watch(ctx, s.prefix+"rec/", func(e *clientv3.Event) bool {
		return e.Type == clientv3.EventTypeDelete || !s.ours(e.Kv.Value)
	})
}

// watch signals changes below a prefix that matter, several as one, until ctx ends.
func (s *etcdStore) watch(ctx context.Context, prefix string, matters func(*clientv3.Event) bool) <-chan struct{} {
	changed := make(chan struct{}, 1)
	signal := func() {
		select {
		case changed <- struct{}{}:
		default: // one stands there already
		}
	}
	go func() {
		for ctx.Err() == nil {
			s.watchOnce(ctx, prefix, matters, signal)
			signal()
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
func (s *etcdStore) watchOnce(ctx context.Context, prefix string, matters func(*clientv3.Event) bool, signal func()) {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	for resp := range s.client.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithCreatedNotify()) {
		if resp.Err() != nil {
			return
		}
		if resp.Created { // from here on nothing is missed
			signal()
		}
		for _, e := range resp.Events {
			if matters(e) {
				signal()
				break
			}
		}
	}
}
