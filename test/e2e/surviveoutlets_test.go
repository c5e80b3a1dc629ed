package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/test/dice"
	"github.com/fenced/fenced/test/scene"
)

// A fenced that dies by SIGKILL around each save and action of power, at each
// level, ends where one ends that lives: the next level is used with a proof of
// its own, and all that was given an Off is given an On.
func TestFencedSurvivesKillBetweenLevels(t *testing.T) {
	t.Parallel()
	dice.OnlyInSoak(t)
	needAgents(t)
	o := levelOptions(scene.Spec{Name: "dies", Protocol: scene.Redfish, Outlets: []scene.Outlet{byLibrary}})
	o.Set = append(o.Set, "power.offDeadline=32s", "power.onDeadline=2m", "power.podsGoneTimeout=0s", "power.sessionTimeout=0s") // each death voids what was proven
	s := set(t, o)
	ctx := within(t)
	w := s.Worker("dies")
	require.NoError(t, w.BMC.IgnoreOff(true))
	first, err := s.StartDaemon(ctx)
	require.NoError(t, err)
	enroll(ctx, t, s, w.Name)
	first.Kill()
	truth := watchSupply(t, w)
	markers := points(t, "*-PowerOff*", "*-PowerOn*") // TestFencedSurvives goes through the others
	deaths := keepAlive(ctx, t, s, markers)
	hang(ctx, t, s, w)

	acted := filepath.Join(markers, "after-command-off-PowerOff-device0")
	require.Eventually(t, func() bool { _, err := os.Stat(acted); return err == nil }, patience, 20*time.Millisecond, "killed right after the Off of level 1")
	require.Equal(t, []bool{false}, w.Service.System(0).Commands(), "one Off to level 1")
	require.True(t, w.Outlet(0).Power())
	atLevel1 := again(t, markers, "PowerOff")

	r := requireFenced(ctx, t, s, w, truth)
	assert.Contains(t, notesOf(r), "on to the next level")
	assert.Contains(t, notesOf(r), "proven off by power level 2")
	assert.Contains(t, w.Service.System(0).Commands(), true, "level 1 was told On, too")
	untouched(ctx, t, s, s.Worker("healthy"))
	passed := around(t, markers, "Power")
	t.Logf("%d deaths in %s", deaths(), r.Ended.Sub(r.Started).Round(time.Second))
	for _, point := range []string{
		"save-run-PowerOff", "save-run-PowerOff-SendOff", "command-off-PowerOff-device1",
		"save-run-PowerOn", "save-run-PowerOn-SendOn", "command-on-PowerOn-device1", "command-on-PowerOn-device0",
	} {
		assert.Contains(t, passed, "before-"+point)
		assert.Contains(t, passed, "after-"+point)
	}
	assert.GreaterOrEqual(t, deaths(), atLevel1+10)
}

// around lists the failpoints of steps with a name like this that were passed.
func around(t *testing.T, markers, step string) []string {
	t.Helper()
	return slices.DeleteFunc(died(t, markers), func(name string) bool { return !strings.Contains(name, "-"+step) })
}

// again makes the failpoints of a step as if they had not been passed, and says
// how many had.
func again(t *testing.T, markers, step string) int {
	t.Helper()
	passed := around(t, markers, step)
	for _, point := range passed {
		require.NoError(t, os.Remove(filepath.Join(markers, point)))
	}
	return len(passed)
}
