package e2e

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/ipmisim"
	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/scene"
)

// Whoever may write BareMetalHosts and Nodes reaches no other host with that: neither
// before a run nor in the middle of one.
func TestHostilePointersReachNoOtherHost(t *testing.T) { // I9, I10
	t.Parallel()
	s := set(t, scene.Options{Workers: []scene.Spec{
		{Name: "before", Protocol: scene.IPMI, Metal3: true}, {Name: "during", Protocol: scene.IPMI, Metal3: true},
		{Name: "doubled", Protocol: scene.IPMI}, {Name: "victim", Protocol: scene.IPMI},
	}})
	ctx := within(t)
	_, err := s.StartDaemon(ctx)
	require.NoError(t, err)
	requireGoodStatus(ctx, t, s)
	before, during, doubled, victim := s.Worker("before"), s.Worker("during"), s.Worker("doubled"), s.Worker("victim")
	at, asked := decoy(t, victim)
	for _, w := range []*scene.Worker{before, during} {
		fencectl(ctx, t, s, 0, "bmc", "test", w.Name) // what the health check would do in a minute
	}
	home := addressOf(ctx, t, s, during.Name)

	pointAt(ctx, t, s, before.Name, at)
	forged, err := s.Cluster.CreateNode(ctx, rig.Node{Name: "forged", SystemUUID: doubled.UUID})
	require.NoError(t, err)
	for _, w := range []*scene.Worker{before, during, doubled} {
		w.Kubelet.Hang()
	}
	require.Eventually(t, func() bool { return goBMC(t, during).Counts().Off > 0 }, patience, 20*time.Millisecond)
	pointAt(ctx, t, s, during.Name, at)

	x := awaitRefusal(ctx, t, s, before.Name, "AddressChanged")
	assert.Nil(t, x.Run)
	x = awaitRefusal(ctx, t, s, doubled.Name, "DuplicateUUID")
	assert.Nil(t, x.Run)
	require.NoError(t, s.Cluster.Client().CoreV1().Nodes().Delete(ctx, forged.Name, metav1.DeleteOptions{}))

	r := awaitRun(ctx, t, s, during.Name, func(r wire.RunRecord) bool { return r.Result == wire.ResultHeld || r.Result == wire.ResultDone })
	t.Logf("the run whose BareMetalHost was pointed elsewhere: %s, %s: %s", r.Result, r.Reason, r.Note)
	awaitRun(ctx, t, s, doubled.Name, result(wire.ResultDone))
	requireBack(ctx, t, s, doubled)
	pointAt(ctx, t, s, during.Name, home)
	if r.Result == wire.ResultHeld {
		fencectl(ctx, t, s, 0, "unfence", during.Name, "--reason", "pointed back")
	}
	requireNodes(ctx, t, s, during.Name)
	assert.True(t, during.BMC.Power(), "it is not left off")

	assert.Zero(t, asked.Load(), "datagrams to the BMC of another host")
	assert.Zero(t, goBMC(t, before).Counts().Off)
	assert.Zero(t, goBMC(t, victim).Counts())
	untouched(ctx, t, s, before)
	untouched(ctx, t, s, victim)
}

// decoy is another address of a worker's BMC, and how many datagrams came there.
func decoy(t *testing.T, w *scene.Worker) (address string, asked *atomic.Int64) {
	t.Helper()
	relay, err := ipmisim.StartRelay(w.BMC.Addr())
	require.NoError(t, err)
	t.Cleanup(relay.Stop)
	asked = &atomic.Int64{}
	relay.Filter(func(d ipmisim.Datagram) []ipmisim.Datagram {
		if !d.FromBMC {
			asked.Add(1)
		}
		return []ipmisim.Datagram{d}
	})
	return "ipmi://" + relay.Addr(), asked
}

// addressOf is where a BareMetalHost says that its BMC is.
func addressOf(ctx context.Context, t *testing.T, s *scene.Scene, name string) string {
	t.Helper()
	u, err := s.Management.Dynamic().Resource(rig.HostResource).Namespace(rig.Namespace).Get(ctx, name, metav1.GetOptions{})
	require.NoError(t, err)
	spec, ok := u.Object["spec"].(map[string]any)
	require.True(t, ok)
	bmc, ok := spec["bmc"].(map[string]any)
	require.True(t, ok)
	address, ok := bmc["address"].(string)
	require.True(t, ok)
	return address
}
