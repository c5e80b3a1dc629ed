package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestCheckConfigIsOneThing: fenced --check-config and fencectl check-config --offline print the same bytes about the same files,
// on both streams, whether the files are good, open to doubt or wrong.
func TestCheckConfigIsOneThing(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the programs, which -short leaves out")
	}
	p, err := builds()
	require.NoError(t, err)
	dir := t.TempDir()
	for name, text := range map[string]string{
		"kc": "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: \"https://127.0.0.1:1\"}}]\nusers: [{name: u, user: {token: t}}]\n" +
			"contexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x\n",
		"good.yaml":  "clusters: [{name: prod, kubeconfig: kc}]\nmetrics: {listen: \"\"}\n",
		"doubt.yaml": "clusters: [{name: prod, kubeconfig: kc}]\nmetrics: {listen: \"\"}\ncontrol: {roles: {operator: [\"user:no-such-user\"]}}\n",
		"wrong.yaml": "clusters: [{name: prod, kubeconfig: nowhere}]\nguards: {maxInFlight: 0}\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	run := func(program string, args ...string) (status int, stdout, stderr string) {
		var out, errs bytes.Buffer
		cmd := exec.CommandContext(t.Context(), program, args...)
		cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &out, &errs
		if err := cmd.Run(); err != nil {
			require.IsType(t, &exec.ExitError{}, err)
		}
		return cmd.ProcessState.ExitCode(), out.String(), errs.String()
	}
	for name, want := range map[string]struct {
		daemon, tool int
		stderr       string
	}{"good.yaml": {0, 0, ""}, "doubt.yaml": {0, 0, "user:no-such-user"}, "wrong.yaml": {78, 1, "guards.maxInFlight"}} {
		ofDaemon, stdout, stderr := run(p.Fenced, "--check-config", "--config", name, "--set", "log.level=debug")
		ofTool, sameOut, sameErr := run(p.Fencectl, "check-config", "--offline", "--config", name, "--set", "log.level=debug")
		assert.Equal(t, want.daemon, ofDaemon, name)
		assert.Equal(t, want.tool, ofTool, name)
		assert.Equal(t, stdout, sameOut, name)
		assert.Equal(t, stderr, sameErr, name)
		assert.Contains(t, stderr, want.stderr, name)
	}
}
