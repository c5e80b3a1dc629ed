package rig

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/test/must"
)

// builder is a go command that makes an empty file of what it is to build, and writes down which; else it is the real one.
const builder = `#!/bin/sh
if [ "$1" != build ]; then exec %s "$@"; fi
for last; do :; done
echo "$last" >>%[2]s
while [ "$1" != -o ]; do shift; done
: >"$2"
`

// A program comes from the directory that is named, else from the cache, else it is built, and then it is in the cache. Nobody builds a
// scheduler for a control plane.
func TestProgramsComeFromAssetsThenTheCacheThenSource(t *testing.T) {
	dir := t.TempDir()
	assets, bin, log := filepath.Join(dir, "assets"), filepath.Join(dir, "bin"), filepath.Join(dir, "built")
	for _, d := range []string{assets, bin} {
		require.NoError(t, os.Mkdir(d, 0o700))
	}
	require.NoError(t, os.WriteFile(filepath.Join(bin, "go"), fmt.Appendf(nil, builder, must.Do(exec.LookPath("go"))(t), log), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(assets, "etcd"), nil, 0o700))
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	t.Setenv("XDG_CACHE_HOME", filepath.Join(dir, "cache"))
	get := func() (map[string]string, []string) {
		require.NoError(t, os.WriteFile(log, nil, 0o600))
		var progress bytes.Buffer
		paths := must.Do(Programs(t.Context(), []string{"", assets, bin}, &progress))(t)
		for _, path := range paths {
			assert.FileExists(t, path)
		}
		assert.Contains(t, progress.String(), "taking "+filepath.Join(assets, "etcd"))
		return paths, strings.Fields(string(must.Do(os.ReadFile(log))(t)))
	}

	first, compiled := get()
	assert.Equal(t, []string{apiServer.pkg, manager.pkg}, compiled)
	assert.Equal(t, filepath.Join(assets, "etcd"), first["etcd"])
	assert.Contains(t, first["kube-apiserver"], "cache")

	again, compiled := get()
	assert.Empty(t, compiled, "they are in the cache")
	assert.Equal(t, first, again)

	require.NoError(t, os.WriteFile(filepath.Join(assets, "kube-apiserver"), nil, 0o700))
	named, compiled := get()
	assert.Empty(t, compiled)
	assert.Equal(t, filepath.Join(assets, "kube-apiserver"), named["kube-apiserver"], "although the cache has one")
	assert.Equal(t, first["kube-controller-manager"], named["kube-controller-manager"])

	require.NoError(t, os.WriteFile(log, nil, 0o600))
	must.Do(Binaries(t.Context(), &bytes.Buffer{}))(t)
	assert.Equal(t, []string{etcd.pkg, scheduler.pkg}, strings.Fields(string(must.Do(os.ReadFile(log))(t))), "what the tests need besides")
}
