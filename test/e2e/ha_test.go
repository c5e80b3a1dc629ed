package e2e

import (
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/scene"
)

// The owner is killed while a host is off: the other one, over the same etcd, goes on
// with that very run. Started again, the killed one leaves the cluster where it is.
func TestOwnerKilledInMidRun(t *testing.T) {
	t.Parallel()
	s := set(t, twoWorkers())
	_, shared := shareEtcd(t, s)
	ctx := within(t)
	owner, other, before := awaitOwner(ctx, t, launchPeer(t, s, "one", shared...), launchPeer(t, s, "two", shared...))
	w := s.Worker("halfway")
	hang(ctx, t, s, w)
	awaitOff(t, w)
	run := owner.openRun(ctx, t, w)
	owner.Kill()
	requireNoDeletion(t, s, w)

	done := other.awaitDone(ctx, t, w)
	assert.Equal(t, run.ID, done.ID, "it is the same run")
	requireBack(ctx, t, s, w)
	requireOneDeletion(t, s, w)
	now := other.awaitCluster(ctx, t, "it acts", acting)
	assert.Equal(t, other.name, now.OwnerName)
	assert.Greater(t, now.Epoch, before.Epoch)
	text, exit := other.fencectl(ctx, t, "status")
	assert.Zero(t, exit, text)
	assert.Contains(t, text, strconv.FormatUint(now.Epoch, 10))

	again := owner.start()
	is := again.awaitCluster(ctx, t, "the other one acts, and it sees the Nodes", func(c wire.ClusterStatus) bool { return c.OwnerName == other.name && c.Nodes == 2 })
	assert.False(t, is.Owner)
	assert.Equal(t, now.Epoch, is.Epoch)
	text, _ = again.fencectl(ctx, t, "status")
	assert.Contains(t, text, other.name)
	text, exit = again.fencectl(ctx, t, "fence", "healthy", "--reason", "test", "--yes")
	assert.Equal(t, 3, exit, text)
	assert.Contains(t, text, other.name, "orders are given there")
	untouched(ctx, t, s, s.Worker("healthy"))
}

// The owner stands still, with a proof in its memory, until another one has taken
// over, and then goes on: it finds that nothing is its any more. // I19
func TestOwnerFrozenForLongerThanItsClaim(t *testing.T) {
	t.Parallel()
	s := set(t, twoWorkers())
	_, shared := shareEtcd(t, s)
	ctx := within(t)
	owner, other, before := awaitOwner(ctx, t, launchPeer(t, s, "one", shared...), launchPeer(t, s, "two", shared...))
	w := s.Worker("halfway")
	hang(ctx, t, s, w)
	awaitOff(t, w)
	require.NoError(t, syscall.Kill(owner.PID(), syscall.SIGSTOP))
	requireNoDeletion(t, s, w)
	now := other.awaitCluster(ctx, t, "it owns the cluster", func(c wire.ClusterStatus) bool { return c.Owner })
	require.NoError(t, syscall.Kill(owner.PID(), syscall.SIGCONT))
	assert.Greater(t, now.Epoch, before.Epoch)

	owner.awaitCluster(ctx, t, "the other one acts", func(c wire.ClusterStatus) bool { return c.OwnerName == other.name && !c.Owner })
	other.awaitDone(ctx, t, w)
	requireBack(ctx, t, s, w)
	requireOneDeletion(t, s, w)
	owner.awaitDone(ctx, t, w) // it sees what the other one did
	offs, ons := switched(t, w)
	assert.Equal(t, []int{1, 1}, []int{offs, ons}, "off once and on once, whoever was awake")
	untouched(ctx, t, s, s.Worker("healthy"))
}

// Two installations with a file each on one cluster: the second one only watches, and
// says why, as long as the first one gives a sign.
func TestTwoStoresAreTwoFencers(t *testing.T) {
	t.Parallel()
	s := set(t, twoWorkers())
	ctx := within(t)
	first := launchPeer(t, s, "one")
	first.awaitCluster(ctx, t, "it acts", acting)
	second := launchPeer(t, s, "two")
	second.awaitCluster(ctx, t, "there is another", func(c wire.ClusterStatus) bool {
		return c.ViewAgeSeconds < 5 && c.Nodes == 2 && strings.Contains(c.Problem, `fenced instance "one", with a store of its own, holds the Lease kube-system/fenced`)
	})
	text, exit := second.fencectl(ctx, t, "status")
	assert.Equal(t, 2, exit, "degraded")
	assert.Contains(t, text, "with a store of its own")

	w := s.Worker("halfway")
	hang(ctx, t, s, w)
	first.awaitDone(ctx, t, w)
	requireBack(ctx, t, s, w)
	requireOneDeletion(t, s, w)
	seen, err := second.client.NodeTimeline(ctx, scene.ClusterName, w.Name)
	require.NoError(t, err)
	assert.Empty(t, seen.Value.Runs, "the second one began nothing")
	text, exit = second.fencectl(ctx, t, "fence", "healthy", "--reason", "test", "--yes")
	assert.Equal(t, 3, exit, text)
	assert.Contains(t, text, "NotOwner")
	untouched(ctx, t, s, s.Worker("healthy"))

	first.Kill()
	second.awaitCluster(ctx, t, "it acts, now that the first one gives no sign", acting)
}

// etcd loses its quorum while a host is off: nothing new is begun and nothing is sent,
// the host stays off on record, and comes back with the quorum. // I19, I20
func TestEtcdQuorumLostInMidRun(t *testing.T) {
	t.Parallel()
	o := twoWorkers()
	o.Workers = append(o.Workers, scene.Spec{Name: "later", Protocol: scene.IPMI})
	s := set(t, o)
	etcd, shared := shareEtcd(t, s)
	ctx := within(t)
	only := launchPeer(t, s, "one", shared...)
	before := only.awaitCluster(ctx, t, "it acts", acting)
	w, later := s.Worker("halfway"), s.Worker("later")
	hang(ctx, t, s, w)
	awaitOff(t, w)
	for _, member := range []int{1, 2} { // their connections stay open
		require.NoError(t, etcd.Freeze(member))
	}
	hang(ctx, t, s, later)

	only.awaitCluster(ctx, t, "it owns the cluster no more", func(c wire.ClusterStatus) bool { return !c.Owner && c.Problem != "" })
	only.awaitCluster(ctx, t, "it would begin with another host", func(c wire.ClusterStatus) bool {
		for _, d := range c.Deviating {
			if d.Node == later.Name && d.Verdict == "Unhealthy" {
				return true
			}
		}
		return false
	})
	time.Sleep(2 * time.Second) // it could begin now
	x, err := only.client.Explain(ctx, scene.ClusterName, later.Name)
	require.NoError(t, err)
	assert.Equal(t, "NotOwner", x.Value.Refused)
	only.openRun(ctx, t, w)
	offs, ons := switched(t, w)
	assert.Equal(t, []int{1, 0}, []int{offs, ons}, "off, and nothing sent since")
	offs, ons = switched(t, later)
	assert.Equal(t, []int{0, 0}, []int{offs, ons})
	requireNoDeletion(t, s, w)
	requireNoDeletion(t, s, later)

	for _, member := range []int{1, 2} {
		require.NoError(t, etcd.Thaw(member))
	}
	only.awaitDone(ctx, t, w)
	only.awaitDone(ctx, t, later)
	for _, each := range []*scene.Worker{w, later} {
		requireBack(ctx, t, s, each)
		requireOneDeletion(t, s, each)
	}
	assert.Greater(t, only.awaitCluster(ctx, t, "it acts", acting).Epoch, before.Epoch)
	untouched(ctx, t, s, s.Worker("healthy"))
}

// twoWorkers are one that a test hangs, and one that nothing happens to. There are 12 s
// between Off and its proof, in which a test can break something.
func twoWorkers() scene.Options {
	return scene.Options{Set: []string{"power.offReadSpacing=12s"}, Workers: []scene.Spec{{Name: "halfway", Protocol: scene.IPMI}, {Name: "healthy", Protocol: scene.IPMI}}}
}
