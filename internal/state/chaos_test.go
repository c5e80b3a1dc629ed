package state_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/test/rig"
)

// chaosTime is how long members and instances come and go.
const chaosTime = 12 * time.Second

// Three instances share two clusters and two slots over three members of etcd, and at
// random a member is killed or frozen, an instance stops, or loses its connection for
// good. Whatever happens: one owner at a time, one after the other, and never more
// slots than there are.
func TestHistoriesUnderFaults(t *testing.T) {
	t.Parallel()
	c := ownEtcd(t, rig.EtcdOptions{})
	owners, slots := &history{begin: time.Now()}, &history{begin: time.Now()}
	const limit = 2
	ctx, cancel := context.WithTimeout(t.Context(), chaosTime)
	defer cancel()
	var wg sync.WaitGroup
	for i := range 3 {
		s := openEtcd(t, c, "/h/")
		for j := range 2 {
			wg.Go(func() { slots.slots(ctx, s, fmt.Sprintf("r%d-%d", i, j), limit) })
		}
		wg.Go(func() { owners.comeAndGo(ctx, t, c, fmt.Sprint("i", i)) })
	}
	breakMembers(ctx, t, c)
	wg.Wait()
	owners.check(t, "owners", ownerModel())
	slots.check(t, "slots", slotModel(limit))
}

// comeAndGo is one instance that lives for a while again and again, and ends in order
// or by losing its connection.
func (h *history) comeAndGo(ctx context.Context, t *testing.T, c *rig.EtcdCluster, name string) {
	for ctx.Err() == nil {
		s, err := openEtcdAt(etcdPath(c, "/h/"))
		if err != nil {
			pause(ctx, 100*time.Millisecond) // no quorum just now
			continue
		}
		i := startOn(t, s, name, []string{"c0", "c1"}, testSettle, h.guarded(h.now()))
		pause(ctx, testTTL/2+time.Duration(rand.Int64N(int64(testTTL))))
		if rand.IntN(2) == 0 && ctx.Err() == nil {
			assert.NoError(t, s.Close())
			pause(ctx, 2*testTTL) // the guard must notice by itself
		}
		i.stop(t)
		assert.NoError(t, s.Close())
	}
}

func breakMembers(ctx context.Context, t *testing.T, c *rig.EtcdCluster) {
	for ctx.Err() == nil {
		pause(ctx, time.Second)
		i := rand.IntN(3)
		if leader, err := c.Leader(ctx); err == nil && rand.IntN(2) == 0 {
			i = leader
		}
		if rand.IntN(2) == 0 {
			c.Kill(i)
			pause(ctx, time.Second)
			require.NoError(t, c.Restart(i))
			continue
		}
		require.NoError(t, c.Freeze(i))
		pause(ctx, time.Second+time.Duration(rand.Int64N(int64(time.Second))))
		require.NoError(t, c.Thaw(i))
	}
}
