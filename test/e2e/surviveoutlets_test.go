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

	"github.com/fenced/fenced/test/scene"
)

// A fenced that dies by SIGKILL around each save and action of power, at each
// level, ends where one ends that lives: the next level is used with a proof of
// its own, and all that was given an Off is given an On.
func TestFencedSurvivesKillBetweenLevels(t *testing.T) {
	t.Parallel()
	needAgents(t)
	o := levelOptions(scene.Spec{Name: "dies", Protocol: scene.Redfish, Outlets: []scene.Outlet{byLibrary}})
	o.Set = append(o.Set, "power.offDeadline=32s", "power.podsGoneTimeout=0s") // each death voids what was proven
	s := set(t, o)
	ctx := within(t, 4*time.Minute)
	w := s.Worker("dies")
	require.NoError(t, w.BMC.IgnoreOff(true))
	first, err := s.StartDaemon(ctx)
	require.NoError(t, err)
	enroll(ctx, t, s, w.Name)
	first.Kill()
	truth := watchSupply(t, w)
	markers := onlyPoint(t, "") // what TestFencedSurvivesKillAtEverySave goes through
	again(t, markers, "PowerOff")
	again(t, markers, "PowerOn")
	deaths := keepAlive(ctx, t, s, markers)
	w.Kubelet.Hang()

	acted := filepath.Join(markers, "acted-PowerOff-SendOff")
	require.Eventually(t, func() bool { _, err := os.Stat(acted); return err == nil }, time.Minute, 20*time.Millisecond, "killed right after the Off of level 1")
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
		"before-PowerOff-", "after-PowerOff-", "before-PowerOff-SendOff", "after-PowerOff-SendOff", "acted-PowerOff-SendOff",
		"before-PowerOn-", "after-PowerOn-", "before-PowerOn-SendOn", "after-PowerOn-SendOn", "acted-PowerOn-SendOn",
	} {
		assert.Contains(t, passed, point)
	}
	assert.GreaterOrEqual(t, deaths(), atLevel1+10)
}

// around lists the failpoints of steps with a name like this that were passed.
func around(t *testing.T, markers, step string) []string {
	t.Helper()
	return slices.DeleteFunc(list(t, markers), func(name string) bool { return !strings.Contains(name, "-"+step) })
}

// again makes the failpoints of a step as if they had not been passed, and says
// how many had.
func again(t *testing.T, markers, step string) int {
	t.Helper()
	points := around(t, markers, step+"-")
	for _, point := range points {
		require.NoError(t, os.Remove(filepath.Join(markers, point)))
	}
	return len(points)
}
