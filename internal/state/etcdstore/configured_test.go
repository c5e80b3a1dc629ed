package etcdstore_test

import (
	"context"
	"crypto/rand"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/test/must"
)

// A cluster that only one of two instances knows is owned by that one. When both know it, whoever of
// them owns it, the removal of it there hands it over in order. The other clusters keep their
// epochs. // I19
func TestClusterThatOnlyOneInstanceKnows(t *testing.T) {
	t.Parallel()
	c, prefix := sharedEtcd(t), newPrefix()
	returned := make(chan string, 10)
	note := func(ctx context.Context, claim state.Claim) {
		<-ctx.Done()
		returned <- claim.Cluster
	}
	a := startInstance(t, c, prefix, "a", []string{"prod"}, note)
	kept := a.awaitClaim(t, "prod")
	b := startInstance(t, c, prefix, "b", nil, keepClaim)
	a.owners.Add("lab")
	old := a.awaitClaim(t, "lab")
	time.Sleep(looks)
	_, ok := b.claim("lab")
	require.False(t, ok, "b is not configured for it")

	a.owners.Remove("lab")
	require.Equal(t, "lab", <-returned, "Remove returns after the callback")
	_, ok = a.claim("lab")
	require.False(t, ok)
	require.Eventually(t, func() bool {
		_, err := old.Store.Put(t.Context(), state.Record{Kind: state.KindRun, Key: rand.Text(), Data: []byte("late")})
		return errors.Is(err, state.ErrNotOwner)
	}, eventually, 20*time.Millisecond, "the claim is released")
	b.owners.Add("lab")
	require.Greater(t, b.awaitClaim(t, "lab").Epoch, old.Epoch)
	b.owners.Remove("lab")
	b.awaitLoss(t, "lab")
	a.owners.Remove("never there")
	time.Sleep(looks)
	_, ok = a.claim("lab")
	require.False(t, ok, "nobody is configured for it")

	a.owners.Add("lab")
	a.awaitClaim(t, "lab")
	still, ok := a.claim("prod")
	require.True(t, ok)
	require.Equal(t, kept.Epoch, still.Epoch, "the other cluster was not disturbed")
}

// An instance that was removed from a cluster while it waits for the commands of a lost owner never
// acts, and the next owner waits instead. // I19
func TestClusterIsRemovedBeforeItsClaimBegins(t *testing.T) {
	t.Parallel()
	c, prefix := sharedEtcd(t), newPrefix()
	a := startOn(t, openEtcd(t, c, prefix), "a", []string{"prod"}, expiring, keepClaim)
	a.awaitClaim(t, "prod")
	require.NoError(t, a.store.Close()) // it is lost

	b := startOn(t, openEtcd(t, c, prefix), "b", []string{"prod"}, times{ttl: lasting.ttl, delay: time.Hour}, keepClaim)
	require.Eventually(t, func() bool { return b.owners.Owner("prod").Instance == "b" }, eventually, 20*time.Millisecond)
	b.owners.Remove("prod")
	removed := time.Now()
	const delay = 3 * time.Second
	next := startOn(t, openEtcd(t, c, prefix), "c", []string{"prod"}, times{ttl: lasting.ttl, delay: delay}, keepClaim)
	next.awaitClaim(t, "prod")
	require.GreaterOrEqual(t, time.Since(removed), delay)
	_, called := b.claim("prod")
	require.False(t, called)
}

// The key of a claim whose answer was lost is released, too, when its cluster is not configured any
// more: otherwise it would last as long as the session, and nobody could own the cluster. // I19
func TestClaimOfARemovedClusterIsReleased(t *testing.T) {
	t.Parallel()
	c, prefix := sharedEtcd(t), newPrefix()
	a := startInstance(t, c, prefix, "a", []string{"prod"}, keepClaim)
	a.awaitClaim(t, "prod")
	client := etcdClient(t, c)
	member := must.Do(client.Get(t.Context(), prefix+"ha/member/a"))(t)
	require.Len(t, member.Kvs, 1)
	must.Do(client.Put(t.Context(), prefix+"ha/owner/lab", `{"instance":"a"}`, clientv3.WithLease(clientv3.LeaseID(member.Kvs[0].Lease))))(t)
	require.Eventually(t, func() bool {
		owner, err := client.Get(t.Context(), prefix+"ha/owner/lab")
		return err == nil && len(owner.Kvs) == 0
	}, eventually, 20*time.Millisecond)
	_, called := a.claim("lab")
	assert.False(t, called)
	last := must.Do(client.Get(t.Context(), prefix+"ha/last/lab"))(t)
	require.Len(t, last.Kvs, 1)
	assert.JSONEq(t, `{"instance":"a","givenUp":false}`, string(last.Kvs[0].Value), "the next owner waits for what it might have sent")
}

// An instance that left a cluster to the others, and was then removed from it, wants it again when it
// is added.
func TestAddedClusterIsWanted(t *testing.T) {
	t.Parallel()
	c, prefix := sharedEtcd(t), newPrefix()
	a := startInstance(t, c, prefix, "a", []string{"prod"}, keepClaim)
	a.awaitClaim(t, "prod")
	a.owners.Remove("prod")
	a.owners.StepAside("prod", true) // the end of the cluster that is removed
	a.owners.Add("prod")
	client := etcdClient(t, c)
	require.Eventually(t, func() bool {
		member, err := client.Get(t.Context(), prefix+"ha/member/a")
		return err == nil && len(member.Kvs) == 1 && string(member.Kvs[0].Value) == `{"clusters":["prod"]}`
	}, eventually, 20*time.Millisecond)
	a.awaitClaim(t, "prod")
}

// An owner that steps aside hands its cluster over in order, and does not take it back while the
// other instance runs. // I13
func TestOwnerStepsAside(t *testing.T) {
	t.Parallel()
	c, prefix := sharedEtcd(t), newPrefix()
	a := startInstance(t, c, prefix, "a", []string{"prod", "lab"}, keepClaim)
	first := a.awaitClaim(t, "prod")
	a.awaitClaim(t, "lab")
	assert.Empty(t, a.owners.Owner("prod").Standby)
	require.True(t, a.owners.StepAside("prod", true))
	time.Sleep(looks)
	kept, ok := a.claim("prod")
	require.True(t, ok, "nobody else is there")
	require.Equal(t, first.Epoch, kept.Epoch)

	b := startInstance(t, c, prefix, "b", []string{"prod"}, keepClaim)
	fresh := b.awaitClaim(t, "prod")
	require.Greater(t, fresh.Epoch, first.Epoch)
	_, ok = a.claim("prod")
	require.False(t, ok)
	_, ok = a.claim("lab")
	require.True(t, ok, "the other cluster stays")
	time.Sleep(looks)
	again, ok := b.claim("prod")
	require.True(t, ok)
	require.Equal(t, fresh.Epoch, again.Epoch, "and there it stays, whoever is preferred")
	assert.Empty(t, b.owners.Owner("prod").Standby, "a does not stand by")

	a.owners.StepAside("prod", false)
	require.Eventually(t, func() bool {
		_, atA := a.claim("prod")
		return atA || b.owners.Owner("prod").Standby == "a"
	}, eventually, 20*time.Millisecond, "it stands by again")
}

// If every instance steps aside, the owner keeps the cluster. If the owner is gone, another one
// takes the cluster although it steps aside.
func TestOwnerKeepsTheClusterIfAllStepAside(t *testing.T) {
	t.Parallel()
	c, prefix := sharedEtcd(t), newPrefix()
	a := startInstance(t, c, prefix, "a", []string{"prod"}, keepClaim)
	first := a.awaitClaim(t, "prod")
	b := startInstance(t, c, prefix, "b", []string{"prod"}, keepClaim)
	b.owners.StepAside("prod", true)
	require.Eventually(t, func() bool { return a.owners.Owner("prod").Standby == "" }, eventually, 20*time.Millisecond)
	a.owners.StepAside("prod", true)
	time.Sleep(looks)
	kept, ok := a.claim("prod")
	require.True(t, ok)
	require.Equal(t, first.Epoch, kept.Epoch)

	a.stop(t)
	stopped := time.Now()
	b.awaitClaim(t, "prod")
	require.Less(t, time.Since(stopped), lasting.ttl, "it does not wait for a preferred instance")
}

// An instance that steps aside does so in its next session too.
func TestStepAsideOutlastsTheSession(t *testing.T) {
	t.Parallel()
	c, prefix := sharedEtcd(t), newPrefix()
	a := startInstance(t, c, prefix, "a", []string{"prod"}, keepClaim)
	a.owners.StepAside("prod", true)
	a.awaitClaim(t, "prod")
	b := startInstance(t, c, prefix, "b", []string{"prod"}, keepClaim)
	b.awaitClaim(t, "prod")
	client := etcdClient(t, c)
	member := must.Do(client.Get(t.Context(), prefix+"ha/member/a"))(t)
	require.Len(t, member.Kvs, 1)
	revision := member.Kvs[0].CreateRevision
	_, err := client.Revoke(t.Context(), clientv3.LeaseID(member.Kvs[0].Lease))
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		member, err = client.Get(t.Context(), prefix+"ha/member/a")
		return err == nil && len(member.Kvs) == 1 && member.Kvs[0].CreateRevision > revision
	}, eventually, 20*time.Millisecond)
	require.JSONEq(t, `{"clusters":[]}`, string(member.Kvs[0].Value))
}
