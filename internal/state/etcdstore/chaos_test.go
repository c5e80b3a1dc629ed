package etcdstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/test/dice"
	"github.com/fenced/fenced/test/rig"
)

// fault is a fault of one member of etcd: a kill and a restart, or a freeze.
type fault struct {
	leader, kill bool
	lasts        time.Duration
}

// everyFault has each kind of fault once.
var everyFault = []fault{
	{leader: true, kill: true, lasts: time.Second},
	{leader: false, kill: false, lasts: time.Second},
	{leader: true, kill: false, lasts: 1500 * time.Millisecond},
	{leader: false, kill: true, lasts: time.Second},
}

// Three instances share two clusters and two slots over three members of etcd. Members are
// killed and frozen. Instances stop, or lose their connection forever. At any time a cluster
// has one owner at most, and no more slots are taken than the limit allows. Every run has the
// same faults; a soak draws them.
func TestHistoriesUnderFaults(t *testing.T) {
	t.Parallel()
	if !dice.Soak() {
		checkUnderFaults(t, everyFault)
		return
	}
	random := dice.New(t)
	for round := range 10 { // each is short enough for porcupine
		var faults []fault
		for range 5 {
			faults = append(faults, fault{random.IntN(2) == 0, random.IntN(2) == 0, time.Second + upTo(random, time.Second)})
		}
		t.Run(fmt.Sprint("round ", round), func(t *testing.T) { checkUnderFaults(t, faults) })
	}
}

// brief lets many sessions be lost in one history. No session has to last.
var brief = times{ttl: 3 * time.Second, delay: 300 * time.Millisecond}

// upTo returns a random duration below d.
func upTo(random *rand.Rand, d time.Duration) time.Duration {
	return time.Duration(random.Int64N(int64(d)))
}

func checkUnderFaults(t *testing.T, faults []fault) {
	c := ownEtcd(t, rig.EtcdOptions{})
	owners, slots := &history{begin: time.Now()}, &history{begin: time.Now()}
	const limit = 2
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	for i := range 3 {
		s := openEtcd(t, c, "/h/")
		for j := range 2 {
			run := fmt.Sprintf("r%d-%d", i, j)
			random := dice.New(t, run)
			wg.Go(func() { slots.slots(ctx, s, random, run, limit) })
		}
		name := fmt.Sprint("i", i)
		random := dice.New(t, name)
		wg.Go(func() { owners.runInstances(ctx, t, c, random, name) })
	}
	for _, f := range faults {
		pause(ctx, time.Second)
		injectFault(t, c, f)
	}
	pause(ctx, time.Second)
	cancel()
	wg.Wait()
	owners.check(t, "owners", ownerModel())
	slots.check(t, "slots", slotModel(limit))
}

// runInstances repeatedly runs an instance for a while. The instance then stops, or loses its
// connection.
func (h *history) runInstances(ctx context.Context, t *testing.T, c *rig.EtcdCluster, random *rand.Rand, name string) {
	for ctx.Err() == nil {
		s, err := openEtcdAt(etcdPath(c, "/h/"))
		if err != nil {
			pause(ctx, 100*time.Millisecond) // there may be no quorum
			continue
		}
		i := startOn(t, s, name, []string{"c0", "c1"}, brief, h.recordClaims(h.now()))
		pause(ctx, brief.ttl/2+upTo(random, brief.ttl))
		if random.IntN(2) == 0 && ctx.Err() == nil {
			assert.NoError(t, s.Close())
			pause(ctx, 2*brief.ttl) // the callback must notice by itself
		}
		i.stop(t)
		assert.NoError(t, s.Close())
	}
}

// injectFault breaks a member and repairs it. Before, all members run.
func injectFault(t *testing.T, c *rig.EtcdCluster, f fault) {
	member := awaitLeader(t, c)
	if !f.leader {
		member = (member + 1) % 3
	}
	if f.kill {
		c.Kill(member)
		pause(t.Context(), f.lasts)
		require.NoError(t, c.Restart(member))
		return
	}
	require.NoError(t, c.Freeze(member))
	pause(t.Context(), f.lasts)
	require.NoError(t, c.Thaw(member))
}
