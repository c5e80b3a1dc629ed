package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/scene"
)

// SIGHUP in the middle of a run: a bad file changes nothing, and then good ones are taken in.
// The same process ends the run as if nothing had happened.
func TestReloadInMidRun(t *testing.T) {
	t.Parallel()
	s := set(t, scene.Options{Workers: []scene.Spec{{Name: "reloaded", Protocol: scene.Redfish}, {Name: "healthy", Protocol: scene.IPMI}}})
	ctx := within(t)
	d, err := s.StartDaemon(ctx)
	require.NoError(t, err)
	w := s.Worker("reloaded")
	ignoreOn(w, true) // the run stays open
	w.Kubelet.Hang()
	awaitOff(t, w)

	dir := filepath.Dir(s.Config())
	write := func(name, text string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	reload := func(says string) {
		require.NoError(t, syscall.Kill(d.PID(), syscall.SIGHUP))
		require.Eventually(t, func() bool { return strings.Contains(s.LogTail(1000), says) }, 5*time.Minute, 50*time.Millisecond)
	}
	level := func() string {
		r, err := s.Fencectl(ctx, "log-level")
		require.NoError(t, err)
		return strings.TrimSpace(r.Stdout)
	}
	write("conf.d/level.yaml", "log: {level: debug}\n")
	write("hosts.d/spare.yaml", "hosts: [{nod: spare, bmc: {address: \"ipmi://127.0.0.1:1\", username: fence, passwordFile: password}}]\n")
	reload("the reload is refused")
	assert.Contains(t, s.LogTail(1000), "spare.yaml:1")
	assert.Equal(t, "info", level())

	write("hosts.d/spare.yaml", "hosts: [{node: spare, bmc: {address: \"ipmi://127.0.0.1:1\", username: fence, passwordFile: password}}]\n")
	write("policies.d/spare.yaml", `apiVersion: fenced.io/v1alpha1
kind: FencePolicy
metadata: {name: spares}
spec:
  nodeSelector: {matchLabels: {scene/pool: spares}}
  unhealthyConditions: [{type: Ready, status: Unknown, timeout: 2s}]
  strategy: PowerCycle
`)
	reload("took in log.level, hosts.d (added scene/spare), policies.d (added FencePolicy spares)")
	assert.Equal(t, "debug", level())
	c, err := s.Coverage(ctx)
	require.NoError(t, err)
	names := []string{}
	for _, cl := range c.Clusters {
		for _, k := range cl.Checks {
			names = append(names, k.Name)
		}
	}
	assert.Contains(t, names, "spares")

	ignoreOn(w, false)
	awaitRun(ctx, t, s, w.Name, result(wire.ResultDone))
	requireBack(ctx, t, s, w)
	requireOneDeletion(t, s, w)
	untouched(ctx, t, s, s.Worker("healthy"))
	select {
	case <-d.Done():
		t.Error("the daemon ended")
	default:
	}
}
