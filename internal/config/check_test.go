package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
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
	_, err = Check(writeMain(t, oneCluster), good)
	require.NoError(t, err)
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
	_, err = Check(file, good)
	require.NoError(t, err)
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
