package config

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
)

// loadFiles loads files of hosts.d for the named clusters; it gives the
// directory of hosts.d too.
func loadFiles(t *testing.T, clusters []string, files map[string]string) ([]HostEntry, string, error) {
	all := map[string]string{}
	for name, text := range files {
		all["hosts.d/"+name] = text
	}
	file := write(t, all)
	c := Default()
	c.File, c.Hosts = file, filepath.Join(filepath.Dir(file), "hosts.d")
	for _, name := range clusters {
		c.Clusters = append(c.Clusters, Cluster{Name: name})
	}
	hosts, err := LoadHosts(c)
	return hosts, c.Hosts, err
}

func TestLoadHosts(t *testing.T) {
	hosts, dir, err := loadFiles(t, []string{"prod"}, map[string]string{
		"20-b.yaml": "hosts:\n- node: b\n  bmc: {address: 192.0.2.2, secret: ns/s, cipherSuites: [3], kgFile: ../kg}\n",
		"10-a.yaml": `
hosts:
  - node: worker-3.example.com
    cluster: prod
    uuid: 4c4c4544-0042-3510-8052-b4c04f4d3332
    identity: pinned
    protected: true
    bmc:
      address: redfish://192.0.2.13/redfish/v1/Systems/1
      username: "0007"
      passwordFile: ../pw
      driver: redfish
      tls: {ca: ca.pem, insecureSkipVerify: false}
  - node: c
    levels: [{devices: [{address: "ipmi://[2001:db8::1]:1623", username: u, credential: c-bmc}]}]
`,
		"30-empty.yaml": "", "40-none.yaml": "hosts: []\n", "README": "x",
	})
	require.NoError(t, err)
	require.Len(t, hosts, 3)
	a, c, b := hosts[0], hosts[1], hosts[2]
	require.Equal(t, HostEntry{
		Host: bmc.Host{
			Name: "prod/worker-3.example.com",
			Levels: []bmc.Level{{Devices: []bmc.Device{{
				Driver:     bmc.DriverRedfish,
				Endpoint:   bmc.Endpoint{Protocol: bmc.ProtocolRedfish, Host: "192.0.2.13", Port: 443, System: "/redfish/v1/Systems/1", Privilege: "OPERATOR"},
				Username:   "0007",
				TLS:        bmc.TLS{CA: filepath.Join(dir, "ca.pem")},
				SystemUUID: "4c4c4544-0042-3510-8052-b4c04f4d3332",
			}}}},
			PinnedUUID:   "4c4c4544-0042-3510-8052-b4c04f4d3332",
			IdentityMode: "pinned",
			Protected:    true,
			Source:       filepath.Join(dir, "10-a.yaml") + ":3",
		},
		Node: "worker-3.example.com", Cluster: "prod",
		Passwords: [][]PasswordSource{{{File: filepath.Join(filepath.Dir(dir), "pw")}}},
		place:     filepath.Join(dir, "10-a.yaml") + ":3: hosts[0]", places: [][]string{{filepath.Join(dir, "10-a.yaml") + ":8: hosts[0].bmc"}},
	}, a)
	require.Equal(t, "prod/c", c.Name, "the only cluster is the default")
	require.Equal(t, "required", c.IdentityMode, "as guards.identity")
	require.Equal(t, "c-bmc", c.Passwords[0][0].Credential)
	require.Equal(t, "[2001:db8::1]:1623", c.Levels[0].Devices[0].Endpoint.HostPort())
	require.Equal(t, []int{3}, b.Levels[0].Devices[0].CipherSuites)
	require.Equal(t, "ns/s", b.Levels[0].Devices[0].Secret)
	require.Equal(t, filepath.Join(filepath.Dir(dir), "kg"), b.Passwords[0][0].KgFile)
	require.Empty(t, b.Levels[0].Devices[0].Username, "the Secret holds it")
}

// An entry may name a Machine, which may have no Node.
func TestLoadHostsOfMachines(t *testing.T) {
	hosts, _, err := loadFiles(t, []string{"prod"}, map[string]string{
		"a.yaml": "hosts:\n- {machine: openshift-machine-api/worker-7, uuid: 4c4c4544-0042-3510-8052-b4c04f4d3332, bmc: {address: 192.0.2.2, username: u, credential: c}}\n"})
	require.NoError(t, err)
	require.Len(t, hosts, 1)
	require.Equal(t, "prod/machine/openshift-machine-api/worker-7", hosts[0].Name)
	require.Equal(t, "openshift-machine-api/worker-7", hosts[0].Of())
	require.Empty(t, hosts[0].Node)
}

// What a BMC that is as it is needs, for one device.
func TestLoadHostsOfBMCsAsTheyAre(t *testing.T) {
	hosts, _, err := loadFiles(t, []string{"prod"}, map[string]string{"a.yaml": `
hosts:
  - {node: a, bmc: {address: "redfish://192.0.2.1", username: u, credential: a, auth: basic, tls: {rsaKeyExchange: true}}}
  - {node: b, bmc: {address: "redfish://192.0.2.2", username: u, credential: b, auth: auto}}
  - {node: c, bmc: {address: "192.0.2.3", username: u, credential: c, ignoreUUID: true}}
`})
	require.NoError(t, err)
	require.True(t, hosts[0].Levels[0].Devices[0].BasicAuth)
	require.True(t, hosts[0].Levels[0].Devices[0].TLS.RSAKeyExchange)
	require.False(t, hosts[1].Levels[0].Devices[0].BasicAuth)
	require.False(t, hosts[1].Levels[0].Devices[0].TLS.RSAKeyExchange)
	require.True(t, hosts[2].Levels[0].Devices[0].IgnoreUUID)
	require.False(t, hosts[1].Levels[0].Devices[0].IgnoreUUID)
}

func TestLoadHostsWithoutADirectory(t *testing.T) {
	hosts, _, err := loadFiles(t, []string{"prod"}, nil)
	require.NoError(t, err)
	require.Empty(t, hosts)
}

// Each text makes exactly the error that is given, with its line.
func TestLoadHostsRefuses(t *testing.T) {
	const good = "address: 192.0.2.1, username: u, passwordFile: p"
	one := func(more string) string { return "hosts:\n- node: a\n  bmc: {" + more + "}\n" }
	for _, c := range []struct{ name, text, want string }{
		{"an unknown key", "hosts:\n- node: a\n  bmc: {" + good + "}\n  protectd: true\n", `:4: hosts[0].protectd: unknown key (did you mean protected?)`},
		{"an unknown key of the BMC", one(good + ", user: x"), `:3: hosts[0].bmc.user: unknown key`},
		{"a duplicate key", "hosts:\n- node: a\n  node: b\n  bmc: {" + good + "}\n", `:3: hosts[0].node: duplicate key, first on line 2`},
		{"a password", one(good + ", password: s3cret"), `:3: hosts[0].bmc.password: unknown key`},
		{"no node", "hosts:\n- bmc: {" + good + "}\n", `:2: hosts[0]: node is missing`},
		{"node and machine", "hosts:\n- {node: a, machine: ns/m, bmc: {" + good + "}}\n", `:2: hosts[0].machine: node names a host already`},
		{"a Machine without its namespace", "hosts:\n- {machine: m, bmc: {" + good + "}}\n", `:2: hosts[0].machine: "m" is not NAMESPACE/NAME of a Machine`},
		{"a Machine twice", "hosts:\n- {machine: ns/m, bmc: {" + good + "}}\n- {machine: ns/m, bmc: {address: 192.0.2.77, username: u, credential: c}}\n",
			`:3: hosts[1].machine: Machine ns/m of cluster prod is also at`},
		{"a node's name", "hosts:\n- node: A_b\n  bmc: {" + good + "}\n", `:2: hosts[0].node: "A_b" is not the name of a Node`},
		{"a number for a name", "hosts:\n- node: 3\n  bmc: {" + good + "}\n", `:2: hosts[0].node: 3 is not text; quote it: "3"`},
		{"another cluster", "hosts:\n- node: a\n  cluster: prd\n  bmc: {" + good + "}\n", `:3: hosts[0].cluster: there is no cluster "prd" in MAIN (did you mean prod?)`},
		{"no BMC", "hosts:\n- node: a\n", `:2: hosts[0]: bmc is missing`},
		{"bmc and levels", "hosts:\n- node: a\n  bmc: {" + good + "}\n  levels: [{devices: [{" + good + "}]}]\n", `:2: hosts[0]: has both bmc and levels`},
		{"an unknown driver", one(good + ", driver: ilo"), `:3: hosts[0].bmc.driver: "ilo" is not known; use auto, ipmi, redfish, bmclib, fence-agent`},
		{"a driver that does not fit", one(good + ", driver: redfish"), `:3: hosts[0].bmc.driver: redfish does not fit the address ipmi://192.0.2.1:623; write redfish://`},
		{"no address", one("username: u, passwordFile: p"), `:3: hosts[0].bmc: address is missing`},
		{"an address", one("address: \"http://x y\", username: u, passwordFile: p"), `:3: hosts[0].bmc.address: BMC address`},
		{"no user", one("address: 192.0.2.1, passwordFile: p"), `:3: hosts[0].bmc: username is missing`},
		{"no password", one("address: 192.0.2.1, username: u"), `:3: hosts[0].bmc: needs one of passwordFile, credential and secret, not 0`},
		{"two passwords", one(good + ", secret: a/b"), `:3: hosts[0].bmc: needs one of passwordFile, credential and secret, not 2`},
		{"a Secret without a namespace", one("address: 192.0.2.1, secret: b"), `:3: hosts[0].bmc.secret: must be NAMESPACE/NAME of a Secret`},
		{"a credential that is a path", one("address: 192.0.2.1, username: u, credential: ../x"), `:3: hosts[0].bmc.credential: must be the name of a systemd credential`},
		{"a placeholder UUID", "hosts:\n- node: a\n  uuid: 00000000-0000-0000-0000-000000000000\n  bmc: {" + good + "}\n", `:3: hosts[0].uuid: must be a system UUID`},
		{"half a UUID", "hosts:\n- node: a\n  uuid: 4c4c4544-0042\n  bmc: {" + good + "}\n", `:3: hosts[0].uuid: must be a system UUID`},
		{"cipher suite 0", one(good + ", cipherSuites: [17, 0]"), `:3: hosts[0].bmc.cipherSuites[1]: only the cipher suites 17 and 3`},
		{"a certificate pin", one(good + ", tls: {pinSHA256: abc}"), `:3: hosts[0].bmc.tls.pinSHA256: must be a SHA-256`},
		{"identity", "hosts:\n- node: a\n  identity: none\n  bmc: {" + good + "}\n", `:3: hosts[0].identity: "none" is not known`},
		{"an authentication", one("address: redfish://192.0.2.1, username: u, passwordFile: p, auth: digest"), `:3: hosts[0].bmc.auth: "digest" is not known`},
		{"auth over IPMI", one(good + ", auth: basic"), `:3: hosts[0].bmc.auth: basic is for driver redfish`},
		{"auth for a library", one("address: redfish://192.0.2.1, username: u, passwordFile: p, driver: bmclib, auth: basic"), `:3: hosts[0].bmc.auth: basic is for driver redfish`},
		{"RSA over IPMI", one(good + ", tls: {rsaKeyExchange: true}"), `:3: hosts[0].bmc.tls.rsaKeyExchange: is for driver redfish`},
		{"a UUID of a library", one(good + ", driver: bmclib, ignoreUUID: true"), `:3: hosts[0].bmc.ignoreUUID: is for drivers ipmi and redfish; a device of this driver is enrolled in any case`},
		{"a list at the top", "- node: a\n", `:1: the file: keys with values is needed here, not a list`},
		{"no YAML", "hosts: [\n", `:1: did not find expected node content`},
	} {
		t.Run(c.name, func(t *testing.T) {
			hosts, dir, err := loadFiles(t, []string{"prod"}, map[string]string{"a.yaml": c.text})
			require.ErrorContains(t, err, filepath.Join(dir, "a.yaml")+strings.ReplaceAll(c.want, "MAIN", filepath.Join(filepath.Dir(dir), "fenced.yaml")))
			require.NotContains(t, err.Error(), "\n", "one mistake, one error")
			require.NotContains(t, err.Error(), "s3cret")
			require.Empty(t, hosts)
		})
	}
}

func TestLoadHostsNeedsTheClusterAmongSeveral(t *testing.T) {
	text := "hosts:\n- node: a\n  bmc: {address: 192.0.2.1, username: u, passwordFile: p}\n"
	_, _, err := loadFiles(t, []string{"prod", "lab"}, map[string]string{"a.yaml": text})
	require.ErrorContains(t, err, "a.yaml:2: hosts[0]: cluster is missing; there are several: prod, lab")
}
