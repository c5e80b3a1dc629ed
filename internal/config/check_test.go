package config

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/test/must"
)

func TestCheckFindsHostsAndPoliciesTogether(t *testing.T) {
	file := write(t, map[string]string{
		"fenced.yaml":    oneCluster + "hosts: hosts.d\n",
		"hosts.d/a.yaml": "hosts: [{node: a}]\n",
	})
	bad := errors.New("policies.d/a.yaml:1: no check")
	policies := func(c Config) ([]string, error) {
		require.Equal(t, []string{"prod"}, c.ClusterNames())
		return []string{"of policies"}, bad
	}
	warnings, err := Check(file, policies)
	require.Contains(t, warnings, "of policies")
	require.ErrorIs(t, err, bad)
	require.ErrorContains(t, err, "hosts.d/a.yaml:1: hosts[0]: bmc is missing")
	// One problem hides no other.
	_, err = Check(file, policies, "log.level=loud", "guards.maxInFlight=0")
	require.ErrorContains(t, err, "command line: log.level")
	require.ErrorContains(t, err, "command line: guards.maxInFlight")
	require.ErrorContains(t, err, "hosts.d/a.yaml:1: hosts[0]: bmc is missing")
	require.ErrorIs(t, err, bad)
	must.Do(Check(writeMain(t, oneCluster), good))(t)
}

func good(Config) ([]string, error) { return nil, nil }

// What files hold is warned of, with its line: one host keeps no daemon from
// starting.
func TestCheckWarns(t *testing.T) {
	file := write(t, map[string]string{
		"fenced.yaml": oneCluster + "hosts: hosts.d\n",
		"hosts.d/a.yaml": `hosts:
- {node: a, bmc: {address: 192.0.2.1, username: u, passwordFile: ../good}}
- {node: b, bmc: {address: 192.0.2.2, username: u, passwordFile: Canary-4711}}
- node: c
  bmc:
    address: redfish://192.0.2.3
    username: u
    passwordFile: ../open
    tls: {ca: ../good}
- {node: d, bmc: {address: 192.0.2.4, username: u, passwordFile: ../empty}}
- {node: e, bmc: {address: 192.0.2.5, username: u, passwordFile: ../long}}
- {node: f, bmc: {address: redfish://192.0.2.6, username: u, passwordFile: ../long}}
- node: g
  levels:
    - devices: [{driver: fence-agent, agent: fence_x, parameters: {plug: 1}, secretParameters: {community: ../empty}}]
- {node: i, bmc: {address: 192.0.2.9, username: u, passwordFile: ../good, kgFile: ../long}}
- {node: h, bmc: {address: 192.0.2.8, username: u, credential: h}}
`,
		"good": "s3cret", "open": "s3cret", "empty": "\n", "long": strings.Repeat("s3cret", 4),
	})
	dir := filepath.Dir(file)
	for name, mode := range map[string]os.FileMode{"good": 0o600, "open": 0o644, "empty": 0o600, "long": 0o600} {
		require.NoError(t, os.Chmod(filepath.Join(dir, name), mode))
	}
	t.Setenv("CREDENTIALS_DIRECTORY", "")
	warnings, err := Check(file, good)
	require.NoError(t, err)
	at := filepath.Join(dir, "hosts.d/a.yaml")
	want := []string{
		at + ":3: hosts[1].bmc.passwordFile: stat the file that is named there: no such file or directory",
		at + ":8: hosts[2].bmc.passwordFile: " + dir + "/open is open to everyone (mode 0644)",
		at + ":9: hosts[2].bmc.tls.ca: " + dir + "/good holds no PEM certificate",
		at + ":10: hosts[3].bmc.passwordFile: " + dir + "/empty is empty",
		at + ":11: hosts[4].bmc.passwordFile: it has 24 bytes, and IPMI 2.0 takes 20",
		at + ":15: hosts[6].levels[0].devices[0].secretParameters.community: " + dir + "/empty is empty",
		at + ":16: hosts[7].bmc.kgFile: " + dir + "/long holds 24 bytes, and a key (K_g) of IPMI 2.0 has at most 20",
	}
	require.Len(t, warnings, len(want), "%q", warnings)
	for i, w := range want {
		require.Contains(t, warnings[i], w)
		require.NotContains(t, warnings[i], "s3cret")      // I25
		require.NotContains(t, warnings[i], "Canary-4711") // it may be the password itself
	}
	t.Setenv("CREDENTIALS_DIRECTORY", filepath.Join(dir, "nowhere"))
	warnings, err = Check(file, good)
	require.NoError(t, err, "what cannot be read is left to the daemon")
	require.Len(t, warnings, len(want))
	t.Setenv("CREDENTIALS_DIRECTORY", dir)
	_, err = Check(file, good)
	require.ErrorContains(t, err, at+":17: hosts[8].bmc.credential: systemd gave this process no credential h; add LoadCredential=h:PATH to the unit")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "h"), []byte("\n"), 0o600))
	_, err = Check(file, good)
	require.ErrorContains(t, err, at+":17: hosts[8].bmc.credential: "+dir+"/h is empty")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "h"), []byte("s3cret"), 0o600))
	must.Do(Check(file, good))(t)
}

func TestParsePrincipal(t *testing.T) {
	for text, want := range map[string]Principal{
		"user:root":       {Name: "root"},
		"group:wheel":     {Group: true, Name: "wheel"},
		"user:1000":       {Name: "1000"},
		"user:svc$":       {Name: "svc$"},
		`group:AD\admins`: {Group: true, Name: `AD\admins`},
	} {
		got, err := ParsePrincipal(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got)
	}
	for _, text := range []string{"", "root", "user:", "group: a", "User:a", "user:a:b", "user:12a", "user:-a"} {
		_, err := ParsePrincipal(text)
		require.Error(t, err, text)
	}
}

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
	warnings := must.Do(Check(file, good))(t)
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
	warnings := must.Do(Check(file, good))(t)
	require.ElementsMatch(t, []string{
		"environment FENCED_GUARDS_MAXINFLIHGT is ignored: there is no such key, or only a file can set it (did you mean FENCED_GUARDS_MAXINFLIGHT?)",
		"environment FENCED_STATE_PASSWORD is ignored: there is no such key, or only a file can set it",
	}, warnings)
}

// A role of a name that this host does not know is nobody's. A mistyped name shows here.
func TestCheckNamesRolesOfNobody(t *testing.T) {
	file := writeMain(t, oneCluster+`control: {roles: {viewer: ["group:fenced-view", "group:no-such-group"], operator: ["user:root", "group:root", "user:0"], admin: ["user:no-such-user"]}}`+"\n")
	warnings := must.Do(Check(file, good))(t)
	require.Len(t, warnings, 2, "%q", warnings)
	require.Contains(t, warnings[0], file+": control.roles.viewer: neither /etc/passwd nor /etc/group has group:no-such-group")
	require.Contains(t, warnings[1], file+": control.roles.admin: neither /etc/passwd nor /etc/group has user:no-such-user")
}

// Without a cluster nobody knows what hosts and policies are for; all else is still told.
func TestCheckWithoutClusters(t *testing.T) {
	file := writeMain(t, "control: {roles: {admin: [\"user:no-such-user\"]}}\n")
	warnings, err := Check(file, func(Config) ([]string, error) {
		t.Error("asked without a cluster")
		return nil, nil
	})
	require.ErrorContains(t, err, "clusters: at least one is needed")
	require.Contains(t, strings.Join(warnings, "\n"), "user:no-such-user")
	_, err = Check(filepath.Join(t.TempDir(), "none.yaml"), good)
	require.ErrorIs(t, err, os.ErrNotExist)
}

// installed is a configuration that lies as the package installs it, and gives the
// directory of fenced.yaml.
func installed(t *testing.T) string {
	file := write(t, map[string]string{
		"etc/fenced.yaml": "clusters: [{name: prod, kubeconfig: kc, management: {kubeconfig: management, clusterName: c}}]\n" +
			"hosts: hosts.d\npolicies: policies.d\n",
		"etc/conf.d/a.yaml":      "log: {level: warn}\n",
		"etc/hosts.d/a.yaml":     "hosts: []\n",
		"etc/policies.d/a.yaml":  "",
		"etc/kc":                 "",
		"etc/management":         "",
		"elsewhere/linked/links": "hosts: []\n",
	})
	dir := filepath.Dir(file)
	require.NoError(t, os.Symlink("../../elsewhere/linked/links", filepath.Join(dir, "etc/hosts.d/links.yaml")))
	return filepath.Join(dir, "etc")
}

func checked(dir string) ([]string, error) {
	return Check(filepath.Join(dir, "fenced.yaml"), func(c Config) ([]string, error) {
		return nil, ReadPolicies(c, func(string, []byte) {})
	})
}

// Who can write what fenced reads decides which hosts are powered off.
func TestFilesThatEverybodyMayWriteAreRefused(t *testing.T) {
	for _, c := range []struct {
		name string
		mode os.FileMode
		want string
	}{
		{"fenced.yaml", 0o642, "DIR/fenced.yaml (mode 0642)"},
		{"conf.d/a.yaml", 0o666, "DIR/conf.d/a.yaml (mode 0666)"},
		{"hosts.d/a.yaml", 0o602, "DIR/hosts.d/a.yaml (mode 0602)"},
		{"policies.d/a.yaml", 0o602, "DIR/policies.d/a.yaml (mode 0602)"},
		{"kc", 0o602, "DIR/fenced.yaml:1: clusters[0].kubeconfig: everybody may write DIR/kc"},
		{"management", 0o602, "DIR/fenced.yaml:1: clusters[0].management.kubeconfig: everybody may write DIR/management"},
		{"conf.d", 0o777, "run: chmod o-w DIR/conf.d"},
		{"hosts.d", 0o777, "run: chmod o-w DIR/hosts.d"},
		{"policies.d", 0o777, "run: chmod o-w DIR/policies.d"},
		{"policies.d", 0o777 | os.ModeSticky, "everybody may write in DIR/policies.d"},
		{".", 0o777, "run: chmod o-w DIR"},
		{".", 0o777 | os.ModeSticky, "everybody may write in DIR"},
		{"..", 0o777, "so any user of this host could decide what fenced does"},
		{"../elsewhere/linked/links", 0o666, "elsewhere/linked/links (mode 0666)"},
		{"../elsewhere/linked", 0o777, "DIR/hosts.d/links.yaml: everybody may write"},
		{"../elsewhere", 0o777, "DIR/hosts.d/links.yaml: everybody may write"},
		{"../elsewhere", 0o777 | os.ModeSticky, ""}, // what lies below belongs to others
		{"fenced.yaml", 0o664, ""},
		{"hosts.d", 0o775, ""},
	} {
		t.Run(c.name+" "+c.mode.String(), func(t *testing.T) {
			dir := installed(t)
			require.NoError(t, os.Chmod(filepath.Join(dir, c.name), c.mode))
			_, err := checked(dir)
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, strings.ReplaceAll(c.want, "DIR", dir))
		})
	}
}

func TestCheckWarnsOfModes(t *testing.T) {
	dir := installed(t)
	path := func(name string) string { return filepath.Join(dir, name) }
	warnings := must.Do(checked(dir))(t)
	require.Empty(t, warnings)

	for name, mode := range map[string]os.FileMode{"fenced.yaml": 0o644, "kc": 0o604, "hosts.d/a.yaml": 0o660, "policies.d": 0o770, "conf.d/a.yaml": 0o660} {
		require.NoError(t, os.Chmod(path(name), mode))
	}
	if os.Getuid() == 0 { // else its group is not that of root already
		require.NoError(t, os.Chown(path("hosts.d/a.yaml"), -1, 12345))
		require.NoError(t, os.Chown(path("policies.d"), -1, 12345))
		require.NoError(t, os.Chown(path("conf.d/a.yaml"), -1, 0))
	} else {
		require.NoError(t, os.Chmod(path("conf.d/a.yaml"), 0o600))
	}
	warnings = must.Do(checked(dir))(t)
	want := []string{
		"DIR/kc: everybody may read it (mode 0604)",
		"DIR/hosts.d/a.yaml: its group may write it (mode 0660)",
		"DIR/policies.d: its group may write it (mode 0770)",
	}
	require.Len(t, warnings, len(want), "%q", warnings)
	for i, w := range want {
		require.Contains(t, warnings[i], strings.ReplaceAll(w, "DIR", dir))
	}
}

// Who writes the state can arm fenced.
func TestCheckWarnsOfAnEtcdThatAsksNobody(t *testing.T) {
	const local, remote = "https://127.0.0.1:2379", "https://192.0.2.1:2379"
	for _, c := range []struct{ name, etcd, want string }{
		{"in the clear", `endpoints: ["http://localhost:2379"]`, "without cert and key every user of this host can write the state, arm fenced"},
		{"over TLS", `endpoints: ["` + local + `", "https://[::1]:2379"]`, "every user of this host"},
		{"elsewhere", `endpoints: ["` + local + `", "` + remote + `"]`, "everybody who reaches it"},
		{"signed in", `endpoints: ["` + local + `"], cert: pem, key: pem`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := write(t, map[string]string{"fenced.yaml": oneCluster + "state: {engine: etcd, etcd: {" + c.etcd + "}}\n", "pem": ""})
			warnings := must.Do(Check(file, good))(t)
			if c.want == "" {
				require.Empty(t, warnings)
				return
			}
			require.Len(t, warnings, 1)
			require.Contains(t, warnings[0], file+": state.etcd: ")
			require.Contains(t, warnings[0], c.want)
		})
	}
	warnings := must.Do(Check(writeMain(t, oneCluster), good))(t)
	require.Empty(t, warnings, "there is no etcd")
}

// An etcd's key that everybody may read lets everybody sign in.
func TestCheckWarnsOfAnOpenKey(t *testing.T) {
	file := write(t, map[string]string{
		"fenced.yaml": oneCluster + "state: {engine: etcd, etcd: {endpoints: [\"https://a:1\"], cert: pem, key: pem}}\n", "pem": "",
	})
	pem := filepath.Join(filepath.Dir(file), "pem")
	require.NoError(t, os.Chmod(pem, 0o644))
	warnings := must.Do(Check(file, good))(t)
	require.Len(t, warnings, 1)
	require.Contains(t, warnings[0], pem+": everybody may read it (mode 0644)")
	require.NoError(t, os.Chmod(pem, 0o602))
	_, err := Check(file, good)
	require.ErrorContains(t, err, "state.etcd.key: everybody may write "+pem)
}

// An empty path is no directory, whatever lies in the one where the daemon was started.
func TestEmptyPathsAreNone(t *testing.T) {
	file := writeMain(t, oneCluster+"hosts: \"\"\npolicies: \"\"\n")
	t.Chdir(filepath.Dir(write(t, map[string]string{"fenced.yaml": "no: hosts\n"})))
	c := must.Do(Load(file))(t)
	hosts := must.Do(LoadHosts(c))(t)
	require.Empty(t, hosts)
	require.NoError(t, ReadPolicies(c, func(name string, _ []byte) {
		t.Errorf("%s was read", name)
	}))
}

// keysBelow lists the keys of a type of the configuration.
func keysBelow(t reflect.Type, above string) (all []string) {
	for f := range t.Fields() {
		name := f.Tag.Get("yaml")
		switch key := strings.TrimPrefix(above+"."+name, "."); {
		case name == "-":
		case f.Type.Kind() == reflect.Struct:
			all = append(all, keysBelow(f.Type, key)...)
		default:
			all = append(all, key)
		}
	}
	return all
}

// Each key is found to differ, and is live or needs a restart as the table says. A live key
// of the table that exists no more would be a promise that nothing keeps.
func TestEveryKeyIsCompared(t *testing.T) {
	was := Default()
	was.Clusters = []Cluster{{Name: "prod"}}
	var compared []string
	for _, key := range keysBelow(reflect.TypeFor[Config](), "") {
		if key == "clusters" {
			continue
		}
		now := was
		v := reflect.ValueOf(&now).Elem()
		for name := range strings.SplitSeq(key, ".") {
			v = v.FieldByNameFunc(func(f string) bool { return yamlName(v.Type(), f) == name })
		}
		change(v)
		assert.Equal(t, []Change{{Key: key, Live: isLive(key)}}, Changes(was, now), key)
		want := was
		if isLive(key) {
			want = now
		}
		assert.Equal(t, want, TakeLive(was, now), key)
		compared = append(compared, key)
	}
	for _, key := range liveKeys {
		assert.Contains(t, compared, key)
	}
	assert.Empty(t, Changes(was, was))
}

func yamlName(t reflect.Type, field string) string {
	f, _ := t.FieldByName(field)
	return f.Tag.Get("yaml")
}

func change(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(v.String() + "x")
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.Slice:
		v.Set(reflect.ValueOf([]string{"x"}))
	default:
		v.SetInt(v.Int() + 1)
	}
}

// Clusters are compared by their names: their order means nothing, and what differs in one
// is named with it.
func TestClustersAreComparedByName(t *testing.T) {
	a, b := Cluster{Name: "a", Mode: ModeObserve, Namespaces: []string{}}, Cluster{Name: "b"}
	in := func(list ...Cluster) Config { return Config{Clusters: list} }
	assert.Empty(t, Changes(in(a, b), in(b, a)))
	armed := a
	armed.Mode, armed.Namespaces = ModeEvaluate, nil
	assert.Equal(t, []Change{{Key: "clusters.a.mode"}}, Changes(in(a, b), in(b, armed)))
	assert.Equal(t, in(a, b), TakeLive(in(b, a), in(armed, b)), "no cluster changes without a restart")
}

// Clusters that one of two configurations has not are added and removed by a reload, and are no
// keys that differ.
func TestClustersAreAddedAndRemoved(t *testing.T) {
	a, b, c := Cluster{Name: "a", Mode: ModeObserve}, Cluster{Name: "b"}, Cluster{Name: "c", Kubeconfig: "kc"}
	armed := a
	armed.Mode = ModeEvaluate
	running, wanted := Config{Clusters: []Cluster{a, b}}, Config{Clusters: []Cluster{c, armed}}
	added, removed := ClusterChanges(running, wanted)
	assert.Equal(t, []Cluster{c}, added)
	assert.Equal(t, []string{"b"}, removed)
	assert.Equal(t, []Change{{Key: "clusters.a.mode"}}, Changes(running, wanted))
	assert.Equal(t, []Cluster{c, a}, TakeLive(running, wanted).Clusters)
	assert.Equal(t, []Cluster{a, b}, running.Clusters, "the running configuration stays as it is")
	added, removed = ClusterChanges(running, running)
	assert.Empty(t, added)
	assert.Empty(t, removed)
}
