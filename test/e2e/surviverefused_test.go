package e2e

import (
	"strings"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/scene"
)

// refusedCourses are those in which nothing may be isolated, and what says so must
// outlive fenced.
func refusedCourses() []course {
	none := scene.Metal("2s")
	none.MaxUnhealthy = "0"
	liar, healthy := scene.Spec{Name: "dies", Protocol: scene.IPMI}, scene.Spec{Name: "healthy", Protocol: scene.IPMI}
	return []course{
		{
			name: "over the limit, on hold", only: []string{"*-status", "*-event", "*-hold"}, play: (*trial).isOverTheLimit,
			passed: []string{"after-write-status", "before-write-event", "after-write-event", "before-save-hold", "after-save-hold"},
			scene:  scene.Options{Checks: []rig.Check{none}, Workers: []scene.Spec{liar, healthy}},
		},
		{
			name: "false off, frozen", only: []string{"*-freeze", "*-Held*", "*-Aborted"}, play: (*trial).isFrozen,
			passed: []string{"before-save-freeze", "after-save-freeze", "before-save-run-Held", "after-save-run-Held-ordered", "before-save-run-Aborted"},
			scene:  scene.Options{Workers: []scene.Spec{liar, healthy}},
		},
	}
}

// isOverTheLimit is a host that may not be fenced, and a check that says so. An Event
// can be lost with the fenced that was about to write it, but is not written twice.
func (t *trial) isOverTheLimit() string {
	t.Helper()
	w := t.s.Worker("dies")
	t.fenced()
	awaitStatus(t.ctx, t.T, t.s, 2, 2, 0, "True")
	insist(t.ctx, t.T, t.s, "hold", w.Name, "--reason", "disk fails") // by one that has judged before the host hangs
	w.Kubelet.Hang()
	awaitStatus(t.ctx, t.T, t.s, 2, 1, 0, "False")
	assert.True(t, refuses(awaitRefusal(t.ctx, t.T, t.s, w.Name, "ShortCircuit"), "Hold"))
	insist(t.ctx, t.T, t.s, "release", w.Name, "--reason", "disk replaced")
	assert.False(t, refuses(awaitRefusal(t.ctx, t.T, t.s, w.Name, "ShortCircuit"), "Hold"))
	rebootByHand(t.ctx, t.T, t.s, w)
	awaitStatus(t.ctx, t.T, t.s, 2, 2, 0, "True")
	awaitEvents(t.ctx, t.T, t.s, "Normal RemediationAllowed")
	requireNotAsked(t.ctx, t.T, t.s, "dies", "healthy")
	return "none"
}

// isFrozen is a host that lives on while its BMC says Off: it is Held, and its BMC is
// not used until a person releases it.
func (t *trial) isFrozen() string {
	t.Helper()
	w := t.s.Worker("dies")
	t.fenced()
	lie(t.ctx, t.T, t.s, []*scene.Worker{w})
	require.NoError(t, w.BMC.LieOff(false))
	require.NoError(t, w.BMC.IgnoreOff(false))
	insist(t.ctx, t.T, t.s, "unfence", w.Name, "--reason", "seen alive")
	r := awaitRun(t.ctx, t.T, t.s, w.Name, result(wire.ResultAborted))
	require.Eventually(t, func() bool {
		r, err := t.s.Fencectl(t.ctx, "fence", w.Name, "--reason", "test", "--yes")
		return err == nil && r.Exit == 3 && strings.Contains(r.Stderr, "(Frozen)")
	}, patience, 100*time.Millisecond)
	require.Eventually(t, func() bool {
		// The second time there may be nothing left to release.
		_, err := t.s.Fencectl(t.ctx, "bmc", "release", w.Name, "--reason", "new firmware")
		dry, dryErr := t.s.Fencectl(t.ctx, "fence", w.Name, "--reason", "test", "--dry-run")
		return err == nil && dryErr == nil && dry.Exit == 0
	}, patience, 100*time.Millisecond)
	assert.Equal(t, 1, goBMC(t.T, w).Counts().Off, "Offs sent")
	untouched(t.ctx, t.T, t.s, w)
	untouched(t.ctx, t.T, t.s, t.s.Worker("healthy"))
	return r.Result
}
