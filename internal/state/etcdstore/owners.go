package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fenced/fenced/internal/live"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/suspend"
)

// OwnersConfig describes one of the instances that share a store.
type OwnersConfig struct {
	Instance string
	// TTL is how long a claim lasts after the last renewal; 15 s if zero. The instance
	// renews its session after a third of that.
	TTL time.Duration
	// TakeoverDelay is how long a new owner waits if the last one did not release its
	// claim: until the longest command to a BMC has ended that may be under way; 5 s if
	// zero.
	TakeoverDelay time.Duration
	// MinOwnership is how long an owner keeps a cluster, and how long the preferred
	// instance must be there, before the cluster is handed over; 60 s if zero.
	MinOwnership time.Duration
	// Suspended returns how long this host has been suspended since it was booted. If it
	// is nil, the kernel is asked.
	Suspended func() time.Duration
}

// instance is one of the instances that share an etcd. It has these keys below <prefix>ha/:
//
//	member/<instance>  says that the instance runs; on the lease of its session
//	owner/<cluster>    says who owns the cluster; on the same lease. Its create revision is
//	                   the epoch
//	last/<cluster>     says whether the last owner released its claim; permanent
type instance struct {
	store *store
	OwnersConfig

	// previousLease is the lease of the session before this one. Its keys may still exist.
	previousLease clientv3.LeaseID

	configured configured
	changed    chan struct{} // gets a value when configured or aside has changed

	mu         sync.Mutex
	owners     map[string]state.Owner
	ownersRead time.Time       // when the request was sent that owners comes from
	problem    string          // of the last request; empty if it succeeded
	aside      map[string]bool // clusters that this instance leaves to the others
}

// NewOwners returns the ownership of clusters in a store that Open returned: of those that are
// added. It sends nothing before Run.
//
// Run returns state.ErrLocked if another process uses the same instance name.
func NewOwners(s state.Store, c OwnersConfig) (state.Owners, error) {
	store, ok := s.(*store)
	if !ok {
		return nil, errors.New("share the ownership of clusters: the store is not in etcd")
	}
	if c.Instance == "" {
		return nil, errors.New("share the ownership of clusters: the instance has no name")
	}
	if c.TTL == 0 {
		c.TTL = 15 * time.Second
	}
	if c.TakeoverDelay == 0 {
		c.TakeoverDelay = 5 * time.Second
	}
	if c.MinOwnership == 0 {
		c.MinOwnership = time.Minute
	}
	if c.Suspended == nil {
		c.Suspended = suspend.Total
	}
	return &instance{
		store: store, OwnersConfig: c, owners: map[string]state.Owner{}, aside: map[string]bool{}, changed: make(chan struct{}, 1),
	}, nil
}

// Run implements state.Owners. It runs one session after the other. A session starts only
// after all callbacks of the session before have returned.
func (i *instance) Run(ctx context.Context, onClaim func(context.Context, state.Claim)) error {
	for ctx.Err() == nil {
		err := i.runSession(ctx, onClaim)
		if errors.Is(err, state.ErrLocked) {
			return err
		}
		if err != nil {
			i.recordProblem(ctx, err)
		}
		// Without the store there is no claim, so all that is left is to try again.
		select {
		case <-ctx.Done():
		case <-time.After(i.TTL / 15):
		}
	}
	return nil
}

// Owner implements state.Owners. What the store said about another instance is valid for the
// TTL. After that time, without a quorum that instance owns nothing, and with a quorum it may
// have released the cluster to a third instance.
func (i *instance) Owner(cluster string) state.Owner {
	i.mu.Lock()
	defer i.mu.Unlock()
	o := i.owners[cluster]
	o.Problem = i.problem
	if o.Epoch == 0 || o.Instance == i.Instance || time.Since(i.ownersRead) < i.TTL {
		return o
	}
	if o.Problem == "" {
		o.Problem = fmt.Sprintf("the store has not confirmed the owner for %s", i.TTL)
	}
	return state.Owner{Problem: o.Problem}
}

// recordProblem records the result of the last request for Owner. It ignores a request that
// the end of ctx interrupted.
func (i *instance) recordProblem(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.problem = ""; err != nil {
		i.problem = err.Error()
	}
}

// recordOwners records what Owner returns. sent is when the request was sent.
func (i *instance) recordOwners(v view, sent time.Time) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.ownersRead = sent
	clear(i.owners)
	for cluster, o := range v.owners {
		i.owners[cluster] = state.Owner{Instance: o.instance, Epoch: uint64(o.epoch), Standby: v.preferredInstance(cluster, o.instance)}
	}
}

// recordOwnership records that this instance owns a cluster, before the callback is called:
// a callback that asks Owner gets its own instance.
func (i *instance) recordOwnership(cluster string, epoch int64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.owners[cluster] = state.Owner{Instance: i.Instance, Epoch: uint64(epoch)}
}

// forgetOwnership records that this instance owns nothing, after the end of a session.
func (i *instance) forgetOwnership() {
	i.mu.Lock()
	defer i.mu.Unlock()
	for cluster, o := range i.owners {
		if o.Instance == i.Instance {
			delete(i.owners, cluster)
		}
	}
}

// runSession opens a session and owns clusters until the session is lost or ctx ends.
func (i *instance) runSession(ctx context.Context, onClaim func(context.Context, state.Claim)) error {
	opening, cancel := context.WithTimeout(ctx, attemptTimeout)
	sess, err := openSession(opening, i.store.client, i.TTL, i.Suspended)
	cancel()
	if err != nil {
		return err
	}
	var renewing sync.WaitGroup
	renewing.Go(sess.runRenewals)
	defer renewing.Wait()
	defer sess.revoke(ctx)
	registered, err := i.register(ctx, sess)
	if err != nil {
		return fmt.Errorf("register instance %q: %w", i.Instance, err)
	}
	i.previousLease = sess.id
	defer i.forgetOwnership()
	newOwnership(i, sess, registered, onClaim).run(ctx)
	return nil
}

// register writes the key of the instance and returns its create revision. If the key exists,
// it may be a key of this instance from before a crash. If the key still exists after two
// TTLs, another process uses the name: state.ErrLocked.
func (i *instance) register(ctx context.Context, sess *session) (int64, error) {
	ctx, cancel := withEither(ctx, sess.ctx)
	defer cancel()
	key := i.store.instanceKey(i.Instance)
	deadline := time.Now().Add(2*i.TTL + time.Second)
	for {
		resp, err := i.store.client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
			Then(clientv3.OpPut(key, mustEncode(instanceValue{Clusters: i.wanted()}), clientv3.WithLease(sess.id))).Else(clientv3.OpGet(key)).Commit()
		if err != nil {
			return 0, err
		}
		if resp.Succeeded {
			return resp.Header.Revision, nil
		}
		stored := resp.Responses[0].GetResponseRange().Kvs[0]
		switch lease := clientv3.LeaseID(stored.Lease); {
		case lease == sess.id: // the client repeated the request
			return stored.CreateRevision, nil
		case lease == i.previousLease:
			_, _ = i.store.client.Revoke(ctx, lease) // the next round shows the result
		case time.Now().After(deadline):
			return 0, state.ErrLocked
		default:
			i.recordProblem(ctx, fmt.Errorf("waits for the session of %q to end, or another fenced has this name", i.Instance))
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(i.TTL / 15):
		}
	}
}

// withEither returns a context that ends when ctx or other ends.
func withEither(ctx, other context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	unhook := context.AfterFunc(other, cancel)
	return ctx, func() { unhook(); cancel() }
}

// configured are the clusters that this instance is configured for, in the order in which they were
// added. A reload changes them while the instance owns clusters.
type configured struct {
	mu   sync.Mutex
	list []*configuredCluster
}

type configuredCluster struct {
	name string
	stop context.CancelFunc // ends the last callback; nil: there was none
	done chan struct{}      // closed when that has returned
}

func (c *configured) names() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var names []string
	for _, one := range c.list {
		names = append(names, one.name)
	}
	return names
}

// find returns the cluster of a name; nil if there is none. The caller holds c.mu.
func (c *configured) find(name string) *configuredCluster {
	if i := slices.IndexFunc(c.list, func(one *configuredCluster) bool { return one.name == name }); i >= 0 {
		return c.list[i]
	}
	return nil
}

// beginCallback notes the callback that is about to begin. It returns false if the cluster was
// removed: then the callback must not begin.
func (c *configured) beginCallback(name string, stop context.CancelFunc, done chan struct{}) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	one := c.find(name)
	if one != nil {
		one.stop, one.done = stop, done
	}
	return one != nil
}

// Add implements state.Owners. The key of the instance names the cluster before the instance claims
// it.
func (i *instance) Add(cluster string) {
	i.mu.Lock()
	delete(i.aside, cluster) // of the time before it was removed
	i.mu.Unlock()
	i.configured.mu.Lock()
	i.configured.list = append(i.configured.list, &configuredCluster{name: cluster})
	i.configured.mu.Unlock()
	live.Signal(i.changed)
}

// Remove implements state.Owners. The claim ends at once, whatever the store does. Another instance
// can claim the cluster only when this one has released it, or has lost its session. // I19
func (i *instance) Remove(cluster string) {
	i.configured.mu.Lock()
	one := i.configured.find(cluster)
	i.configured.list = slices.DeleteFunc(i.configured.list, func(each *configuredCluster) bool { return each == one })
	i.configured.mu.Unlock()
	if one != nil && one.done != nil {
		one.stop()
		<-one.done
	}
	live.Signal(i.changed)
}

// StepAside implements state.Owners. The key of an instance does not name the clusters that the
// instance leaves to the others. So the others, also older versions, take it for an instance that
// is not configured for them. It begins to step aside when that key has been written.
func (i *instance) StepAside(cluster string, aside bool) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.aside[cluster] != aside {
		i.aside[cluster] = aside
		live.Signal(i.changed)
	}
	return true
}

// isAside returns whether this instance leaves a cluster to the others.
func (i *instance) isAside(cluster string) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.aside[cluster]
}

// wanted are the clusters that this instance would own.
func (i *instance) wanted() []string {
	list := []string{}
	for _, cluster := range i.configured.names() {
		if !i.isAside(cluster) {
			list = append(list, cluster)
		}
	}
	return list
}
