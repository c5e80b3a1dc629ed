package config

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/test/law"
	"github.com/fenced/fenced/test/must"
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
	c := must.Do(Load(file))(t)
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
	c := must.Do(Load(file))(t)
	require.Equal(t, filepath.Join(dir, "lib/state.db"), c.State.Path)
	require.Equal(t, filepath.Join(dir, "run/s"), c.Control.Socket)
	require.Equal(t, filepath.Join(dir, "hosts"), c.Hosts)
	require.Equal(t, "/", c.Policies)
	require.Equal(t, filepath.Join(dir, "kc"), c.Clusters[0].Kubeconfig)
	require.Equal(t, filepath.Join(dir, "conf.d/ca.pem"), c.State.Etcd.CA)

	t.Chdir(dir)
	relative := must.Do(Load("fenced.yaml"))(t)
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
	c := must.Do(Load(file))(t)
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
	c := must.Do(Load(file, "guards.maxInFlight=4", "control.roles.operator=", "control.roles.viewer=user:a"))(t)
	require.Equal(t, 2*time.Second, c.Guards.QuietPeriod, "environment over file")
	require.Equal(t, 4, c.Guards.MaxInFlight, "command line over environment")
	require.True(t, c.Guards.ExternalEtcd)
	require.Equal(t, "warn", c.Log.Level)
	require.Empty(t, c.Metrics.Listen, "set and empty is not unset")
	require.Equal(t, []string{"user:root", "group:wheel"}, c.Control.Roles.Admin)
	require.Equal(t, []string{"user:a"}, c.Control.Roles.Viewer)
	require.Empty(t, c.Control.Roles.Operator)
	wd := must.Do(os.Getwd())(t)
	require.Equal(t, filepath.Join(wd, "s.db"), c.State.Path, "a path from the shell starts where the shell is")
}

func TestLoadNamesTheLayerThatIsWrong(t *testing.T) {
	file := writeMain(t, oneCluster)
	t.Setenv("FENCED_GUARDS_QUIETPERIOD", "soon")
	t.Setenv("FENCED_LOG_LEVEL", "")
	t.Setenv("FENCED_BMCNETWORKS", "192.0.2.0/24,")
	_, err := Load(file, "power.offDeadline=1s", "guards.maxInFligth=1", "clusters=prod", "nonsense")
	for _, want := range []string{
		`environment FENCED_GUARDS_QUIETPERIOD: guards.quietPeriod: "soon" is not a duration`,
		`environment FENCED_BMCNETWORKS: bmcNetworks: the list has a comma with nothing beside it`,
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
	c := must.Do(Load(writeMain(t, oneCluster+"guards: {quietPeriod: 0, minPowerInterval: 0s}\npower: {podsGoneTimeout: 0s, offReadSpacing: 1ms}\nsweep: {interval: 0s}\n")))(t)
	require.Zero(t, c.Sweep.Interval)
	require.Zero(t, c.Guards.QuietPeriod)
	require.Zero(t, c.Guards.MinPowerInterval)
	require.Zero(t, c.Power.PodsGoneTimeout)
	require.Equal(t, time.Millisecond, c.Power.OffReadSpacing)
}

// Each text makes exactly the errors that are listed, with line and key.
func TestLoadRefuses(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"an unknown key", oneCluster + "guards:\n  quietPeroid: 1s\n", `:3: guards.quietPeroid: unknown key (did you mean quietPeriod?)`},
		{"a key in another case", oneCluster + "Hosts: /x\n", `:2: Hosts: unknown key (did you mean hosts?)`},
		{"an unknown key in a list", "clusters:\n- name: a\n  kubeconfig: k\n  colour: red\n", `:4: clusters[0].colour: unknown key`},
		{"a deep unknown key", "clusters:\n- {name: a, kubeconfig: k, management: {x: 1}}\n", `:2: clusters[0].management.x: unknown key`},
		{"a Go field that is no key", oneCluster + "\"-\": x\n", `:2: -: unknown key`},
		{"a duplicate key", oneCluster + "log: {level: info}\nlog: {level: warn}\n", `:3: log: duplicate key, first on line 2`},
		{"a duplicate below", oneCluster + "guards:\n  maxAttempts: 1\n  maxAttempts: 2\n", `:4: guards.maxAttempts: duplicate key, first on line 3`},
		{"a duration without a unit", oneCluster + "guards: {quietPeriod: 300}\n", `:2: guards.quietPeriod: "300" is not a duration`},
		{"a negative duration", oneCluster + "guards: {quietPeriod: -1s}\n", `:2: guards.quietPeriod: must be 0 or more`},
		{"a zero deadline", oneCluster + "power: {offDeadline: 0s, offReadSpacing: 1ns}\n", `:2: power.offDeadline: must be more than 0`},
		{"a fraction", oneCluster + "guards: {maxInFlight: 1.5}\n", `:2: guards.maxInFlight: "1.5" is not a whole number`},
		{"hex", oneCluster + "guards: {maxInFlight: 0x10}\n", `:2: guards.maxInFlight: "0x10" is not a whole number`},
		{"a quoted number", oneCluster + "guards: {maxInFlight: \"5\"}\n", `:2: guards.maxInFlight: "5" is not a whole number`},
		{"no slot", oneCluster + "guards: {maxInFlight: 0}\n", `:2: guards.maxInFlight: must be more than 0`},
		{"101 %", oneCluster + "guards: {maxInFlightPercent: 101}\n", `:2: guards.maxInFlightPercent: must be a percentage from 1 to 100`},
		{"yes", oneCluster + "guards: {externalEtcd: yes}\n", `:2: guards.externalEtcd: "yes" is not true or false`},
		{"a number for text", "clusters:\n- {name: 7, kubeconfig: k}\n", `:2: clusters[0].name: 7 is not text; quote it: "7"`},
		{"a list for text", oneCluster + "hosts: [a]\n", `:2: hosts: text is needed here, not a list`},
		{"keys for text", oneCluster + "hosts: {a: b}\n", `:2: hosts: text is needed here, not keys with values`},
		{"text for a list", oneCluster + "control: {roles: {admin: user:a}}\n", `:2: control.roles.admin: a list is needed here, not "user:a"`},
		{"text for keys", oneCluster + "guards: none\n", `:2: guards: keys with values is needed here, not "none"`},
		{"nothing for text", oneCluster + "hosts:\n", `:2: hosts: text is needed here, not nothing`},
		{"an empty element", "clusters:\n- {name: a, kubeconfig: k}\n-\n", `:3: clusters[1]: the element is empty`},
		{"an empty network", oneCluster + "bmcNetworks: [\"\"]\n", `:2: bmcNetworks[0]: the element is empty`},                                           // a daemon that starts with it panics
		{"an empty namespace", "clusters: [{name: a, kubeconfig: k, namespaces: [lab, \"\"]}]\n", `:1: clusters[0].namespaces[1]: the element is empty`}, // which would be all of them
		{"a list for the file", "- a\n", `:1: the file: keys with values is needed here, not a list`},
		{"an alias", "clusters: [{name: &a prod, kubeconfig: *a}]\n", `:1: clusters[0].kubeconfig: aliases are not supported`},
		{"a merge key", "clusters:\n- &a {name: prod, kubeconfig: k}\n- {<<: *a, name: b, kubeconfig: k}\n", `:3: clusters[1].<<: unknown key`},
		{"a key of many words", oneCluster + "? [a, b]\n: c\n", `:2: : a key must be one word`},
		{"a second document", oneCluster + "---\nhosts: x\n", `:2: a second document begins here`},
		{"no YAML", oneCluster + "hosts: \"x\n", `:2: found unexpected end of stream`},
		{"a tab", oneCluster + "log:\n\tlevel: info\n", `:3: a tab indents this line, and YAML takes only spaces there`},

		{"a management API without a cluster", "clusters:\n- {name: a, kubeconfig: k, management: {kubeconfig: m}}\n", `:2: clusters[0].management: clusterName is missing`},
		{"an instance with a space", oneCluster + "instance: a b\n", `:2: instance: "a b" must be letters`},
		{"an unknown mode", "clusters:\n- {name: a, kubeconfig: k, mode: on}\n", `:2: clusters[0].mode: "on" is not known; use observe, evaluate, respond`},
		{"etcd without endpoints", oneCluster + "state: {engine: etcd}\n", `:2: state.engine: etcd needs state.etcd.endpoints`},
		{"etcd in the clear", oneCluster + "state: {engine: etcd, etcd: {endpoints: [\"http://192.0.2.1:2379\"]}}\n", `:2: state.etcd.endpoints[0]: http is only for this host`},
		{"etcd without a port", oneCluster + "state: {engine: etcd, etcd: {endpoints: [\"https://a\"]}}\n", `:2: state.etcd.endpoints[0]: "https://a" is not https://HOST:PORT`},
		{"etcd with a password and no port", oneCluster + "state: {engine: etcd, etcd: {endpoints: [\"https://u:p@a:x\"]}}\n", `:2: state.etcd.endpoints[0]: "https://a:x" is not https://HOST:PORT`},
		{"etcd with a password and no scheme", oneCluster + "state: {engine: etcd, etcd: {endpoints: [\"u:p@a:1\"]}}\n", `:2: state.etcd.endpoints[0]: "a:1" is not https://HOST:PORT`},
		{"etcd with a password", oneCluster + "state: {engine: etcd, etcd: {endpoints: [\"https://u:p@a:1\"]}}\n", `:2: state.etcd.endpoints[0]: names a user`},
		{"etcd without a prefix", oneCluster + "state: {engine: etcd, etcd: {endpoints: [\"https://a:1\"], prefix: \"\"}}\n", `:2: state.etcd.prefix: must not be empty`},
		{"etcd with half a key", oneCluster + "state: {engine: etcd, etcd: {endpoints: [\"https://a:1\"], key: fenced.yaml}}\n", `:2: state.etcd: cert and key go together`},
		{"etcd's CA that is not there", oneCluster + "state: {engine: etcd, etcd: {endpoints: [\"https://a:1\"], ca: nowhere}}\n", `:2: state.etcd.ca: open`},
		{"etcd's key that is a device", oneCluster + "state: {engine: etcd, etcd: {endpoints: [\"https://a:1\"], cert: fenced.yaml, key: /dev/null}}\n", `:2: state.etcd.key: /dev/null is not a regular file`},
		{"an unknown engine", oneCluster + "state: {engine: sqlite}\n", `:2: state.engine: "sqlite" is not known`},
		{"isolation", oneCluster + "isolation: auto\n", `:2: isolation: "auto" is not known; use deleteNode, outOfServiceTaint`},
		{"a key that is every key", oneCluster + "neverRestore: [example.com/slot, \"*.example.com/*\", \"*/*\"]\n", `:2: neverRestore[2]: "*/*" is not the key of a label, annotation or taint`},
		{"a key with two slashes", oneCluster + "neverRestore: [a/b/c]\n", `:2: neverRestore[0]: "a/b/c" is not the key of a label, annotation or taint`},
		{"a key of another syntax", oneCluster + "neverRestore: [\"a/[bc]\"]\n", `:2: neverRestore[0]: "a/[bc]" is not the key of a label, annotation or taint`},
		{"identity", oneCluster + "guards: {identity: maybe}\n", `:2: guards.identity: "maybe" is not known`},
		{"log level", oneCluster + "log: {level: loud}\n", `:2: log.level: "loud" is not known; use debug, info, warn, error`},
		{"listen", oneCluster + "metrics: {listen: localhost}\n", `:2: metrics.listen: "localhost" is not HOST:PORT`},
		{"port", oneCluster + "metrics: {listen: \"localhost:70000\"}\n", `:2: metrics.listen: "70000" is not a port`},
		{"role", oneCluster + "control: {roles: {admin: [user:a, robot:b]}}\n", `:2: control.roles.admin[1]: "robot:b" is not user:NAME or group:NAME`},
		{"socket", oneCluster + "control: {socket: /" + strings.Repeat("s", 107) + "}\n", `:2: control.socket: the path of a socket has at most 107 bytes`},
		{"no socket", oneCluster + "control: {socket: \"\"}\n", `:2: control.socket: must not be empty`},
		{"no state file", oneCluster + "state: {path: \"\"}\n", `:2: state.path: must not be empty`},
		{"hosts that are not there", oneCluster + "hosts: nowhere\n", `:2: hosts: there is no directory`},
		{"policies that are a file", oneCluster + "policies: fenced.yaml\n", `fenced.yaml is not a directory`},
		{"a cluster's name with a slash", "clusters: [{name: a/b, kubeconfig: k}]\n", `:1: clusters[0].name: "a/b" must be letters`},
		{"a namespace", "clusters: [{name: a, kubeconfig: k, namespaces: [A_b]}]\n", `:1: clusters[0].namespaces[0]: "A_b" is not the name of a namespace`},
		{"a cluster twice", "clusters:\n- {name: a, kubeconfig: k}\n- {name: a, kubeconfig: l}\n", `:3: clusters[1].name: the name a is taken at FILE:2`},
		{"a cluster without a name", "clusters:\n- {kubeconfig: k}\n", `:2: clusters[0]: name is missing`},
		{"a cluster without a kubeconfig", "clusters:\n- {name: a}\n", `:2: clusters[0]: kubeconfig is missing`},
		{"an empty kubeconfig", "clusters:\n- {name: a, kubeconfig: \"\"}\n", `:2: clusters[0].kubeconfig: must not be empty`},
		{"no clusters", "clusters: []\n", `:1: clusters: at least one is needed`},
		{"nothing", "", `FILE: clusters: at least one is needed`},
		{"a short watchdog", oneCluster + "watchdog: {timeout: 29s}\n", `:2: watchdog.timeout: must be from 30s to 10m0s`},
		{"a long watchdog", oneCluster + "watchdog: {timeout: 601s}\n", `:2: watchdog.timeout: must be from 30s to 10m0s`},
		{"a watchdog without a device", oneCluster + "watchdog: {device: -1}\n", `:2: watchdog.device: must be 0 or more`},
		{"a fast sweep", oneCluster + "sweep: {interval: 9s}\n", `:2: sweep.interval: must be 10s or more, or 0 for no sweep`},
		{"a sweep backwards", oneCluster + "sweep: {interval: -10s}\n", `:2: sweep.interval: must be 10s or more`},
		{"spacing and deadline", oneCluster + "power: {offReadSpacing: 60s}\n", `:2: power.offReadSpacing: 1m0s must be less than power.offDeadline, which is 1m0s`},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := writeMain(t, c.text)
			_, err := Load(file)
			require.Error(t, err)
			require.ErrorContains(t, err, strings.ReplaceAll(c.want, "FILE", file))
			require.ErrorContains(t, err, file)
			require.NotContains(t, err.Error(), "\n", "one mistake, one error")
		})
	}
}

func TestLoadReportsEverythingAtOnce(t *testing.T) {
	file := write(t, map[string]string{
		"fenced.yaml":   "clusters:\n- {name: a, kubeconfig: k}\n- {name: a, kubeconfig: k, mode: x}\nlog: {levle: info}\n",
		"conf.d/a.yaml": "guards:\n  quietPeriod: 1\n  maxInFlight: no\n",
		"conf.d/b.yaml": "guards: [\n",
		"conf.d/c.yaml": "hosts: /nowhere/at/all\n",
	})
	_, err := Load(file)
	dir := filepath.Dir(file)
	for _, want := range []string{
		file + ":3: clusters[1].mode:",
		file + ":4: log.levle: unknown key (did you mean level?)",
		filepath.Join(dir, "conf.d/a.yaml") + ":2: guards.quietPeriod:",
		filepath.Join(dir, "conf.d/a.yaml") + ":3: guards.maxInFlight:",
		filepath.Join(dir, "conf.d/b.yaml") + ":",
		filepath.Join(dir, "conf.d/c.yaml") + ":1: hosts: there is no directory",
		file + ":3: clusters[1].name: the name a is taken at " + file + ":2",
	} {
		require.ErrorContains(t, err, want)
	}
	require.Len(t, strings.Split(err.Error(), "\n"), 7)
}

// Somebody who guesses the key of the password wrong does not find it in a log. // I25
func TestErrorsDoNotRepeatWhatMayBeAPassword(t *testing.T) {
	const canary = "Canary-4711-Pw"
	for name, text := range map[string]string{
		"a Secret":              "address: 192.0.2.1, secret: " + canary,
		"a credential":          "address: 192.0.2.1, username: u, credential: /" + canary,
		"a password":            "address: 192.0.2.1, username: u, password: " + canary,
		"a list of Secrets":     "address: 192.0.2.1, secret: [" + canary + "]",
		"a tag":                 "address: 192.0.2.1, secret: !" + canary + " x",
		"an alias":              "address: 192.0.2.1, secret: *" + canary,
		"an anchor":             "address: 192.0.2.1, secret: &" + canary,
		"a secret parameter":    "driver: fence-agent, agent: fence_x, secretParameters: " + canary,
		"parameters by a comma": "driver: fence-agent, agent: fence_x, secretParameters: {community: [" + canary + "]}",
		"a user information":    "address: \"ipmi://u:" + canary + "@x y\", secret: a/b",
	} {
		_, _, err := loadFiles(t, []string{"prod"}, map[string]string{"a.yaml": "hosts:\n- node: a\n  bmc: {" + text + "}\n"})
		require.Error(t, err, name)
		require.NotContains(t, err.Error(), canary, name)
	}
	for name, text := range map[string]string{
		"a number for a Secret": "secret: 4711471147114711", "a number for a file": "username: u, passwordFile: 4711471147114711",
		"a number for a credential": "username: u, credential: 4711471147114711", "a day": "secret: 4711-01-01",
	} {
		_, _, err := loadFiles(t, []string{"prod"}, map[string]string{"a.yaml": "hosts:\n- node: a\n  bmc: {address: 192.0.2.1, " + text + "}\n"})
		require.ErrorContains(t, err, "is not text; quote it", name)
		require.NotRegexp(t, "4711(4711|-01)", err.Error(), name) // the file's path may have a number
	}
}

// TestClusterNameLaw: the control socket takes the name of every cluster that can be
// configured, and no other.
func TestClusterNameLaw(t *testing.T) {
	law.Check(t, func(t *rapid.T) {
		name := rapid.OneOf(rapid.String(), rapid.StringMatching(`[a-bA-B0._-]{1,6}`), rapid.StringMatching(`[a-b0.-]{60,66}`)).Draw(t, "name")
		if configured := textChecks["clusterName"](name) == nil; (api.CheckCluster(name) == nil) != configured {
			t.Fatalf("%q: configured %t, at the socket %v", name, configured, api.CheckCluster(name))
		}
	})
}

// redactedAs is a file of a configuration as it may be shown.
func redactedAs(t *testing.T, name, text string) RedactedFile {
	t.Helper()
	dir := t.TempDir()
	files := map[string]string{"fenced.yaml": "clusters:\n- {name: prod, kubeconfig: k}\nhosts: hosts.d\npolicies: policies.d\n"}
	files[name] = text
	for name, text := range files {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	for _, f := range Redacted(filepath.Join(dir, "fenced.yaml")) {
		if f.Name == name {
			return f
		}
	}
	require.Failf(t, "it is not among the files", name)
	return RedactedFile{}
}

// Wherever somebody has written a password by mistake, it is not shown. // I25
func TestNoSecretIsShown(t *testing.T) {
	const canary = "Canary-4711-Pw"
	for what, device := range map[string]string{
		"a comment":                  "address: 192.0.2.1 # " + canary,
		"a path":                     "passwordFile: /" + canary,
		"a credential":               "credential: " + canary,
		"a Secret":                   "secret: a/" + canary,
		"the file of a key":          "kgFile: /" + canary,
		"a key that is none":         "password: " + canary,
		"a word in place of a key":   canary + ": x",
		"a tree below a key":         "password: {is: [" + canary + "]}",
		"a tree in place of a text":  "username: {is: " + canary + "}",
		"a text in place of a tree":  "tls: " + canary,
		"a text in place of a list":  "cipherSuites: " + canary,
		"a list of others":           "cipherSuites: [" + canary + "]",
		"a text in place of a truth": "ignoreUUID: " + canary,
		"no word of the key":         "auth: " + canary,
		"a user information":         "address: ipmi://u:" + canary + "@192.0.2.1",
		"the query of a URL":         "address: redfish://192.0.2.1/?p=" + canary,
		"a tag":                      "username: !" + canary + " x",
		"an anchor":                  "username: &" + canary + " x",
		"a secret parameter":         "secretParameters: {community: /" + canary + "}",
		"a parameter":                "parameters: {community: " + canary + "}",
		"an unknown parameter":       "parameters: {mystery: " + canary + "}",
		"the name of a parameter":    "parameters: {\"" + canary + " x\": 1}",
		"a tree of parameters":       "parameters: {plug: [" + canary + "]}",
	} {
		f := redactedAs(t, "hosts.d/a.yaml", "hosts:\n- node: worker-3\n  bmc:\n    "+device+"\n")
		require.NoError(t, f.Err, what)
		assert.NotContains(t, string(f.Text), canary, what)
		assert.Contains(t, string(f.Text), "node: worker-3", what)
	}
	for name, text := range map[string]string{
		"policies.d/secret.yaml":     "kind: Secret\ndata: {password: " + canary + "}\n",
		"policies.d/list.yaml":       "- " + canary + "\n",
		"policies.d/word.yaml":       canary + "\n",
		"policies.d/comment.yaml":    "kind: FencePolicy # " + canary + "\n# " + canary + "\nspec: {} # " + canary + "\n",
		"policies.d/annotation.yaml": "kind: FencePolicy\nmetadata: {annotations: {other: " + canary + "}}\n",
		"conf.d/x.yaml":              "log: {level: " + canary + "}\nstate: {etcd: {endpoints: [\"https://u:" + canary + "@192.0.2.1:2379\"]}}\n",
		"fenced.yaml":                canary + "\n",
		"hosts.d/broken.yaml":        "a: [" + canary + "\n",
		"hosts.d/alias.yaml":         "hosts: *" + canary + "\n",
	} {
		f := redactedAs(t, name, text)
		assert.NotContains(t, string(f.Text), canary, name)
		if f.Err != nil {
			assert.NotContains(t, f.Err.Error(), canary, name)
		}
	}
}

// What is no secret is shown: a bundle without it helps nobody.
func TestConfigurationIsShown(t *testing.T) {
	text := must.Do(os.ReadFile("../../configs/hosts.d/example.yaml"))(t)
	shown := string(redactedAs(t, "hosts.d/a.yaml", string(text)).Text)
	for _, want := range []string{"address: ", "username: fence", "driver: fence-agent", "plug: ", "cipherSuites: [17", "protected: "} {
		assert.Contains(t, shown, want)
	}
	assert.NotContains(t, shown, "/etc/fenced/credentials", "whose value may be a password by mistake")

	text = must.Do(os.ReadFile("../../configs/fenced.yaml"))(t)
	shown = string(redactedAs(t, "fenced.yaml", string(text)).Text)
	assert.NotContains(t, shown, "redacted", "fenced.yaml has no secret")
	assert.Equal(t, strings.Count(withoutCommentLines(string(text)), ":"), strings.Count(shown, ":"), "every key is shown")

	shown = string(redactedAs(t, "policies.d/a.yaml", "kind: FencePolicy\nmetadata: {name: racks, annotations: {fenced.io/cluster: prod}}\nspec: {limit: 40%}\n").Text)
	for _, want := range []string{"kind: FencePolicy", "fenced.io/cluster: prod", "limit: 40%"} {
		assert.Contains(t, shown, want)
	}
}

// withoutCommentLines is a file without its comments.
func withoutCommentLines(text string) (rest string) {
	for line := range strings.Lines(text) {
		before, _, _ := strings.Cut(line, "#")
		rest += strings.TrimRight(before, "\n") + "\n"
	}
	return rest
}

// A directory with more files than somebody can read ends somewhere, and says so.
func TestShownFilesAreBounded(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "fenced.yaml"), []byte("hosts: hosts.d\npolicies: \"\"\n"), 0o600))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "hosts.d"), 0o700))
	for i := range maxRedactedFiles + 3 {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "hosts.d", "h"+strings.Repeat("x", i)+".yaml"), nil, 0o600))
	}
	files := Redacted(filepath.Join(dir, "fenced.yaml"))
	require.Len(t, files, 1+maxRedactedFiles+1)
	assert.ErrorContains(t, files[len(files)-1].Err, "3 files of")
	require.NoError(t, os.Truncate(filepath.Join(dir, "fenced.yaml"), maxRedacted+1))
	files = Redacted(filepath.Join(dir, "fenced.yaml"))
	assert.ErrorContains(t, files[0].Err, "larger than")
}

const configs = "../../configs/"

// configs/fenced.yaml is the reference: it has every key, with its default, except that it begins
// in mode observe.
func TestReferenceFileIsComplete(t *testing.T) {
	file := configs + "fenced.yaml"
	data := must.Do(os.ReadFile(file))(t)
	c, lines, errs := readConfig(file, data)
	require.Empty(t, errs)
	byDefault := Default()
	want := leaves(&byDefault)
	require.Greater(t, len(want), 40)
	for i, got := range leaves(&c) {
		require.NotEmpty(t, lines[got.key], "the reference lacks %s", got.key)
		if got.key == "clusters" {
			continue
		}
		// An empty list is written [] and nil by default.
		if got.value.Kind() == reflect.Slice && got.value.Len() == 0 && want[i].value.Len() == 0 {
			continue
		}
		require.Equal(t, want[i].value.Interface(), got.value.Interface(), got.key)
	}

	require.Len(t, c.Clusters, 1)
	var cl Cluster
	cl.setDefaults()
	cl.Mode = "observe"
	cl.Name, cl.Kubeconfig = "prod", "/etc/fenced/prod.kubeconfig"
	cl.Namespaces, cl.ControllerNamespaces, cl.RequestNamespaces = []string{}, []string{}, []string{}
	require.Equal(t, cl, c.Clusters[0])
	requireKeys(t, lines, "clusters[0]", reflect.TypeFor[Cluster]())
	must.Do(Load(filepath.Join(reference(t), "fenced.yaml")))(t)
}

// reference is a copy of the reference files: everybody may write where they are checked
// out, perhaps.
func reference(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS(configs)))
	return dir
}

// requireKeys checks that every key of a type occurs under prefix.
func requireKeys(t *testing.T, lines map[string]int, prefix string, typ reflect.Type) {
	for f := range typ.Fields() {
		key := join(prefix, f.Tag.Get("yaml"))
		if f.Tag.Get("yaml") == "-" {
			continue
		}
		require.NotEmpty(t, lines[key], "the reference lacks %s", key)
		if f.Type.Kind() == reflect.Struct {
			requireKeys(t, lines, key, f.Type)
		}
	}
}

func TestHostsExample(t *testing.T) {
	dir := reference(t)
	c := must.Do(Load(filepath.Join(dir, "fenced.yaml"), "hosts="+filepath.Join(dir, "hosts.d")))(t)
	hosts := must.Do(LoadHosts(c))(t)
	require.Len(t, hosts, 5)
	require.Equal(t, "prod/worker-3", hosts[0].Name)
	require.Equal(t, []int{17, 3}, hosts[0].Levels[0].Devices[0].CipherSuites)
	require.Equal(t, "openshift-machine-api/worker-4-bmc", hosts[1].Levels[0].Devices[0].Secret)
	require.Equal(t, "https://192.0.2.15:443/redfish/v1/Systems/1, then fence_apc_snmp://pdu-a.example.org#7 + fence_apc_snmp://pdu-b.example.org#7",
		hosts[2].Address())
	require.Equal(t, "ipmi://192.0.2.16:623, then bmclib+ipmi://192.0.2.16:623", hosts[3].Address())

	require.Equal(t, "openshift-machine-api/worker-7", hosts[4].Machine)

	file := configs + "hosts.d/example.yaml"
	data := must.Do(os.ReadFile(file))(t)
	root := must.Do(parseYAML(file, data))(t)
	var f hostsFile
	r := newReader(file)
	r.mapping(root, "", reflect.ValueOf(&f).Elem())
	require.Empty(t, r.errs)
	// Of node and machine, of bmc and levels, and of the three sources of a password, an entry has one;
	// some keys are of one driver alone.
	for key, otherKey := range map[string]string{
		"machine": "hosts[4].machine", "levels": "hosts[1].levels", "bmc.secret": "hosts[1].levels[0].devices[0].secret", "bmc.credential": "hosts[2].levels[0].devices[0].credential",
		"bmc.agent": "hosts[2].levels[1].devices[0].agent", "bmc.parameters": "hosts[2].levels[1].devices[0].parameters",
		"bmc.secretParameters": "hosts[2].levels[1].devices[0].secretParameters", "bmc.provider": "hosts[3].levels[1].devices[0].provider",
	} {
		require.NotEmpty(t, r.lines[otherKey], otherKey)
		r.lines["hosts[0]."+key] = r.lines[otherKey]
	}
	requireKeys(t, r.lines, "hosts[0]", reflect.TypeFor[hostYAML]())
}

// Every name of a check in a tag must be in its table, or the first file that
// uses the key would crash the daemon.
func TestTagsNameKnownChecks(t *testing.T) {
	var walk func(reflect.Type)
	walk = func(typ reflect.Type) {
		for f := range typ.Fields() {
			leaf := f.Type
			if leaf.Kind() == reflect.Slice || leaf.Kind() == reflect.Map {
				leaf = leaf.Elem()
			}
			is := f.Tag.Get("is")
			switch {
			case leaf.Kind() == reflect.Struct:
				walk(leaf)
			case is == "":
			case leaf.Kind() == reflect.String:
				// A single word that is no check is an enumeration of one.
				if is != "bbolt" && !strings.Contains(is, "|") {
					require.Contains(t, textChecks, is, f.Name)
				}
			default:
				require.Contains(t, numberChecks, is, f.Name)
			}
		}
	}
	walk(reflect.TypeFor[Config]())
	walk(reflect.TypeFor[hostsFile]())
}

// TestHeadingWithNothingUnderItSetsNothing: somebody has commented out what stood below it, in a file that is laid over another. What that
// one says stays: a restriction does not fall silently.
func TestHeadingWithNothingUnderItSetsNothing(t *testing.T) {
	c := must.Do(Load(write(t, map[string]string{
		"fenced.yaml": "clusters: [{name: a, kubeconfig: kc}]\nbmcNetworks: [192.0.2.0/24]\n" +
			"control: {twoPersons: [fence], roles: {viewer: [user:anna]}}\n",
		"conf.d/a.yaml": "clusters:\nbmcNetworks:\n#  - 198.51.100.0/24\ncontrol:\n  twoPersons:\n  roles:\n    viewer:\n",
	})))(t)
	assert.Len(t, c.Clusters, 1)
	assert.Equal(t, []string{"192.0.2.0/24"}, c.BMCNetworks)
	assert.Equal(t, []string{"fence"}, c.Control.TwoPersons)
	assert.Equal(t, []string{"user:anna"}, c.Control.Roles.Viewer)
}
