package etcdstore

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fenced/fenced/internal/live"
	"github.com/fenced/fenced/internal/state"
)

// ownership is the ownership of clusters by one instance during one session. It claims the
// clusters for which the instance is preferred, and hands over the others. One goroutine
// decides. Each callback has a goroutine of its own.
type ownership struct {
	*instance
	sess       *session
	registered int64 // create revision of the instance's key
	onClaim    func(context.Context, state.Claim)

	view          view
	owned         map[string]*ownedCluster
	unownedSince  map[string]time.Time // when this instance first saw that the cluster has no owner
	presences     map[string]presence  // of the instances
	claimableFrom map[string]time.Time // a cluster that was released is not claimed before

	callbacks sync.WaitGroup
	wake      chan struct{} // gets a value when a callback has returned, or does not begin
}

// ownedCluster is a cluster that this instance owns.
type ownedCluster struct {
	epoch int64
	since time.Time
	stop  context.CancelFunc
	done  chan struct{} // closed when the callback has returned
	// hasWaited means that the commands of a lost owner before this one have ended. It is
	// written before done is closed, and read after.
	hasWaited bool
}

// presence is how long this instance has seen another instance.
type presence struct {
	revision  int64 // create revision of the instance's key
	firstSeen time.Time
}

func newOwnership(i *instance, sess *session, registered int64, onClaim func(context.Context, state.Claim)) *ownership {
	return &ownership{
		instance: i, sess: sess, registered: registered, onClaim: onClaim,
		owned: map[string]*ownedCluster{}, unownedSince: map[string]time.Time{}, presences: map[string]presence{},
		claimableFrom: map[string]time.Time{}, wake: make(chan struct{}, 1),
	}
}

// pace is how long a released cluster is left to the others, and five times how often this
// instance looks at them: the TTL. Only the tests make it shorter, for sessions that last.
var pace = func(ttl time.Duration) time.Duration { return ttl }

// run claims and releases clusters until ctx ends or the session is lost. It returns after the
// last callback has returned.
func (o *ownership) run(ctx context.Context) {
	working, cancel := withEither(ctx, o.sess.ctx)
	defer cancel()
	changed := o.store.watch(working, o.store.ownershipPrefix(), func(*clientv3.Event) bool { return true })
	tick := time.NewTicker(pace(o.TTL) / 5)
	defer tick.Stop()
	for working.Err() == nil {
		o.sync(ctx, working)
		select {
		case <-working.Done():
		case <-changed:
		case <-o.wake:
		case <-o.changed:
		case <-tick.C:
		}
	}
	for _, c := range o.owned {
		c.stop()
	}
	o.callbacks.Wait() // the session is still renewed, if that is possible
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), o.store.callTimeout)
	defer cancel()
	for cluster, c := range o.owned {
		// A claim that cannot be released ends with the lease, and the next owner waits.
		_ = o.release(ending, cluster, c)
	}
}

// sync reads the view once and acts on it.
func (o *ownership) sync(ctx, working context.Context) {
	sent := time.Now()
	v, err := o.store.readView(working)
	if err != nil {
		// Nothing new is known, so no cluster is claimed. Claims end with the session.
		o.recordProblem(working, fmt.Errorf("read the owners of the clusters: %w", err))
		return
	}
	o.view = v
	o.recordOwners(v, sent)
	now := time.Now()
	for name, entry := range v.instances {
		if o.presences[name].revision != entry.revision {
			o.presences[name] = presence{revision: entry.revision, firstSeen: now}
		}
	}
	failed := o.publishWanted(working)
	for _, cluster := range o.concerned() {
		failed = errors.Join(failed, o.syncCluster(ctx, working, cluster, now))
	}
	o.recordProblem(working, failed)
}

// syncCluster acts on the view of one cluster.
func (o *ownership) syncCluster(ctx, working context.Context, cluster string, now time.Time) error {
	owner, hasOwner := o.view.owners[cluster]
	if hasOwner {
		delete(o.unownedSince, cluster)
	} else if _, known := o.unownedSince[cluster]; !known {
		o.unownedSince[cluster] = now
	}
	c := o.owned[cluster]
	switch {
	case c != nil && c.hasReturned():
		if err := o.release(working, cluster, c); err != nil {
			return fmt.Errorf("release ownership of cluster %q: %w", cluster, err)
		}
		delete(o.owned, cluster)
		o.claimableFrom[cluster] = now.Add(pace(o.TTL))
	case c != nil && owner.epoch != c.epoch: // somebody removed the key
		c.stop()
	case c != nil:
		if o.shouldHandOver(cluster, c, now) {
			c.stop()
		}
	case hasOwner && owner.lease == o.sess.id: // a claim for which etcd gave no answer
		o.startCallback(ctx, cluster, owner.epoch, o.TakeoverDelay)
	case !hasOwner && o.shouldClaim(cluster, now):
		return o.claim(ctx, working, cluster)
	}
	return nil
}

// shouldClaim returns whether to claim a cluster without an owner: this instance is preferred,
// or the preferred instance has not claimed the cluster for two TTLs. An instance that steps
// aside is preferred only if there is no other.
func (o *ownership) shouldClaim(cluster string, now time.Time) bool {
	if now.Before(o.claimableFrom[cluster]) {
		return false
	}
	preferred := o.view.preferredInstance(cluster, "") == o.Instance
	if o.isAside(cluster) {
		preferred = o.view.preferredInstance(cluster, o.Instance) == ""
	}
	return preferred || now.Sub(o.unownedSince[cluster]) >= 2*o.TTL
}

// shouldHandOver returns whether to hand a cluster over to the preferred instance. The claim and
// that instance must both be older than MinOwnership: an instance that restarts again and again
// must not take clusters each time. If this instance steps aside, the claim must be older still:
// several instances that all step aside now and then must not pass the cluster to and fro.
func (o *ownership) shouldHandOver(cluster string, c *ownedCluster, now time.Time) bool {
	next, age := o.view.preferredInstance(cluster, ""), o.MinOwnership
	if o.isAside(cluster) && !slices.Contains(o.view.instances[o.Instance].clusters, cluster) { // the others know it
		next, age = o.view.preferredInstance(cluster, o.Instance), asideAfter*o.MinOwnership
	}
	return next != "" && next != o.Instance && now.Sub(c.since) >= age && now.Sub(o.presences[next].firstSeen) >= o.MinOwnership
}

// claim claims a cluster, if it has no owner and has had none since the view was read.
func (o *ownership) claim(ctx, working context.Context, cluster string) error {
	last := o.view.last[cluster]
	attempt, cancel := context.WithTimeout(working, attemptTimeout)
	defer cancel()
	resp, err := o.store.client.Txn(attempt).If(
		clientv3.Compare(clientv3.CreateRevision(o.store.ownerKey(cluster)), "=", 0),
		clientv3.Compare(clientv3.ModRevision(o.store.lastKey(cluster)), "=", last.version),
		clientv3.Compare(clientv3.CreateRevision(o.store.instanceKey(o.Instance)), "=", o.registered),
	).Then(
		clientv3.OpPut(o.store.ownerKey(cluster), mustEncode(ownerValue{Instance: o.Instance}), clientv3.WithLease(o.sess.id)),
		clientv3.OpPut(o.store.lastKey(cluster), mustEncode(lastValue{Instance: o.Instance})),
	).Commit()
	if err != nil {
		return fmt.Errorf("claim cluster %q: %w", cluster, err)
	}
	if !resp.Succeeded {
		return nil // the next view shows why
	}
	delay := o.TakeoverDelay
	if last.version == 0 || last.released {
		delay = 0
	}
	o.startCallback(ctx, cluster, resp.Header.Revision, delay)
	return nil
}

// startCallback calls onClaim after the delay. Then the last command of a lost owner has
// ended. // I19
func (o *ownership) startCallback(ctx context.Context, cluster string, epoch int64, delay time.Duration) {
	ctx, stop := withEither(ctx, o.sess.ctx)
	token := fencingToken{key: o.store.ownerKey(cluster), epoch: epoch}
	c := &ownedCluster{epoch: epoch, since: time.Now(), stop: stop, done: make(chan struct{}), hasWaited: delay == 0}
	o.owned[cluster] = c
	if !o.configured.beginCallback(cluster, stop, c.done) { // removed meanwhile: the next sync releases it
		stop()
		close(c.done)
		live.Signal(o.wake)
		return
	}
	o.recordOwnership(cluster, epoch)
	o.callbacks.Go(func() {
		defer func() {
			o.store.uncertain.forgetToken(token)
			stop()
			close(c.done)
			live.Signal(o.wake)
		}()
		select {
		case <-ctx.Done():
			return
		case <-time.After(delay):
		}
		c.hasWaited = true
		o.onClaim(ctx, state.Claim{
			Cluster: cluster, Epoch: uint64(epoch), Until: o.sess.Until,
			Store: claimStore{o.store, token},
		})
	})
}

func (c *ownedCluster) hasReturned() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// release deletes the owner's key after the callback has returned. It also records for the next
// owner whether that one must wait. If this instance was stopped before its own wait for a lost
// owner was over, the next owner waits for the full delay. // I19
func (o *ownership) release(ctx context.Context, cluster string, c *ownedCluster) error {
	key := o.store.ownerKey(cluster)
	return o.store.retry(ctx, func(ctx context.Context) error {
		_, err := o.store.client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(key), "=", c.epoch)).Then(
			clientv3.OpDelete(key),
			clientv3.OpPut(o.store.lastKey(cluster), mustEncode(lastValue{Instance: o.Instance, Released: c.hasWaited})),
		).Commit()
		return err // if the key does not exist any more, there is nothing to release
	})
}

func mustEncode(value any) string {
	data, err := json.Marshal(value)
	if err != nil {
		panic("etcdstore: a value of ownership always encodes: " + err.Error())
	}
	return string(data)
}

// concerned are the clusters that this instance is configured for, and those that it still has to
// release: a claim whose answer was lost may be known only by its key.
func (o *ownership) concerned() []string {
	names := o.configured.names()
	add := func(cluster string) {
		if !slices.Contains(names, cluster) {
			names = append(names, cluster)
		}
	}
	for cluster := range o.owned {
		add(cluster)
	}
	for cluster, owner := range o.view.owners {
		if owner.lease == o.sess.id {
			add(cluster)
		}
	}
	return names
}

// asideAfter is how many times MinOwnership an instance keeps a cluster before it steps aside.
const asideAfter = 5

// publishWanted writes the key of the instance again if it wants other clusters than the key says.
// The key keeps its create revision and its lease.
func (o *ownership) publishWanted(ctx context.Context) error {
	wanted := o.wanted()
	entry, found := o.view.instances[o.Instance]
	if !found || slices.Equal(entry.clusters, wanted) {
		return nil
	}
	key := o.store.instanceKey(o.Instance)
	attempt, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	_, err := o.store.client.Txn(attempt).If(clientv3.Compare(clientv3.CreateRevision(key), "=", o.registered)).
		Then(clientv3.OpPut(key, mustEncode(instanceValue{Clusters: wanted}), clientv3.WithLease(o.sess.id))).Commit()
	if err != nil {
		return fmt.Errorf("say which clusters instance %q wants: %w", o.Instance, err)
	}
	return nil // the watch shows it
}

// The values of the keys of ownership. An unknown field of a newer fenced is ignored, because
// a value that was read is never written back.
type (
	instanceValue struct {
		// Clusters are those that the instance is configured for, without those that it leaves to
		// the others.
		Clusters []string `json:"clusters"`
	}
	ownerValue struct {
		Instance string `json:"instance"`
	}
	lastValue struct {
		Instance string `json:"instance"`
		// Released means that the owner deleted its key after its last command had ended,
		// and after the last commands of lost owners before it had ended.
		Released bool `json:"givenUp"`
	}
)

// ownershipPrefix begins all keys of ownership.
func (s *store) ownershipPrefix() string { return s.prefix + "ha/" }

func (s *store) instanceKey(instance string) string {
	return s.ownershipPrefix() + "member/" + url.PathEscape(instance)
}

func (s *store) ownerKey(cluster string) string {
	return s.ownershipPrefix() + "owner/" + url.PathEscape(cluster)
}

func (s *store) lastKey(cluster string) string {
	return s.ownershipPrefix() + "last/" + url.PathEscape(cluster)
}

// view says which instances run and who owns which cluster, at one revision.
type view struct {
	instances map[string]instanceEntry // by name
	owners    map[string]ownerEntry    // by cluster
	last      map[string]lastEntry     // by cluster
}

type instanceEntry struct {
	revision int64 // create revision of the key
	clusters []string
}

type ownerEntry struct {
	instance string
	epoch    int64 // create revision of the key
	lease    clientv3.LeaseID
}

type lastEntry struct {
	version  int64 // modification revision of the key
	released bool
}

// readView reads all keys of ownership in one request.
func (s *store) readView(ctx context.Context) (view, error) {
	v := view{instances: map[string]instanceEntry{}, owners: map[string]ownerEntry{}, last: map[string]lastEntry{}}
	var resp *clientv3.GetResponse
	err := s.retry(ctx, func(ctx context.Context) (err error) {
		resp, err = s.client.Get(ctx, s.ownershipPrefix(), clientv3.WithPrefix())
		return err
	})
	if err != nil {
		return view{}, err
	}
	for _, kv := range resp.Kvs {
		kind, escaped, _ := strings.Cut(strings.TrimPrefix(string(kv.Key), s.ownershipPrefix()), "/")
		name, err := url.PathUnescape(escaped)
		if err != nil {
			continue // fenced writes no such key
		}
		// A value that cannot be decoded is taken as empty: the key itself still counts.
		switch kind {
		case "member":
			var value instanceValue
			_ = json.Unmarshal(kv.Value, &value)
			v.instances[name] = instanceEntry{revision: kv.CreateRevision, clusters: value.Clusters}
		case "owner":
			var value ownerValue
			_ = json.Unmarshal(kv.Value, &value)
			v.owners[name] = ownerEntry{instance: value.Instance, epoch: kv.CreateRevision, lease: clientv3.LeaseID(kv.Lease)}
		case "last":
			var value lastValue
			_ = json.Unmarshal(kv.Value, &value)
			v.last[name] = lastEntry{version: kv.ModRevision, released: value.Released}
		}
	}
	return v, nil
}

// Import relies on this.
var _ state.Shared = (*store)(nil)

// Instances implements state.Shared.
func (s *store) Instances(ctx context.Context) ([]string, error) {
	v, err := s.readView(ctx)
	if err != nil {
		return nil, err
	}
	return slices.Collect(maps.Keys(v.instances)), nil
}

// preferredInstance returns the instance that should own a cluster, among those that run and
// want it. It leaves one instance out. It returns "" if there is none.
func (v view) preferredInstance(cluster, except string) string {
	var candidates []string
	for name, entry := range v.instances {
		if name != except && slices.Contains(entry.clusters, cluster) {
			candidates = append(candidates, name)
		}
	}
	return preferred(candidates, cluster)
}

// preferred returns the instance that should own a cluster: the one with the highest score
// (rendezvous hashing). When an instance starts or stops, only the clusters for which it has
// the highest score change their owner. preferred returns "" if there is no instance.
func preferred(instances []string, cluster string) string {
	var found string
	var highest uint64
	for _, name := range instances {
		points := score(name, cluster)
		if found == "" || points > highest || points == highest && name < found {
			found, highest = name, points
		}
	}
	return found
}

func score(instance, cluster string) uint64 {
	sum := sha256.Sum256([]byte(instance + "\x00" + cluster))
	return binary.BigEndian.Uint64(sum[:])
}
