package e2e

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/ipmisim"
	"github.com/fenced/fenced/test/scene"
)

// A BMC that says Off while the kubelet lives is not believed, its host is not
// switched off again, and after the second one no host with such a BMC is, by
// anybody, whatever happens to the daemon, until somebody releases it.
func TestFalseOffFreezes(t *testing.T) {
	t.Parallel()
	s := set(t, scene.Options{Workers: []scene.Spec{
		{Name: "liar-1", Protocol: scene.IPMI}, {Name: "liar-2", Protocol: scene.IPMI},
		{Name: "same-model", Protocol: scene.IPMI}, {Name: "other-model", Protocol: scene.Redfish},
	}})
	ctx := within(t)
	d, err := s.StartDaemon(ctx)
	require.NoError(t, err)
	requireGoodStatus(ctx, t, s)
	for _, w := range s.Workers {
		fencectl(ctx, t, s, 0, "bmc", "test", w.Name) // what the health check would do in a minute
	}
	liars := s.Workers[:2]
	lie(ctx, t, s, liars)

	other := s.Worker("other-model")
	other.Kubelet.Hang()
	awaitRun(ctx, t, s, other.Name, result(wire.ResultDone))
	third := s.Worker("same-model")
	third.Kubelet.Hang()
	x := awaitRefusal(ctx, t, s, third.Name, "ClassFrozen")
	assert.Nil(t, x.Run, "no run was begun")
	stopLying(ctx, t, s, liars)
	for _, w := range liars {
		requireFrozen(ctx, t, s, w.Name, "Frozen")
	}
	requireFrozen(ctx, t, s, third.Name, "ClassFrozen")

	d.Kill()
	_, err = s.StartDaemon(ctx)
	require.NoError(t, err)
	awaitRefusal(ctx, t, s, third.Name, "ClassFrozen")
	for _, w := range liars {
		requireFrozen(ctx, t, s, w.Name, "Frozen")
	}
	requireFrozen(ctx, t, s, third.Name, "ClassFrozen")
	awaitListed(ctx, t, s, third.Name, "ClassFrozen")
	assert.Zero(t, goBMC(t, third).Counts().Off, "no Off was ever sent to %s", third.Name)

	fencectl(ctx, t, s, 7, "bmc", "release", third.Name, "--reason", "it never lied") // nothing stands on itself
	fencectl(ctx, t, s, 0, "bmc", "release", liars[0].Name, "--reason", "new firmware")
	awaitRun(ctx, t, s, third.Name, result(wire.ResultDone))
	requireBack(ctx, t, s, third)
	requireOneDeletion(t, s, third)
	requireFrozen(ctx, t, s, liars[1].Name, "Frozen")
	fencectl(ctx, t, s, 0, "fence", liars[0].Name, "--reason", "test", "--dry-run")
	for _, w := range liars {
		untouched(ctx, t, s, w)
	}
}

// lie makes BMCs say Off of hosts that live on, and waits until fenced has
// noticed.
func lie(ctx context.Context, t *testing.T, s *scene.Scene, liars []*scene.Worker) {
	t.Helper()
	for _, w := range liars {
		require.NoError(t, w.BMC.IgnoreOff(true))
		require.NoError(t, w.BMC.LieOff(true))
		w.Kubelet.Hang()
	}
	for _, w := range liars {
		renewOnceOff(ctx, t, s, w)
	}
	for _, w := range liars {
		r := awaitRun(ctx, t, s, w.Name, result(wire.ResultHeld))
		require.Equal(t, "FalseOff", r.Reason)
		requireNoDeletion(t, s, w)
	}
}

// stopLying ends the lies and the runs that they stopped; the hosts stay frozen.
func stopLying(ctx context.Context, t *testing.T, s *scene.Scene, liars []*scene.Worker) {
	t.Helper()
	for _, w := range liars {
		require.NoError(t, w.BMC.LieOff(false))
		require.NoError(t, w.BMC.IgnoreOff(false))
		fencectl(ctx, t, s, 0, "unfence", w.Name, "--reason", "seen alive")
	}
	for _, w := range liars {
		awaitRun(ctx, t, s, w.Name, result(wire.ResultAborted))
	}
}

// awaitListed waits until bmc list shows a code on a node's line, and checks its
// exit status.
func awaitListed(ctx context.Context, t *testing.T, s *scene.Scene, node, code string) {
	t.Helper()
	require.Eventually(t, func() bool {
		r, err := s.Fencectl(ctx, "bmc", "list", "-o", "wide")
		return err == nil && r.Exit == 2 && strings.Contains(lineOf(r.Stdout, node), code)
	}, patience, 200*time.Millisecond, "bmc list shows %s of %s", code, node)
}

// requireFrozen checks that not even a person can fence a host.
func requireFrozen(ctx context.Context, t *testing.T, s *scene.Scene, node, code string) {
	t.Helper()
	r := fencectl(ctx, t, s, 3, "fence", node, "--reason", "test", "--yes")
	assert.Contains(t, r.Stderr, "("+code+")", node)
}

func goBMC(t *testing.T, w *scene.Worker) *ipmisim.GoBMC {
	t.Helper()
	b, ok := w.BMC.(*ipmisim.GoBMC)
	require.True(t, ok, "the BMC of %s is go-ipmi's", w.Name)
	return b
}
