package etcdstore_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/state/etcdstore"
	"github.com/fenced/fenced/test/must"
	"github.com/fenced/fenced/test/rig"
)

// times are the TTL and the takeover delay in a test.
type times struct{ ttl, delay time.Duration }

// lasting is for sessions that must not be lost, even on a busy machine. A test that loses a
// session waits for it, so it uses expiring.
var (
	lasting  = times{ttl: 45 * time.Second, delay: 300 * time.Millisecond}
	expiring = times{ttl: 5 * time.Second, delay: 300 * time.Millisecond}
)

// minOwnership is OwnersConfig.MinOwnership in all tests.
const minOwnership = 500 * time.Millisecond

// looks is a time in which each instance looks at the others at least once.
const looks = etcdstore.ShortPace/5 + time.Second

// eventually is how long a test waits for a change of the owner, which takes a few TTLs at most
// on a machine that is not busy.
const eventually = 5 * time.Minute

// keepClaim is a callback that keeps its claim as long as possible.
func keepClaim(ctx context.Context, _ state.Claim) { <-ctx.Done() }

// instance runs the ownership of one of several instances.
type instance struct {
	name   string
	store  state.Store
	owners state.Owners
	cancel context.CancelFunc
	done   chan error

	mu     sync.Mutex
	claims map[string]state.Claim // those whose callback runs
}

func startInstance(t *testing.T, c *rig.EtcdCluster, prefix, name string, clusters []string, onClaim func(context.Context, state.Claim)) *instance {
	t.Helper()
	return startOn(t, openEtcd(t, c, prefix), name, clusters, lasting, onClaim)
}

func startOn(t *testing.T, s state.Store, name string, clusters []string, times times, onClaim func(context.Context, state.Claim)) *instance {
	t.Helper()
	owners := must.Do(etcdstore.NewOwners(s, etcdstore.OwnersConfig{
		Instance: name, TTL: times.ttl, TakeoverDelay: times.delay, MinOwnership: minOwnership,
	}))(t)
	for _, cluster := range clusters {
		owners.Add(cluster)
	}
	i := &instance{name: name, store: s, owners: owners, done: make(chan error, 1), claims: map[string]state.Claim{}}
	ctx, cancel := context.WithCancel(context.Background())
	i.cancel = cancel
	go func() {
		i.done <- owners.Run(ctx, func(ctx context.Context, claim state.Claim) {
			i.note(claim.Cluster, &claim)
			defer i.note(claim.Cluster, nil)
			onClaim(ctx, claim)
		})
	}()
	t.Cleanup(func() { i.stop(t) })
	return i
}

func (i *instance) note(cluster string, claim *state.Claim) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if claim == nil {
		delete(i.claims, cluster)
		return
	}
	i.claims[cluster] = *claim
}

// stop stops the instance, so that it releases its claims. A second call does nothing.
func (i *instance) stop(t *testing.T) {
	t.Helper()
	i.cancel()
	select {
	case err := <-i.done:
		assert.NoError(t, err)
		i.done <- nil
	case <-time.After(eventually):
		t.Fatalf("%s does not stop", i.name)
	}
}

func (i *instance) claim(cluster string) (state.Claim, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	c, ok := i.claims[cluster]
	return c, ok
}

// awaitClaim waits until the callback for the cluster runs.
func (i *instance) awaitClaim(t *testing.T, cluster string) state.Claim {
	t.Helper()
	var claim state.Claim
	require.Eventually(t, func() (ok bool) {
		claim, ok = i.claim(cluster)
		return ok
	}, eventually, 20*time.Millisecond, "%s never got %s", i.name, cluster)
	return claim
}

// awaitLoss waits until the callback for the cluster has returned.
func (i *instance) awaitLoss(t *testing.T, cluster string) {
	t.Helper()
	require.Eventually(t, func() bool {
		_, ok := i.claim(cluster)
		return !ok
	}, eventually, 5*time.Millisecond, "%s never lost %s", i.name, cluster)
}

func TestOwnerHandsOverInOrder(t *testing.T) {
	t.Parallel()
	c, prefix := sharedEtcd(t), newPrefix()
	a := startInstance(t, c, prefix, "a", []string{"prod"}, keepClaim)
	old := a.awaitClaim(t, "prod")
	require.NotZero(t, old.Epoch)
	require.Equal(t, state.Owner{Instance: "a", Epoch: old.Epoch}, a.owners.Owner("prod"))
	until := old.Until()
	require.LessOrEqual(t, time.Until(until), lasting.ttl-lasting.ttl/5)
	require.Eventually(t, func() bool { return old.Until().After(until) }, eventually, 20*time.Millisecond, "the session is renewed")
	v := must.Do(old.Store.Put(t.Context(), state.Record{Kind: state.KindRun, Key: "r", Data: []byte("of a")}))(t)

	b := startInstance(t, c, prefix, "b", []string{"prod"}, keepClaim)
	require.Eventually(t, func() bool { return b.owners.Owner("prod").Instance == "a" }, eventually, 20*time.Millisecond,
		"the one that stands by knows who owns it")
	a.stop(t)
	fresh := b.awaitClaim(t, "prod")
	require.Greater(t, fresh.Epoch, old.Epoch)

	// The writes of the old owner are refused, whatever their version. // I19
	_, err := old.Store.Put(t.Context(), state.Record{Kind: state.KindRun, Key: "r", Version: v, Data: []byte("late")})
	require.ErrorIs(t, err, state.ErrNotOwner)
	_, err = old.Store.Put(t.Context(), state.Record{Kind: state.KindRun, Key: "new", Data: []byte("late")})
	require.ErrorIs(t, err, state.ErrNotOwner)
	require.ErrorIs(t, old.Store.Delete(t.Context(), state.KindRun, "r", v), state.ErrNotOwner)
	r := must.Do(fresh.Store.Get(t.Context(), state.KindRun, "r"))(t)
	require.Equal(t, "of a", string(r.Data), "what a saved is b's to go on from")
	must.Do(fresh.Store.Put(t.Context(), state.Record{Kind: state.KindRun, Key: "r", Version: r.Version, Data: []byte("of b")}))(t)
}

// An owner that loses its connection ends its claim before another instance can act. The next
// owner waits until the last command of the lost owner has ended.
func TestOwnerThatIsCutOffEndsFirst(t *testing.T) {
	t.Parallel()
	c, prefix := sharedEtcd(t), newPrefix()
	var ended, until atomic.Pointer[time.Time]
	a := startOn(t, openEtcd(t, c, prefix), "a", []string{"prod"}, expiring, func(ctx context.Context, claim state.Claim) {
		<-ctx.Done()
		now, last := time.Now(), claim.Until()
		ended.Store(&now)
		until.Store(&last)
	})
	claim := a.awaitClaim(t, "prod")
	first := claim.Until()
	require.Eventually(t, func() bool {
		now, ok := a.claim("prod") // another one, if a busy machine has lost the first
		return ok && now.Until().After(first)
	}, eventually, 20*time.Millisecond)
	late := times{ttl: expiring.ttl, delay: 2 * expiring.ttl} // the delay is longer than the time until the loss is seen
	var began atomic.Pointer[time.Time]
	b := startOn(t, openEtcd(t, c, prefix), "b", []string{"prod"}, late, func(ctx context.Context, _ state.Claim) {
		now := time.Now()
		began.Store(&now)
		<-ctx.Done()
	})
	require.NoError(t, a.store.Close()) // no more renewals are sent, and no claim is released
	b.awaitClaim(t, "prod")
	require.NotNil(t, ended.Load(), "b began while a's callback ran")
	require.GreaterOrEqual(t, began.Load().Sub(*until.Load()), late.delay, "the next owner waits after an owner was lost")
}

// If an owner is stopped while it waits for the commands of a lost owner, the next owner waits
// instead. // I19
func TestSettleTimeIsNotLost(t *testing.T) {
	t.Parallel()
	c, prefix := sharedEtcd(t), newPrefix()
	a := startOn(t, openEtcd(t, c, prefix), "a", []string{"prod"}, expiring, keepClaim)
	a.awaitClaim(t, "prod")
	require.NoError(t, a.store.Close()) // it is lost

	patient := times{ttl: expiring.ttl, delay: time.Hour}
	b := startOn(t, openEtcd(t, c, prefix), "b", []string{"prod"}, patient, keepClaim)
	require.Eventually(t, func() bool { return b.owners.Owner("prod").Instance == "b" }, eventually, 20*time.Millisecond)
	b.stop(t)
	stopped := time.Now()
	_, called := b.claim("prod")
	require.False(t, called)

	const delay = 3 * time.Second
	const lasting = time.Minute // neither of these two sessions may expire
	next := startOn(t, openEtcd(t, c, prefix), "c", []string{"prod"}, times{ttl: lasting, delay: delay}, keepClaim)
	next.awaitClaim(t, "prod")
	require.GreaterOrEqual(t, time.Since(stopped), delay)
	next.stop(t) // it has waited to the end

	last := startOn(t, openEtcd(t, c, prefix), "d", []string{"prod"}, times{ttl: lasting, delay: time.Hour}, keepClaim)
	last.awaitClaim(t, "prod")
}

func TestInstanceNamesAreTakenOnce(t *testing.T) {
	t.Parallel()
	c, prefix := sharedEtcd(t), newPrefix()
	a := startInstance(t, c, prefix, "a", []string{"prod"}, keepClaim)
	a.awaitClaim(t, "prod")
	twin, err := etcdstore.NewOwners(openEtcd(t, c, prefix), etcdstore.OwnersConfig{Instance: "a", TTL: expiring.ttl})
	require.NoError(t, err)
	twin.Add("prod")
	done := make(chan error, 1)
	go func() {
		done <- twin.Run(t.Context(), func(context.Context, state.Claim) { t.Error("the twin got a claim") })
	}()
	said := map[string]bool{}
	for err = nil; err == nil; { // until Run returns
		said[twin.Owner("prod").Problem] = true
		select {
		case err = <-done:
			require.Error(t, err)
		case <-time.After(10 * time.Millisecond):
		}
	}
	require.Contains(t, said, `waits for the session of "a" to end, or another fenced has this name`, "it says why it does nothing")
	require.ErrorIs(t, err, state.ErrLocked)
	require.ErrorContains(t, err, `"a"`)
	_, ok := a.claim("prod")
	require.True(t, ok, "the first one is not disturbed")

	_, err = etcdstore.NewOwners(openBolt(t), etcdstore.OwnersConfig{Instance: "a"})
	require.Error(t, err, "bbolt has one user")
}

// An instance that was killed starts again under its name, although its key still exists.
func TestInstanceComesBackAfterAKill(t *testing.T) {
	t.Parallel()
	c, prefix := sharedEtcd(t), newPrefix()
	a := startOn(t, openEtcd(t, c, prefix), "a", []string{"prod"}, expiring, keepClaim)
	first := a.awaitClaim(t, "prod")
	require.NoError(t, a.store.Close())
	again := startOn(t, openEtcd(t, c, prefix), "a", []string{"prod"}, expiring, keepClaim)
	require.Greater(t, again.awaitClaim(t, "prod").Epoch, first.Epoch)
}

func TestClustersAreShared(t *testing.T) {
	t.Parallel()
	c, prefix := sharedEtcd(t), newPrefix()
	var clusters []string
	for i := range 8 {
		clusters = append(clusters, fmt.Sprint("cluster/", i))
	}
	a := startInstance(t, c, prefix, "a", clusters, keepClaim)
	for _, name := range clusters {
		a.awaitClaim(t, name)
	}
	// b has one cluster less. Only the clusters for which b is preferred are handed over.
	b := startInstance(t, c, prefix, "b", clusters[1:], keepClaim)
	count := func(i *instance) (n int) {
		for _, name := range clusters {
			if _, ok := i.claim(name); ok {
				n++
			}
		}
		return n
	}
	var shares int
	require.Eventually(t, func() bool { // until nothing is handed over any more
		shares = count(b)
		time.Sleep(looks)
		return shares > 0 && count(b) == shares && count(a)+shares == len(clusters)
	}, eventually, 20*time.Millisecond)
	require.Less(t, shares, len(clusters), "not all")
	_, ok := a.claim(clusters[0])
	require.True(t, ok, "it is not b's to take")
	time.Sleep(looks)
	require.Equal(t, shares, count(b), "and there it stays")

	b.stop(t)
	require.Eventually(t, func() bool { return count(a) == len(clusters) }, eventually, 20*time.Millisecond)
}

// After a callback returned by itself, its cluster is released. Another instance may claim it.
func TestGuardThatReturns(t *testing.T) {
	t.Parallel()
	c, prefix := sharedEtcd(t), newPrefix()
	var calls atomic.Int64
	begun := time.Now()
	startInstance(t, c, prefix, "a", []string{"prod"}, func(context.Context, state.Claim) { calls.Add(1) })
	require.Eventually(t, func() bool { return calls.Load() >= 2 }, eventually, 20*time.Millisecond)
	require.GreaterOrEqual(t, time.Since(begun), etcdstore.ShortPace, "it is not taken again at once")
	b := startInstance(t, c, prefix, "b", []string{"prod"}, keepClaim)
	b.awaitClaim(t, "prod")
}

// Somebody removes the owner's key: the claim ends although the session lasts.
func TestOwnerKeyRemoved(t *testing.T) {
	t.Parallel()
	c, prefix := sharedEtcd(t), newPrefix()
	a := startInstance(t, c, prefix, "a", []string{"prod"}, keepClaim)
	first := a.awaitClaim(t, "prod")
	client := etcdClient(t, c)
	must.Do(client.Delete(t.Context(), prefix+"ha/owner/prod"))(t)
	_, err := first.Store.Put(t.Context(), state.Record{Kind: state.KindRun, Key: "r"})
	require.ErrorIs(t, err, state.ErrNotOwner)
	require.Eventually(t, func() bool {
		again, ok := a.claim("prod")
		return ok && again.Epoch > first.Epoch
	}, eventually, 20*time.Millisecond)
}
