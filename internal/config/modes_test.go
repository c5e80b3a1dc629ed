package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

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
		return nil, ReadPolicies(c, func(string, []byte) error { return nil })
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
	warnings, err := checked(dir)
	require.NoError(t, err)
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
	warnings, err = checked(dir)
	require.NoError(t, err)
	want := []string{
		"DIR/fenced.yaml: everybody may read it (mode 0644)",
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
			warnings, err := Check(file, good)
			require.NoError(t, err)
			if c.want == "" {
				require.Empty(t, warnings)
				return
			}
			require.Len(t, warnings, 1)
			require.Contains(t, warnings[0], file+": state.etcd: ")
			require.Contains(t, warnings[0], c.want)
		})
	}
	warnings, err := Check(writeMain(t, oneCluster), good)
	require.NoError(t, err)
	require.Empty(t, warnings, "there is no etcd")
}

// An etcd's key that everybody may read lets everybody sign in.
func TestCheckWarnsOfAnOpenKey(t *testing.T) {
	file := write(t, map[string]string{
		"fenced.yaml": oneCluster + "state: {engine: etcd, etcd: {endpoints: [\"https://a:1\"], cert: pem, key: pem}}\n", "pem": "",
	})
	pem := filepath.Join(filepath.Dir(file), "pem")
	require.NoError(t, os.Chmod(pem, 0o644))
	warnings, err := Check(file, good)
	require.NoError(t, err)
	require.Len(t, warnings, 1)
	require.Contains(t, warnings[0], pem+": everybody may read it (mode 0644)")
	require.NoError(t, os.Chmod(pem, 0o602))
	_, err = Check(file, good)
	require.ErrorContains(t, err, "state.etcd.key: everybody may write "+pem)
}

// An empty path is no directory, whatever lies in the one where the daemon was started.
func TestEmptyPathsAreNone(t *testing.T) {
	file := writeMain(t, oneCluster+"hosts: \"\"\npolicies: \"\"\n")
	t.Chdir(filepath.Dir(write(t, map[string]string{"fenced.yaml": "no: hosts\n"})))
	c, err := Load(file)
	require.NoError(t, err)
	hosts, err := LoadHosts(c)
	require.NoError(t, err)
	require.Empty(t, hosts)
	require.NoError(t, ReadPolicies(c, func(name string, _ []byte) error {
		t.Errorf("%s was read", name)
		return nil
	}))
}
