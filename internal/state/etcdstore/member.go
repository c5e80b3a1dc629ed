package etcdstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fenced/fenced/internal/suspend"

	"github.com/fenced/fenced/internal/state"
)

// Membership is how one of several instances takes part in a store that they share.
type Membership struct {
	Instance string
	Clusters []string // which it is configured for
	// TTL is how long a claim outlives the last sign of its owner; 15 s if zero. It
	// is renewed at a third of that.
	TTL time.Duration
	// Settle is how long a claim waits after an owner who did not give his up: the
	// longest command to a BMC that may still be under way; 5 s if zero.
	Settle time.Duration
	// MinHold is how long a cluster is kept, and an instance must be there, before
	// the one is handed over to the other; 60 s if zero.
	MinHold time.Duration
	// Suspended is how long this host was suspended since it was booted; nil: as its
	// kernel says.
	Suspended func() time.Duration
}

// member is one instance among those that share an etcd. Below <prefix>ha/ stand, on
// the lease of its session, member/<instance> and owner/<cluster>, whose create
// revision is the epoch, and for good last/<cluster>, by which a successor knows
// whether the last owner gave his claim up or was lost.
type member struct {
	store *store
	Membership

	// lease is the session's before this one, whose keys may be there still.
	lease clientv3.LeaseID

	mu      sync.Mutex
	owners  map[string]state.Owner
	seen    time.Time // when the store last said whose the clusters are
	problem string    // with the last call to the store; "" when that went well
}

// NewMember takes part in the ownership of clusters in a store of Open. It does
// nothing until Run, which fails with ErrLocked where another process lives under the
// same instance name.
func NewMember(s state.Store, m Membership) (state.Owners, error) {
	store, ok := s.(*store)
	if !ok {
		return nil, errors.New("share the ownership of clusters: the store is not in etcd")
	}
	if m.Instance == "" {
		return nil, errors.New("share the ownership of clusters: the instance has no name")
	}
	if m.TTL == 0 {
		m.TTL = 15 * time.Second
	}
	if m.Settle == 0 {
		m.Settle = 5 * time.Second
	}
	if m.MinHold == 0 {
		m.MinHold = time.Minute
	}
	if m.Suspended == nil {
		m.Suspended = suspend.Total
	}
	return &member{store: store, Membership: m, owners: map[string]state.Owner{}}, nil
}

// Run implements state.Owners: one session after the other, each begun only after the last
// guard of the one before has returned.
func (m *member) Run(ctx context.Context, guard func(context.Context, state.Claim)) error {
	for ctx.Err() == nil {
		err := m.session(ctx, guard)
		if errors.Is(err, state.ErrLocked) {
			return err
		}
		if err != nil {
			m.noteProblem(ctx, err)
		}
		// Without the store there is no claim, and nothing to do but to try again.
		select {
		case <-ctx.Done():
		case <-time.After(m.TTL / 15):
		}
	}
	return nil
}

// Owner implements state.Owners. The word of the store about another instance is good for
// the TTL: without a quorum that one owns nothing any more by then, and with one it
// may have given the cluster to a third.
func (m *member) Owner(cluster string) state.Owner {
	m.mu.Lock()
	defer m.mu.Unlock()
	o := m.owners[cluster]
	o.Problem = m.problem
	if o.Epoch == 0 || o.Instance == m.Instance || time.Since(m.seen) < m.TTL {
		return o
	}
	if o.Problem == "" {
		o.Problem = fmt.Sprintf("the store has not said it for %s", m.TTL)
	}
	return state.Owner{Problem: o.Problem}
}

// noteProblem keeps how the last call to the store went, for Owner. What was cut short
// by the end of ctx says nothing.
func (m *member) noteProblem(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.problem = ""; err != nil {
		m.problem = err.Error()
	}
}

// noteOwners keeps what Owner answers, as of the moment when the store was asked.
func (m *member) noteOwners(v view, asked time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seen = asked
	clear(m.owners)
	for cluster, o := range v.owners {
		m.owners[cluster] = state.Owner{Instance: o.instance, Epoch: uint64(o.epoch)}
	}
}

// noteOurs: a guard that asks who the owner is hears of itself.
func (m *member) noteOurs(cluster string, epoch int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.owners[cluster] = state.Owner{Instance: m.Instance, Epoch: uint64(epoch)}
}

// forgetOurs: once the session is over, this instance owns nothing.
func (m *member) forgetOurs() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for cluster, o := range m.owners {
		if o.Instance == m.Instance {
			delete(m.owners, cluster)
		}
	}
}

// session is one life of this instance in the store, from its lease to the loss of it.
func (m *member) session(ctx context.Context, guard func(context.Context, state.Claim)) error {
	opening, cancel := context.WithTimeout(ctx, attemptTimeout)
	sess, err := openSession(opening, m.store.client, m.TTL, m.Suspended)
	cancel()
	if err != nil {
		return err
	}
	var renewing sync.WaitGroup
	renewing.Go(sess.keep)
	defer renewing.Wait()
	defer sess.revoke(ctx)
	entered, err := m.enter(ctx, sess)
	if err != nil {
		return fmt.Errorf("join the other fenced as %q: %w", m.Instance, err)
	}
	m.lease = sess.id
	defer m.forgetOurs()
	newTerm(m, sess, entered, guard).run(ctx)
	return nil
}

// enter writes the member's key and gives its create revision. A key of the same name
// may be that of this instance before it was killed; one that does not go although the
// TTL has passed twice is that of another process that lives.
func (m *member) enter(ctx context.Context, sess *session) (int64, error) {
	ctx, cancel := both(ctx, sess.ctx)
	defer cancel()
	value, err := json.Marshal(memberValue{Clusters: m.Clusters})
	if err != nil {
		return 0, err
	}
	key := m.store.memberKey(m.Instance)
	patience := time.Now().Add(2*m.TTL + time.Second)
	for {
		resp, err := m.store.client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
			Then(clientv3.OpPut(key, string(value), clientv3.WithLease(sess.id))).Else(clientv3.OpGet(key)).Commit()
		if err != nil {
			return 0, err
		}
		if resp.Succeeded {
			return resp.Header.Revision, nil
		}
		there := resp.Responses[0].GetResponseRange().Kvs[0]
		switch lease := clientv3.LeaseID(there.Lease); {
		case lease == sess.id: // an attempt that the client repeated
			return there.CreateRevision, nil
		case lease == m.lease:
			_, _ = m.store.client.Revoke(ctx, lease) // the next look shows whether it helped
		case time.Now().After(patience):
			return 0, state.ErrLocked
		default:
			m.noteProblem(ctx, fmt.Errorf("waits for the session of %q to end, or another fenced has this name", m.Instance))
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(m.TTL / 15):
		}
	}
}

// both ends with either context.
func both(ctx, other context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	unhook := context.AfterFunc(other, cancel)
	return ctx, func() { unhook(); cancel() }
}
