package e2e

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/test/scene"
)

// A fenced that dies by SIGKILL before and after each of its saves, and after
// each of its actions, ends where one ends that lives: one deletion, by the API
// server's own account, and never while the BMC tells anybody that the host is on.
func TestFencedSurvivesKillAtEverySave(t *testing.T) {
	t.Parallel()
	for _, p := range []scene.Protocol{scene.IPMISim, scene.Redfish} {
		t.Run(string(p), func(t *testing.T) {
			t.Parallel()
			if p == scene.IPMISim {
				needDebian(t, "ipmi_sim", "ipmitool")
			}
			survive(t, p)
		})
	}
}

func survive(t *testing.T, p scene.Protocol) {
	s := set(t, scene.Options{
		Workers: []scene.Spec{{Name: "dies", Protocol: p}, {Name: "healthy", Protocol: scene.IPMI}},
		Set:     []string{"power.offReadSpacing=1s", "power.offDeadline=90s", "power.podsGoneTimeout=0s"},
	})
	ctx := within(t, 4*time.Minute)
	w := s.Worker("dies")
	wit := watchBMC(t, w)
	markers := t.TempDir()
	deaths := keepAlive(ctx, t, s, markers)
	w.Kubelet.Hang()

	r := awaitRun(ctx, t, s, w.Name, result(api.ResultDone))
	assert.Empty(t, r.Reason)
	assert.Equal(t, "RestoreNode", r.Steps[len(r.Steps)-1].Step)
	requireBack(ctx, t, s, w)
	deleted := requireOneDeletion(t, s, w)
	require.True(t, wit.saidOn())
	wit.requireOffAt(t, deleted.Received)
	untouched(ctx, t, s, s.Worker("healthy"))

	passed := list(t, markers)
	t.Logf("%d deaths, run of %s, steps %v", deaths(), r.Ended.Sub(r.Started).Round(time.Second), stepsOf(r))
	assert.Equal(t, len(passed), deaths(), "a death for each point: %v", passed)
	for _, step := range append(slices.Clone(stages), "Done") {
		assert.True(t, has(passed, "before-"+step+"-"), "death before a save in %s; there were %v", step, passed)
		assert.True(t, has(passed, "after-"+step+"-"), "death after a save in %s; there were %v", step, passed)
	}
	for _, action := range []string{"PowerOff-SendOff", "DeleteNode-BackupNode", "DeleteNode-IsolateNode", "PowerOn-SendOn", "RestoreNode-RestoreNode"} {
		assert.Contains(t, passed, "before-"+action)
		assert.Contains(t, passed, "after-"+action)
		assert.Contains(t, passed, "acted-"+action)
	}
}

// keepAlive runs the fenced with failpoints and starts it again whenever it has
// killed itself, as systemd would, until the test ends. The function says how
// often that was; it ends the last one first.
func keepAlive(ctx context.Context, t *testing.T, s *scene.Scene, markers string) func() int {
	t.Helper()
	programs, err := builds()
	require.NoError(t, err)
	start := func() (*scene.Daemon, error) {
		return s.Launch(programs.Failpoints, "FENCED_FAILPOINTS="+markers)
	}
	d, err := start()
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan int, 1)
	go func() {
		died := 0
		defer func() { ended <- died }()
		for {
			select {
			case <-ctx.Done():
				d.Kill()
				return
			case <-d.Done():
			}
			code, _ := d.Wait(context.WithoutCancel(ctx)) // it has ended
			if !assert.True(t, d.Killed(), "fenced ended with status %d instead of being killed", code) {
				return
			}
			died++
			if d, err = start(); !assert.NoError(t, err) {
				return
			}
		}
	}()
	count := -1
	stop := func() int {
		cancel()
		if count < 0 {
			count = <-ended
		}
		return count
	}
	t.Cleanup(func() { stop() })
	return stop
}

func list(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func has(names []string, prefix string) bool {
	return slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(n, prefix) })
}

func TestShippedBinaryHasNoFailpoints(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds the programs, which -short leaves out")
	}
	programs, err := builds()
	require.NoError(t, err)
	for program, want := range map[string]bool{programs.Fenced: false, programs.Failpoints: true} {
		code, err := os.ReadFile(program)
		require.NoError(t, err)
		assert.Equal(t, want, bytes.Contains(code, []byte("FENCED_FAILPOINTS")), filepath.Base(program))
	}
}
