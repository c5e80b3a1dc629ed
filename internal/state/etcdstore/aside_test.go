package etcdstore_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
)

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
	member, err := client.Get(t.Context(), prefix+"ha/member/a")
	require.NoError(t, err)
	require.Len(t, member.Kvs, 1)
	revision := member.Kvs[0].CreateRevision
	_, err = client.Revoke(t.Context(), clientv3.LeaseID(member.Kvs[0].Lease))
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		member, err = client.Get(t.Context(), prefix+"ha/member/a")
		return err == nil && len(member.Kvs) == 1 && member.Kvs[0].CreateRevision > revision
	}, eventually, 20*time.Millisecond)
	require.JSONEq(t, `{"clusters":[]}`, string(member.Kvs[0].Value))
}
