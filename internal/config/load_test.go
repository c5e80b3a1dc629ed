package config

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const oneCluster = "clusters: [{name: prod, kubeconfig: kc}]\n"

// write makes a directory with the files and returns the path of fenced.yaml.
func write(t *testing.T, files map[string]string) string {
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	return filepath.Join(dir, "fenced.yaml")
}

func writeMain(t *testing.T, text string) string {
	return write(t, map[string]string{"fenced.yaml": text})
}

func TestLoadFillsInDefaults(t *testing.T) {
	file := writeMain(t, oneCluster)
	c, err := Load(file)
	require.NoError(t, err)
	want := Default()
	want.File = file
	want.Clusters = []Cluster{{Name: "prod", Kubeconfig: filepath.Join(filepath.Dir(file), "kc"), Mode: "evaluate", Reprovision: true}}
	require.Equal(t, want, c)
	require.Equal(t, []string{"prod"}, c.ClusterNames())
}

func TestLoadResolvesPathsFromTheFileThatSaysThem(t *testing.T) {
	file := write(t, map[string]string{
		"fenced.yaml": oneCluster + "state: {path: lib/state.db}\ncontrol: {socket: run/s}\nhosts: hosts\npolicies: /\n",
		"conf.d/a.yaml": "clusters: [{name: x, kubeconfig: ../kc}]\n" +
			"state: {etcd: {ca: ca.pem}}\n",
		"hosts/a.yaml": "",
	})
	dir := filepath.Dir(file)
	c, err := Load(file)
	require.NoError(t, err)
	require.Equal(t, filepath.Join(dir, "lib/state.db"), c.State.Path)
	require.Equal(t, filepath.Join(dir, "run/s"), c.Control.Socket)
	require.Equal(t, filepath.Join(dir, "hosts"), c.Hosts)
	require.Equal(t, "/", c.Policies)
	require.Equal(t, filepath.Join(dir, "kc"), c.Clusters[0].Kubeconfig)
	require.Equal(t, filepath.Join(dir, "conf.d/ca.pem"), c.State.Etcd.CA)

	t.Chdir(dir)
	relative, err := Load("fenced.yaml")
	require.NoError(t, err)
	require.Equal(t, c, relative)
}

func TestLoadLaysConfDOver(t *testing.T) {
	file := write(t, map[string]string{
		"fenced.yaml":        oneCluster + "guards: {maxInFlight: 1, quietPeriod: 1s, zoneBreakerMin: 9}\n",
		"conf.d/10-a.yaml":   "guards:\n  quietPeriod: 2s\n  maxAttempts: 7\ncontrol: {roles: {viewer: [user:a, user:b]}}\n",
		"conf.d/20-b.yaml":   "guards: {quietPeriod: 0s}\ncontrol: {roles: {viewer: []}}\n",
		"conf.d/30-c.yaml":   "# nothing but a comment\n",
		"conf.d/notes.txt":   "guards: {}\n",
		"conf.d/.#10-a.yaml": "an editor's: [\n",
	})
	c, err := Load(file)
	require.NoError(t, err)
	require.Equal(t, time.Duration(0), c.Guards.QuietPeriod)
	require.Equal(t, 7, c.Guards.MaxAttempts)
	require.Equal(t, 1, c.Guards.MaxInFlight)
	require.Equal(t, 9, c.Guards.ZoneBreakerMin)
	require.Equal(t, 10, c.Guards.MaxInFlightPercent, "a key nobody names keeps its default")
	require.Empty(t, c.Control.Roles.Viewer, "a list is replaced, not added to")
}

// What an element of a replaced list said must not stand in for the new one.
func TestLoadForgetsReplacedClusters(t *testing.T) {
	file := write(t, map[string]string{
		"fenced.yaml":   oneCluster,
		"conf.d/a.yaml": "clusters: [{name: lab}]\n",
	})
	_, err := Load(file)
	require.EqualError(t, err, filepath.Join(filepath.Dir(file), "conf.d/a.yaml")+":1: clusters[0]: kubeconfig is missing")
}

func TestLoadEnvironmentAndCommandLine(t *testing.T) {
	file := writeMain(t, oneCluster+"guards: {quietPeriod: 1s, maxInFlight: 2, externalEtcd: false}\nlog: {level: warn}\n")
	t.Setenv("FENCED_GUARDS_QUIETPERIOD", "2s")
	t.Setenv("FENCED_GUARDS_MAXINFLIGHT", "3")
	t.Setenv("FENCED_GUARDS_EXTERNALETCD", "true")
	t.Setenv("FENCED_METRICS_LISTEN", "")
	t.Setenv("FENCED_CONTROL_ROLES_ADMIN", "user:root, group:wheel")
	t.Setenv("FENCED_STATE_PATH", "s.db")
	c, err := Load(file, "guards.maxInFlight=4", "control.roles.operator=", "control.roles.viewer=user:a")
	require.NoError(t, err)
	require.Equal(t, 2*time.Second, c.Guards.QuietPeriod, "environment over file")
	require.Equal(t, 4, c.Guards.MaxInFlight, "command line over environment")
	require.True(t, c.Guards.ExternalEtcd)
	require.Equal(t, "warn", c.Log.Level)
	require.Empty(t, c.Metrics.Listen, "set and empty is not unset")
	require.Equal(t, []string{"user:root", "group:wheel"}, c.Control.Roles.Admin)
	require.Equal(t, []string{"user:a"}, c.Control.Roles.Viewer)
	require.Empty(t, c.Control.Roles.Operator)
	wd, err := os.Getwd()
	require.NoError(t, err)
	require.Equal(t, filepath.Join(wd, "s.db"), c.State.Path, "a path from the shell starts where the shell is")
}

func TestLoadNamesTheLayerThatIsWrong(t *testing.T) {
	file := writeMain(t, oneCluster)
	t.Setenv("FENCED_GUARDS_QUIETPERIOD", "soon")
	t.Setenv("FENCED_LOG_LEVEL", "")
	_, err := Load(file, "power.offDeadline=1s", "guards.maxInFligth=1", "clusters=prod", "nonsense")
	for _, want := range []string{
		`environment FENCED_GUARDS_QUIETPERIOD: guards.quietPeriod: "soon" is not a duration`,
		`environment FENCED_LOG_LEVEL: log.level: "" is not known; use debug, info, warn, error`,
		`default: power.offReadSpacing: 3s must be less than power.offDeadline, which is 1s`,
		`command line: guards.maxInFligth: unknown key, or one that only a file can set (did you mean guards.maxInFlight?)`,
		`command line: clusters: unknown key, or one that only a file can set`,
		`command line: "nonsense" is not KEY=VALUE`,
	} {
		require.ErrorContains(t, err, want)
	}
	_, err = Load(file, "power.offReadSpacing=70s")
	require.ErrorContains(t, err, "command line: power.offReadSpacing: 1m10s must be less")
}

func TestLoadWithoutTheFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "fenced.yaml")
	_, err := Load(file)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, file)
	_, err = Load(t.TempDir())
	require.ErrorContains(t, err, "not a regular file")
}

// Tests and the demo shorten these to nothing.
func TestLoadZeroes(t *testing.T) {
	c, err := Load(writeMain(t, oneCluster+"guards: {quietPeriod: 0, minPowerInterval: 0s}\npower: {podsGoneTimeout: 0s, offReadSpacing: 1ms}\nsweep: {interval: 0s}\n"))
	require.NoError(t, err)
	require.Zero(t, c.Sweep.Interval)
	require.Zero(t, c.Guards.QuietPeriod)
	require.Zero(t, c.Guards.MinPowerInterval)
	require.Zero(t, c.Power.PodsGoneTimeout)
	require.Equal(t, time.Millisecond, c.Power.OffReadSpacing)
}
