package etcdstore_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/state/etcdstore"
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
	owners, err := etcdstore.NewOwners(s, etcdstore.OwnersConfig{
		Instance: name, TTL: times.ttl, TakeoverDelay: times.delay, MinOwnership: minOwnership,
	})
	require.NoError(t, err)
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
