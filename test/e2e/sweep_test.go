package e2e

import (
	"bufio"
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/port"
	"github.com/fenced/fenced/test/scene"
)

// A BMC that dies while its host is well is known before it is needed: by the
// list, by a metric, and once in the journal. Looking at BMCs switches nothing.
func TestSweepFindsTheDeadBMC(t *testing.T) {
	t.Parallel()
	needDebian(t, "ipmi_sim")
	metrics := freeAddress(t)
	s := set(t, scene.Options{
		Set: []string{"sweep.interval=10s", "power.readTimeout=5s", "metrics.listen=" + metrics},
		Workers: []scene.Spec{
			{Name: "dies", Protocol: scene.IPMI}, {Name: "open-to-all", Protocol: scene.IPMISim},
			{Name: "unverified", Protocol: scene.Redfish, Metal3: true}, {Name: "verified", Protocol: scene.Redfish},
		},
	})
	ctx := within(t)
	_, err := s.StartDaemon(ctx)
	require.NoError(t, err)
	awaitAll(ctx, t, s, func(b wire.BMC) bool {
		return b.State == "ok" && b.Dependable && b.Identity == "match" && b.Power == "On"
	})
	fencectl(ctx, t, s, 0, "bmc", "list")
	assert.Equal(t, "0", metric(ctx, t, metrics, `fenced_bmc_not_dependable{cluster="scene"}`))

	w := s.Worker("dies")
	w.KillBMC()
	now := fencectl(ctx, t, s, 2, "bmc", "test", w.Name)
	assert.Contains(t, now.Stdout, "BMCUnreachable")
	awaitListed(ctx, t, s, w.Name, "BMCUnreachable")
	list := awaitAll(ctx, t, s, func(b wire.BMC) bool { return b.Dependable == (b.Node != w.Name) })
	assert.Len(t, list, 4)
	assert.Equal(t, "1", metric(ctx, t, metrics, `fenced_bmc_not_dependable{cluster="scene"}`))
	time.Sleep(15 * time.Second) // another look or two
	assert.Equal(t, 1, strings.Count(s.LogTail(10000), "of scene/dies is not dependable"), "told once")

	w.ReviveBMC()
	fencectl(ctx, t, s, 0, "bmc", "test", w.Name)
	fencectl(ctx, t, s, 0, "bmc", "list")
	assert.Equal(t, "0", metric(ctx, t, metrics, `fenced_bmc_not_dependable{cluster="scene"}`))
	assert.Equal(t, 1, strings.Count(s.LogTail(10000), "of scene/dies is dependable again"))

	for node, want := range map[string]string{"open-to-all": "CipherZero", "unverified": "CertificateTrust"} {
		r := fencectl(ctx, t, s, 2, "bmc", "audit", node)
		assert.Contains(t, r.Stdout, want)
	}
	verified := fencectl(ctx, t, s, 2, "bmc", "audit", "verified")
	assert.NotContains(t, verified.Stdout, "CertificateTrust")
	everything := fencectl(ctx, t, s, 2, "bmc", "audit")
	assert.Contains(t, everything.Stdout, "CipherZero", "what was found is kept")

	assert.Zero(t, goBMC(t, w).Counts().Off+goBMC(t, w).Counts().On, "commands to the BMC of %s", w.Name)
	for _, name := range []string{"unverified", "verified"} {
		sim := s.Worker(name).Service
		assert.Empty(t, sim.System(0).Commands(), "commands to the BMC of %s", name)
		assert.Eventually(t, func() bool { return sim.OpenSessions() <= 1 }, patience, 100*time.Millisecond, "sessions are ended")
	}
	for _, w := range s.Workers {
		assert.True(t, w.On(), w.Name)
		untouched(ctx, t, s, w)
	}
}

// awaitAll waits until bmc list says of each device what is wanted.
func awaitAll(ctx context.Context, t *testing.T, s *scene.Scene, ok func(wire.BMC) bool) []wire.BMC {
	t.Helper()
	var list []wire.BMC
	require.Eventually(t, func() bool {
		var err error
		if list, err = s.BMCs(ctx, "list"); err != nil || len(list) != len(s.Workers) {
			return false
		}
		for i := range list {
			if !ok(list[i]) {
				return false
			}
		}
		return true
	}, patience, 200*time.Millisecond, "the devices are %+v", list)
	return list
}

// freeAddress is one that nobody listens at now.
func freeAddress(t *testing.T) string {
	t.Helper()
	addr, err := port.Free("tcp", "127.0.0.1")
	require.NoError(t, err)
	return addr
}

// metric is the value of one line of the daemon's metrics; empty if there is none, or while the
// daemon does not listen yet.
func metric(ctx context.Context, t *testing.T, addr, name string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/metrics", nil)
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Logf("read the metrics: %v", err)
		return ""
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if value, found := strings.CutPrefix(lines.Text(), name+" "); found {
			return value
		}
	}
	require.NoError(t, lines.Err())
	return ""
}
