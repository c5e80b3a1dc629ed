package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What lies where configuration is read, and is not read, is named: somebody believes in it.
func TestCheckNamesWhatIsIgnored(t *testing.T) {
	file := write(t, map[string]string{
		"fenced.yaml":           oneCluster + "hosts: hosts.d\npolicies: policies.d\n",
		"conf.d/a.yml":          "log: {level: loud}\n",
		"hosts.d/a.yaml":        "hosts: []\n",
		"hosts.d/b.yaml.rpmnew": "hosts: []\n",
		"hosts.d/.c.yaml":       "hosts: []\n",
		"hosts.d/.gitkeep":      "",
		"hosts.d/rack/d.yaml":   "hosts: []\n",
		"policies.d/README":     "",
	})
	warnings, err := Check(file, good)
	require.NoError(t, err)
	dir := filepath.Dir(file)
	require.Equal(t, []string{
		dir + "/conf.d/a.yml is ignored, because only names that end in .yaml are read; rename it to a.yaml",
		dir + "/hosts.d/.c.yaml is ignored, because its name begins with a dot",
		dir + "/hosts.d/b.yaml.rpmnew is ignored, because only names that end in .yaml are read; move it elsewhere if that is meant",
		dir + "/hosts.d/rack is ignored, because it is a directory; put its files into the one above",
		dir + "/policies.d/README is ignored, because only names that end in .yaml are read; move it elsewhere if that is meant",
	}, warnings)
}

// A variable of the environment that is almost one of a key is named, without its value: it may be a password.
func TestCheckNamesVariablesOfNoKey(t *testing.T) {
	file := writeMain(t, oneCluster)
	t.Setenv("FENCED_GUARDS_MAXINFLIHGT", "Canary")
	t.Setenv("FENCED_STATE_PASSWORD", "Canary")
	t.Setenv("FENCED_GUARDS_MAXINFLIGHT", "3")
	t.Setenv("FENCED_OF_ANOTHER_PROGRAM", "1")
	warnings, err := Check(file, good)
	require.NoError(t, err)
	require.ElementsMatch(t, []string{
		"environment FENCED_GUARDS_MAXINFLIHGT is ignored: there is no such key, or only a file can set it (did you mean FENCED_GUARDS_MAXINFLIGHT?)",
		"environment FENCED_STATE_PASSWORD is ignored: there is no such key, or only a file can set it",
	}, warnings)
}

// A role of a name that this host does not know is nobody's. A mistyped name shows here.
func TestCheckNamesRolesOfNobody(t *testing.T) {
	file := writeMain(t, oneCluster+`control: {roles: {viewer: ["group:fenced-view", "group:no-such-group"], operator: ["user:root", "group:root", "user:0"], admin: ["user:no-such-user"]}}`+"\n")
	warnings, err := Check(file, good)
	require.NoError(t, err)
	require.Len(t, warnings, 2, "%q", warnings)
	require.Contains(t, warnings[0], file+": control.roles.viewer: neither /etc/passwd nor /etc/group has group:no-such-group")
	require.Contains(t, warnings[1], file+": control.roles.admin: neither /etc/passwd nor /etc/group has user:no-such-user")
}

// Without a cluster nobody knows what hosts and policies are for; all else is still told.
func TestCheckWithoutClusters(t *testing.T) {
	file := writeMain(t, "control: {roles: {admin: [\"user:no-such-user\"]}}\n")
	require.NoError(t, os.Chmod(file, 0o604))
	warnings, err := Check(file, func(Config) ([]string, error) {
		t.Error("asked without a cluster")
		return nil, nil
	})
	require.ErrorContains(t, err, "clusters: at least one is needed")
	require.Contains(t, strings.Join(warnings, "\n"), "everybody may read it (mode 0604)")
	require.Contains(t, strings.Join(warnings, "\n"), "user:no-such-user")
	_, err = Check(filepath.Join(t.TempDir(), "none.yaml"), good)
	require.ErrorIs(t, err, os.ErrNotExist)
}
