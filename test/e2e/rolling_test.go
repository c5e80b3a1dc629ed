package e2e

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/scene"
)

// Two daemons over one etcd are reloaded one after the other, in the middle of a run: first the standby, then the owner.
// The files differ between them for as long as that takes. The owner stays the owner and ends its run, and neither of the
// two drops the cluster while the run is open, whoever carries it out. // I19
func TestRollingReloadInMidRun(t *testing.T) {
	t.Parallel()
	s := set(t, scene.Options{Workers: []scene.Spec{{Name: "halfway", Protocol: scene.Redfish}, {Name: "healthy", Protocol: scene.IPMI}}})
	_, shared := shareEtcd(t, s)
	ctx := within(t)
	owner, standby, before := awaitOwner(ctx, t, launchPeer(t, s, "one", shared...), launchPeer(t, s, "two", shared...))
	standby.awaitCluster(ctx, t, "it sees the Nodes", func(c wire.ClusterStatus) bool { return c.Nodes == 2 })
	reload := func(p *peer) (string, error) {
		done, err := p.client.Do(ctx, wire.Order{Verb: wire.Reload, Reason: "rolling"})
		return done.Value.Message, err
	}
	w := s.Worker("halfway")
	ignoreOn(w, true) // the run stays open
	hang(ctx, t, s, w)
	awaitOff(t, w)
	run := owner.openRun(ctx, t, w)

	put(t, s, "conf.d/rolling.yaml", "guards: {maxInFlight: 1}\n")
	put(t, s, "hosts.d/spare.yaml", "hosts: [{node: spare, bmc: {address: \"ipmi://127.0.0.1:1\", username: fence, passwordFile: password}}]\n")
	for _, p := range []*peer{standby, owner} {
		said, err := reload(p)
		require.NoError(t, err)
		assert.Equal(t, "reloaded: took in guards.maxInFlight, hosts.d (added scene/spare)", said)
		now := owner.awaitCluster(ctx, t, "it acts", acting)
		assert.Equal(t, before.Epoch, now.Epoch, "the cluster has changed its owner")
		assert.Equal(t, run.ID, owner.openRun(ctx, t, w).ID)
	}

	files, err := os.ReadFile(s.Config())
	require.NoError(t, err)
	renamed := strings.Replace(string(files), "{name: "+scene.ClusterName+",", "{name: renamed,", 1)
	require.NotEqual(t, string(files), renamed)
	require.NoError(t, os.WriteFile(s.Config(), []byte(renamed), 0o600))
	for _, p := range []*peer{standby, owner} {
		_, err := reload(p)
		refused := &api.Error{}
		require.ErrorAs(t, err, &refused)
		assert.Equal(t, string(reason.ReloadRefused), refused.Code)
		assert.Contains(t, refused.Message, "cluster scene cannot be removed while a run is open in it ("+run.ID+" on halfway)")
	}
	require.NoError(t, os.WriteFile(s.Config(), files, 0o600))

	ignoreOn(w, false)
	assert.Equal(t, run.ID, owner.awaitDone(ctx, t, w).ID)
	requireBack(ctx, t, s, w)
	requireOneDeletion(t, s, w)
	untouched(ctx, t, s, s.Worker("healthy"))
	assert.Equal(t, before.Epoch, owner.awaitCluster(ctx, t, "it acts", acting).Epoch)
}
