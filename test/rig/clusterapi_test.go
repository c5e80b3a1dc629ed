package rig

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The programs are kept by a version that is written twice.
func TestVersionIsThatOfTheModule(t *testing.T) {
	root, err := Root()
	require.NoError(t, err)
	for module, line := range map[string]string{
		"clusterapi":   "require " + clusterAPIModule + " " + clusterAPIVersion + "\n",
		"controlplane": "k8s.io/kubernetes " + kubernetesVersion + " ",
	} {
		text, err := os.ReadFile(filepath.Join(root, "test", module, "go.mod"))
		require.NoError(t, err)
		assert.Contains(t, string(text), line)
	}
}

// A version of the Cluster API whose main.go is another one is not built: its webhooks could listen on
// all addresses.
func TestUnknownMainIsNotBuilt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "main.go")
	known := clusterAPIEdits[0].from + "\n" + clusterAPIEdits[1].from
	for text, want := range map[string]string{
		known:                                  clusterAPIEdits[0].to + "\n" + clusterAPIEdits[1].to,
		clusterAPIEdits[1].from:                "",
		known + "\n" + clusterAPIEdits[0].from: "",
	} {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		err := editMain(path)
		if want == "" {
			assert.ErrorContains(t, err, "times, not once")
			continue
		}
		require.NoError(t, err)
		edited, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.Equal(t, want, string(edited))
	}
}
