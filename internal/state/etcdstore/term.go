package etcdstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fenced/fenced/internal/state"
)

// term is what a member does in one session: it looks, takes the clusters that fall
// to it, and gives up those that fall to another. One goroutine decides; each guard has
// one of its own.
type term struct {
	*member
	sess    *session
	entered int64 // create revision of the member's key
	guard   func(context.Context, state.Claim)

	view    view
	held    map[string]*holding
	vacant  map[string]time.Time // since when we see that nobody owns it
	present map[string]sighting  // since when we see an instance
	resting map[string]time.Time // what we gave up is not taken again before

	guards sync.WaitGroup
	wake   chan struct{} // a guard has returned
}

// holding is a cluster that this instance owns.
type holding struct {
	epoch int64
	since time.Time
	stop  context.CancelFunc
	done  chan struct{} // closed when the guard has returned
	// settled: what an owner before who was lost had under way has ended. Written before
	// done is closed, and read after.
	settled bool
}

type sighting struct {
	since int64 // create revision
	first time.Time
}

func newTerm(m *member, sess *session, entered int64, guard func(context.Context, state.Claim)) *term {
	return &term{
		member: m, sess: sess, entered: entered, guard: guard,
		held: map[string]*holding{}, vacant: map[string]time.Time{}, present: map[string]sighting{},
		resting: map[string]time.Time{}, wake: make(chan struct{}, 1),
	}
}

// run returns when ctx or the session is over and the last guard has returned.
func (t *term) run(ctx context.Context) {
	working, cancel := both(ctx, t.sess.ctx)
	defer cancel()
	changed := t.store.watch(working, t.store.sharedPrefix(), func(*clientv3.Event) bool { return true })
	tick := time.NewTicker(t.TTL / 5)
	defer tick.Stop()
	for working.Err() == nil {
		t.round(ctx, working)
		select {
		case <-working.Done():
		case <-changed:
		case <-t.wake:
		case <-tick.C:
		}
	}
	for _, h := range t.held {
		h.stop()
	}
	t.guards.Wait() // the session is renewed meanwhile, if it can be
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	for cluster, h := range t.held {
		// What cannot be given up runs out with the lease, and the successor waits.
		_ = t.giveUp(ending, cluster, h)
	}
}

// round looks once and does what follows from it.
func (t *term) round(ctx, working context.Context) {
	asked := time.Now()
	v, err := t.store.look(working)
	if err != nil {
		// Nothing new is known, so nothing is begun; claims run out by themselves.
		t.noteProblem(working, fmt.Errorf("look who owns which cluster: %w", err))
		return
	}
	t.view = v
	t.noteOwners(v, asked)
	now := time.Now()
	for name, m := range v.members {
		if t.present[name].since != m.since {
			t.present[name] = sighting{since: m.since, first: now}
		}
	}
	var failed error
	for _, cluster := range t.Clusters {
		failed = errors.Join(failed, t.decide(ctx, working, cluster, now))
	}
	t.noteProblem(working, failed)
}

// decide does what the view asks for with one cluster.
func (t *term) decide(ctx, working context.Context, cluster string, now time.Time) error {
	owner, owned := t.view.owners[cluster]
	if owned {
		delete(t.vacant, cluster)
	} else if _, known := t.vacant[cluster]; !known {
		t.vacant[cluster] = now
	}
	h := t.held[cluster]
	switch {
	case h != nil && h.returned():
		if err := t.giveUp(working, cluster, h); err != nil {
			return fmt.Errorf("give up cluster %q: %w", cluster, err)
		}
		delete(t.held, cluster)
		t.resting[cluster] = now.Add(t.TTL)
	case h != nil && owner.epoch != h.epoch: // somebody removed the key
		h.stop()
	case h != nil:
		if t.fallsToAnother(cluster, h, now) {
			h.stop()
		}
	case owned && owner.lease == t.sess.id: // a claim that was made without an answer
		t.start(ctx, cluster, owner.epoch, t.Settle)
	case !owned && t.isOurs(cluster, now):
		return t.claim(ctx, working, cluster)
	}
	return nil
}

// isOurs says whether to take a cluster that nobody owns: it falls to this instance,
// or the one that it falls to has not taken it for long.
func (t *term) isOurs(cluster string, now time.Time) bool {
	if now.Before(t.resting[cluster]) {
		return false
	}
	return t.view.best(cluster) == t.Instance || now.Sub(t.vacant[cluster]) >= 2*t.TTL
}

// fallsToAnother says whether to hand a cluster over. Neither a claim nor an instance
// that is new is enough: one that comes and goes must not take clusters along.
func (t *term) fallsToAnother(cluster string, h *holding, now time.Time) bool {
	best := t.view.best(cluster)
	return best != "" && best != t.Instance && now.Sub(h.since) >= t.MinHold &&
		now.Sub(t.present[best].first) >= t.MinHold
}

// claim takes a cluster if nobody owns it, and nobody did since we looked.
func (t *term) claim(ctx, working context.Context, cluster string) error {
	last := t.view.last[cluster]
	ctxOnce, cancel := context.WithTimeout(working, attemptTimeout)
	defer cancel()
	resp, err := t.store.client.Txn(ctxOnce).If(
		clientv3.Compare(clientv3.CreateRevision(t.store.ownerKey(cluster)), "=", 0),
		clientv3.Compare(clientv3.ModRevision(t.store.lastKey(cluster)), "=", last.version),
		clientv3.Compare(clientv3.CreateRevision(t.store.memberKey(t.Instance)), "=", t.entered),
	).Then(
		clientv3.OpPut(t.store.ownerKey(cluster), text(ownerValue{Instance: t.Instance}), clientv3.WithLease(t.sess.id)),
		clientv3.OpPut(t.store.lastKey(cluster), text(lastValue{Instance: t.Instance})),
	).Commit()
	if err != nil {
		return fmt.Errorf("take cluster %q: %w", cluster, err)
	}
	if !resp.Succeeded {
		return nil // the next look shows what came of it
	}
	settle := t.Settle
	if last.version == 0 || last.givenUp {
		settle = 0
	}
	t.start(ctx, cluster, resp.Header.Revision, settle)
	return nil
}

// start calls the guard, after a time in which the last command of an owner who was
// lost has ended. // I19
func (t *term) start(ctx context.Context, cluster string, epoch int64, settle time.Duration) {
	ctx, stop := both(ctx, t.sess.ctx)
	under := fencingToken{key: t.store.ownerKey(cluster), epoch: epoch}
	h := &holding{epoch: epoch, since: time.Now(), stop: stop, done: make(chan struct{}), settled: settle == 0}
	t.held[cluster] = h
	t.noteOurs(cluster, epoch)
	t.guards.Go(func() {
		defer func() {
			t.store.doubts.over(under)
			stop()
			close(h.done)
			select {
			case t.wake <- struct{}{}:
			default:
			}
		}()
		select {
		case <-ctx.Done():
			return
		case <-time.After(settle):
		}
		h.settled = true
		t.guard(ctx, state.Claim{
			Cluster: cluster, Epoch: uint64(epoch), Until: t.sess.Until,
			Store: claimed{t.store, under},
		})
	})
}

func (h *holding) returned() bool {
	select {
	case <-h.done:
		return true
	default:
		return false
	}
}

// giveUp deletes the owner's key after the guard has returned, and notes for the
// successor that he need not wait. One who was stopped while he waited himself, for an
// owner who was lost, leaves the whole of that to him. // I19
func (t *term) giveUp(ctx context.Context, cluster string, h *holding) error {
	key := t.store.ownerKey(cluster)
	return t.store.try(ctx, func(ctx context.Context) error {
		_, err := t.store.client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(key), "=", h.epoch)).Then(
			clientv3.OpDelete(key),
			clientv3.OpPut(t.store.lastKey(cluster), text(lastValue{Instance: t.Instance, GivenUp: h.settled})),
		).Commit()
		return err // where the key is gone already there is nothing to give up
	})
}

func text(value any) string {
	data, err := json.Marshal(value)
	if err != nil {
		panic("etcdstore: a value of ownership always encodes: " + err.Error())
	}
	return string(data)
}
