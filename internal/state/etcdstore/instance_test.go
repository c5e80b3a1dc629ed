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

// times of ownership in a test.
type times struct{ ttl, settle time.Duration }

// Where no session is to be lost, none is on a busy machine either; where one is lost,
// the test waits for it.
var (
	lasting  = times{ttl: 15 * time.Second, settle: 300 * time.Millisecond}
	expiring = times{ttl: 5 * time.Second, settle: 300 * time.Millisecond}
)

// minHold is how long a cluster is kept before it is handed over.
const minHold = 500 * time.Millisecond

// eventually is how long a test waits for a change of hands: every way of it is over
// in some TTLs, on a machine that has time.
const eventually = 2 * time.Minute

// stay is a guard that keeps its claim for as long as it lasts.
func stay(ctx context.Context, _ state.Claim) { <-ctx.Done() }

// instance is one fenced of several, as far as ownership goes.
type instance struct {
	name   string
	store  state.Store
	owners state.Owners
	cancel context.CancelFunc
	done   chan error

	mu     sync.Mutex
	claims map[string]state.Claim // under guard now
}

func startInstance(t *testing.T, c *rig.EtcdCluster, prefix, name string, clusters []string, guard func(context.Context, state.Claim)) *instance {
	t.Helper()
	return startOn(t, openEtcd(t, c, prefix), name, clusters, lasting, guard)
}

func startOn(t *testing.T, s state.Store, name string, clusters []string, times times, guard func(context.Context, state.Claim)) *instance {
	t.Helper()
	owners, err := etcdstore.NewMember(s, etcdstore.Membership{
		Instance: name, Clusters: clusters, TTL: times.ttl, Settle: times.settle, MinHold: minHold,
	})
	require.NoError(t, err)
	i := &instance{name: name, store: s, owners: owners, done: make(chan error, 1), claims: map[string]state.Claim{}}
	ctx, cancel := context.WithCancel(context.Background())
	i.cancel = cancel
	go func() {
		i.done <- owners.Run(ctx, func(ctx context.Context, claim state.Claim) {
			i.note(claim.Cluster, &claim)
			defer i.note(claim.Cluster, nil)
			guard(ctx, claim)
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

// stop ends the instance in order; a second time does nothing.
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

// awaitClaim waits until the instance guards the cluster.
func (i *instance) awaitClaim(t *testing.T, cluster string) state.Claim {
	t.Helper()
	var claim state.Claim
	require.Eventually(t, func() (ok bool) {
		claim, ok = i.claim(cluster)
		return ok
	}, eventually, 20*time.Millisecond, "%s never got %s", i.name, cluster)
	return claim
}

// awaitLoss waits until the instance no longer guards the cluster.
func (i *instance) awaitLoss(t *testing.T, cluster string) {
	t.Helper()
	require.Eventually(t, func() bool {
		_, ok := i.claim(cluster)
		return !ok
	}, eventually, 5*time.Millisecond, "%s never lost %s", i.name, cluster)
}
