package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
)

// loadFiles loads files of hosts.d for the named clusters; it gives the
// directory of hosts.d too.
func loadFiles(t *testing.T, clusters []string, files map[string]string) ([]*HostEntry, string, error) {
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
	require.Equal(t, &HostEntry{
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
		place:     place{filepath.Join(dir, "10-a.yaml"), 3, 0}, places: []devicePlace{{8, -1, 0}},
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

func TestLoadLevels(t *testing.T) {
	hosts, dir, err := loadFiles(t, []string{"prod"}, map[string]string{"a.yaml": `
hosts:
- node: a
  uuid: 4c4c4544-0042-3510-8052-b4c04f4d3332
  levels:
  - devices: [{address: "ipmi://192.0.2.1", username: u, passwordFile: pw}]
  - devices: [{address: "redfish://192.0.2.1", username: u, credential: c, driver: bmclib}]
  - devices:
    - driver: fence-agent
      agent: fence_apc
      address: pdu-a:2323
      username: apc
      secret: ns/pdu
      parameters: {plug: 07, switch: 2, ssh: yes}
    - driver: fence-agent
      agent: fence_apc_snmp
      address: pdu-b
      parameters: {plug: "7"}
      secretParameters: {community: community}
  - devices: [{driver: fence-agent, agent: fence_xvm, parameters: {port: a}}]
`})
	require.NoError(t, err)
	require.Len(t, hosts, 1)
	const uuid = "4c4c4544-0042-3510-8052-b4c04f4d3332"
	ipmi := bmc.Endpoint{Protocol: bmc.ProtocolIPMI, Host: "192.0.2.1", Port: 623, Privilege: "OPERATOR"}
	redfish := bmc.Endpoint{Protocol: bmc.ProtocolRedfish, Host: "192.0.2.1", Port: 443, Privilege: "OPERATOR"}
	require.Equal(t, []bmc.Level{
		{Devices: []bmc.Device{{Driver: bmc.DriverIPMI, Endpoint: ipmi, Username: "u", SystemUUID: uuid}}},
		{Devices: []bmc.Device{{Driver: bmc.DriverBMCLib, Endpoint: redfish, Provider: "gofish", Username: "u", SystemUUID: uuid}}},
		{Devices: []bmc.Device{
			{Driver: bmc.DriverFenceAgent, Endpoint: bmc.Endpoint{Host: "pdu-a", Port: 2323}, Agent: "fence_apc", Username: "apc", Secret: "ns/pdu",
				Parameters: map[string]string{"plug": "07", "switch": "2", "ssh": "yes"}, SystemUUID: uuid},
			{Driver: bmc.DriverFenceAgent, Endpoint: bmc.Endpoint{Host: "pdu-b"}, Agent: "fence_apc_snmp", SecretParameters: map[string]bmc.Secret{"community": {}}, // their names choose the device
				Parameters: map[string]string{"plug": "7"}, SystemUUID: uuid},
		}},
		{Devices: []bmc.Device{{Driver: bmc.DriverFenceAgent, Agent: "fence_xvm", Parameters: map[string]string{"port": "a"}, SystemUUID: uuid}}},
	}, hosts[0].Levels)
	require.Equal(t, [][]PasswordSource{
		{{File: filepath.Join(dir, "pw")}}, {{Credential: "c"}},
		{{}, {Parameters: map[string]string{"community": filepath.Join(dir, "community")}}}, {{}},
	}, hosts[0].Passwords)
	require.Equal(t, "ipmi://192.0.2.1:623, then bmclib+https://192.0.2.1:443, then fence_apc://pdu-a:2323#2:07 + fence_apc_snmp://pdu-b#7, then fence_xvm://#a",
		hosts[0].Address())
}

// Each text makes exactly the error that is given, with its line.
func TestLevelsRefuse(t *testing.T) {
	const device = "address: 192.0.2.1, username: u, passwordFile: p"
	many := func(n int, text string) string { return strings.TrimSuffix(strings.Repeat(text+", ", n), ", ") }
	agent := func(more string) string {
		return "bmc:\n    driver: fence-agent\n    agent: fence_apc\n    address: pdu\n" + more
	}
	for _, c := range []struct{ name, text, want string }{
		{"no device", "levels: [{devices: []}]", `:3: hosts[0].levels[0].devices: has 0 devices; a level has 1 to 8`},
		{"nine devices", "levels: [{devices: [" + many(9, "{}") + "]}]", `:3: hosts[0].levels[0].devices: has 9 devices`},
		{"nine levels", "levels: [" + many(9, "{}") + "]", `:3: hosts[0].levels: has 9 levels; 8 is the most`},
		{"an empty device", "levels: [{devices: [{}]}]", `:3: hosts[0].levels[0].devices[0]: `},
		{"a device twice in a level", "levels:\n  - devices:\n    - {" + device + "}\n    - {" + device + "}", `:6: hosts[0].levels[0].devices[1]: the same device stands in this level already`},
		{"a BMC by two drivers in a level", "levels:\n  - devices:\n    - {" + device + "}\n    - {driver: bmclib, " + device + "}", `:6: hosts[0].levels[0].devices[1]: the same device`},
		{"a device again in the next level", "levels:\n  - devices: [{" + device + "}]\n  - devices: [{" + device + "}]", `:5: hosts[0].levels[1].devices[0]: levels[0] has this device with the same driver already`},
		{"an outlet twice in a level", "levels:\n  - devices:\n    - {driver: fence-agent, agent: fence_apc, address: pdu, parameters: {plug: 1}}\n    - {driver: fence-agent, agent: fence_apc_snmp, address: \"pdu:161\", parameters: {plug: 1}}",
			`:6: hosts[0].levels[0].devices[1]: the same device`},

		{"bmclib and an address", "bmc: {" + device + ", driver: bmclib, provider: gofish}", `:3: hosts[0].bmc.provider: "gofish" cannot drive the address ipmi://192.0.2.1:623; use ipmitool`},
		{"an unknown provider", "bmc: {address: \"redfish://h\", username: u, passwordFile: p, driver: bmclib, provider: gofsh}", `hosts[0].bmc.provider: "gofsh" cannot drive the address https://h:443; use gofish, dell, openbmc, asrockrack (did you mean gofish?)`},
		{"a provider without bmclib", "bmc:\n    provider: gofish\n    address: redfish://h\n    username: u\n    passwordFile: p", `:4: hosts[0].bmc.provider: is for driver bmclib`},
		{"an agent without the driver", "bmc: {" + device + ", agent: fence_apc}", `:3: hosts[0].bmc: agent, parameters and secretParameters are for driver fence-agent`},
		{"a long name for IPMI", "bmc: {address: 192.0.2.1, passwordFile: p, username: " + strings.Repeat("u", 17) + "}", `:3: hosts[0].bmc.username: is longer than the 16 bytes of IPMI`},
		{"an address's line", "bmc:\n    username: u\n    passwordFile: p\n    address: bmc1:623", `:6: hosts[0].bmc.address: BMC address bmc1:623: a name with a port needs a scheme; write ipmi://bmc1:623`},

		// bmc.Device.Refused
		{"a list of plugs", agent("    parameters:\n      plug: 1,2"), `:8: hosts[0].bmc.parameters.plug: plug "1,2" of `},
		{"a machine by its position", "bmc: {driver: fence-agent, agent: fence_redfish, parameters: {plug: 1}}", `:3: hosts[0].bmc.parameters: fence_redfish without systems_uri`},
		{"a pin of bmclib", "bmc: {address: \"redfish://h\", username: u, passwordFile: p, driver: bmclib, tls: {pinSHA256: " + strings.Repeat("a", 64) + "}}", `:3: hosts[0].bmc.tls.pinSHA256: driver bmclib does not check`},
		{"openbmc at another port", "bmc: {address: \"redfish://h:8443\", username: u, passwordFile: p, driver: bmclib, provider: openbmc}", `:3: hosts[0].bmc.address: provider openbmc asks only port 443, not 8443`},

		{"no agent", "bmc: {driver: fence-agent, address: pdu}", `:3: hosts[0].bmc: agent is missing`},
		{"an agent with a path", "bmc: {driver: fence-agent, agent: /usr/sbin/fence_apc}", `:3: hosts[0].bmc.agent: "/usr/sbin/fence_apc" is not the name of a fence agent`},
		{"an agent that is none", "bmc: {driver: fence-agent, agent: reboot}", `:3: hosts[0].bmc.agent: "reboot" is not the name of a fence agent`},
		{"an agent's address", "bmc: {driver: fence-agent, agent: fence_apc, address: \"ssh://pdu\"}", `:3: hosts[0].bmc.address: address ssh://pdu`},
		{"two passwords", agent("    secret: a/b\n    passwordFile: p"), `:3: hosts[0].bmc: needs one of passwordFile, credential and secret, not 2`},
		{"cipher suites", agent("    cipherSuites: [3]"), `:7: hosts[0].bmc.cipherSuites: is not for driver fence-agent`},
		{"a BMC key of an agent", agent("    kgFile: f"), `:7: hosts[0].bmc.kgFile: is not for driver fence-agent; write secretParameters: {hexadecimal_kg: PATH}`},
		{"a BMC key that stands there", agent("    parameters: {hexadecimal_kg: canary}"), `:7: hosts[0].bmc.parameters.hexadecimal_kg: is a secret`},
		{"a BMC key of a Redfish service", "bmc: {address: \"redfish://h\", username: u, passwordFile: p, kgFile: f}", `:3: hosts[0].bmc.kgFile: is only for driver ipmi`},
		{"a BMC key of ipmitool", "bmc: {address: h, username: u, passwordFile: p, driver: bmclib, kgFile: f}", `:3: hosts[0].bmc.kgFile: is only for driver ipmi`},
		{"TLS", agent("    tls: {insecureSkipVerify: true}"), `:7: hosts[0].bmc.tls: is not for driver fence-agent`},
		{"a provider", agent("    provider: gofish"), `:7: hosts[0].bmc.provider: is for driver bmclib`},
		{"a list of parameters", agent("    parameters: [a]"), `:7: hosts[0].bmc.parameters: keys with values is needed here, not a list`},
		{"a list for a parameter", agent("    parameters: {plug: [1]}"), `:7: hosts[0].bmc.parameters.plug: text is needed here, not a list`},
		{"a parameter without a value", agent("    parameters: {plug: }"), `:7: hosts[0].bmc.parameters.plug: text is needed here, not nothing`},
		{"a parameter twice", agent("    parameters:\n      plug: 1\n      plug: 2"), `:9: hosts[0].bmc.parameters.plug: duplicate key`},
		{"a parameter of two lines", agent("    parameters: {plug: \"1\\naction=on\"}"), `:7: hosts[0].bmc.parameters.plug: must be one line`},
		{"a name of two lines", agent("    parameters: {\"plug\\nip\": 1}"), `:7: hosts[0].bmc.parameters: "plug\nip" is not the name of a parameter`},
		{"a name with an equals sign", agent("    parameters: {\"a=b\": 1}"), `:7: hosts[0].bmc.parameters: "a=b" is not the name of a parameter`},
		{"plug and port", agent("    parameters: {plug: 1, port: 2}"), `:7: hosts[0].bmc.parameters.port: is the older name of plug`},
		{"an alias", agent("    parameters: {plug: &a 1, ssh: *a}"), `:7: hosts[0].bmc.parameters.ssh: text is needed here, not an alias`},
		{"too many parameters", agent("    parameters: {" + manyParameters(65) + "}"), `:7: hosts[0].bmc.parameters: has more than 64`},
		{"an empty file of a secret", agent("    secretParameters: {community: \"\"}"), `:7: hosts[0].bmc.secretParameters.community: must not be empty`},
		{"a secret that stands there", agent("    parameters: {community: canary}"), `:7: hosts[0].bmc.parameters.community: is a secret; write secretParameters: {community: PATH}`},
		{"a parameter in both", agent("    parameters: {x: 1}\n    secretParameters: {x: f}"), `:8: hosts[0].bmc.secretParameters.x: stands in parameters, too`},
		{"the password as a parameter", agent("    secretParameters: {password: f}"), `:7: hosts[0].bmc.secretParameters.password: write passwordFile`},
	} {
		t.Run(c.name, func(t *testing.T) {
			hosts, dir, err := loadFiles(t, []string{"prod"}, map[string]string{"a.yaml": "hosts:\n- node: a\n  " + c.text + "\n"})
			require.Error(t, err)
			require.ErrorContains(t, err, filepath.Join(dir, "a.yaml"))
			require.ErrorContains(t, err, c.want)
			require.NotContains(t, err.Error(), "canary")
			require.Empty(t, hosts)
			if c.name != "an empty device" {
				require.NotContains(t, err.Error(), "\n", "one mistake, one error")
			}
		})
	}
}

func manyParameters(n int) string {
	var list []string
	for i := range n {
		list = append(list, fmt.Sprintf("p%d: 1", i))
	}
	return strings.Join(list, ", ")
}

// What an entry must not say to an agent, by each of its names.
func TestRefusedParameters(t *testing.T) {
	for _, name := range []string{
		"action", "option", "ip", "ipaddr", "ipport", "port_as_ip", "port-as-ip", "username", "login", "password", "passwd",
		"password_script", "passwd-script", "snmp_priv_passwd_script", "debug", "debug_file", "verbose",
		"missing_as_off", "missing-as-off", // I1
		"help", "version", "community", "snmp_priv_passwd", "snmp-priv-passwd", "token", "secret_key", "apikey",
	} {
		text := "hosts: [{node: a, bmc: {driver: fence-agent, agent: fence_x, parameters: {" + name + ": 1}}}]\n"
		_, _, err := loadFiles(t, []string{"prod"}, map[string]string{"a.yaml": text})
		require.ErrorContains(t, err, "hosts[0].bmc.parameters."+name+": ", name)
	}
}

// I9: an outlet that two hosts share is refused, however they reach it.
func TestSharedOutlets(t *testing.T) {
	outlet := func(agent, address, parameters string) string {
		return fmt.Sprintf("{driver: fence-agent, agent: %s, address: %q, parameters: {%s}}", agent, address, parameters)
	}
	native := func(address string) string {
		return fmt.Sprintf("{address: %q, username: u, passwordFile: p}", address)
	}
	for _, c := range []struct{ name, a, b, want string }{
		{"one outlet", outlet("fence_apc", "pdu", "plug: 7"), outlet("fence_apc", "pdu", "plug: 7"), "the outlet fence_apc://pdu#7"},
		{"two outlets", outlet("fence_apc", "pdu", "plug: 7"), outlet("fence_apc", "pdu", "plug: 8"), ""},
		{"the older name", outlet("fence_apc", "pdu", "plug: 7"), outlet("fence_apc", "pdu", "port: 7"), "the outlet"},
		{"two PDUs", outlet("fence_apc", "pdu1", "plug: 7"), outlet("fence_apc", "pdu2", "plug: 7"), ""},
		{"two agents", outlet("fence_apc", "pdu:22", "plug: 7"), outlet("fence_apc_snmp", "PDU:161", "plug: 7"), "the outlet"},
		{"two switches", outlet("fence_apc", "pdu", "plug: 7, switch: 1"), outlet("fence_apc", "pdu", "plug: 7, switch: 2"), ""},
		{"a switch written in both ways", outlet("fence_apc", "pdu", "plug: 7, switch: 1"), outlet("fence_apc", "pdu", "plug: \"1:7\""), "the outlet"},
		{"without an outlet beside one", outlet("fence_apc", "pdu", "plug: 7"), outlet("fence_apc", "pdu", "ssh: 1"), "without a plug"},
		{"one beside without an outlet", outlet("fence_apc", "pdu", "ssh: 1"), outlet("fence_apc", "pdu", "plug: 7"), "the outlet"},
		{"machines by UUID", outlet("fence_vmware_rest", "vc", "uuid: a"), outlet("fence_vmware_rest", "vc", "uuid: b"), ""},
		{"two simulators", outlet("fence_apc", "127.0.0.1:2301", "plug: 7"), outlet("fence_apc", "127.0.0.1:2302", "plug: 7"), ""},
		{"no address, one machine", "{driver: fence-agent, agent: fence_xvm, parameters: {port: a}}", "{driver: fence-agent, agent: fence_xvm, parameters: {port: a}}", "the outlet"},
		{"no address, two agents", "{driver: fence-agent, agent: fence_xvm, parameters: {port: a}}", "{driver: fence-agent, agent: fence_virt, parameters: {port: a}}", ""},
		{"an agent at another's BMC", native("ipmi://192.0.2.1"), outlet("fence_ipmilan", "192.0.2.1", "lanplus: 1"), "the device fence_ipmilan://192.0.2.1, without a plug,"},
		{"a system by agent and natively", native("redfish://192.0.2.1/redfish/v1/Systems/a"), outlet("fence_redfish", "192.0.2.1", "systems_uri: /redfish/v1/Systems/a"), "the outlet"},
		{"a system by two agents' names", outlet("fence_redfish", "192.0.2.1", "plug: a, systems_uri: /redfish/v1/Systems/1"), outlet("fence_redfish", "192.0.2.1", "plug: b, systems-uri: /redfish/v1/Systems/1/"), "the outlet"},
		{"two systems by an agent", outlet("fence_redfish", "192.0.2.1", "systems_uri: /redfish/v1/Systems/1"), outlet("fence_redfish", "192.0.2.1", "systems_uri: /redfish/v1/Systems/2"), ""},
		{"another system by an agent", native("redfish://192.0.2.1/redfish/v1/Systems/a"), outlet("fence_redfish", "192.0.2.1", "systems_uri: /redfish/v1/Systems/b"), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, format := range []string{
				"hosts:\n- {node: a, bmc: %s}\n- {node: b, bmc: %s}\n",
				"hosts: [{node: a, bmc: %s}, {node: b, bmc: %s}]\n", // on one line
				"hosts:\n- {node: a, bmc: %s}\n- node: b\n  levels: [{devices: [{address: 198.51.100.1, username: u, passwordFile: p}]}, {devices: [%s]}]\n",
			} {
				hosts, dir, err := loadFiles(t, []string{"prod"}, map[string]string{"a.yaml": fmt.Sprintf(format, c.a, c.b)})
				if c.want == "" {
					require.NoError(t, err)
					require.Len(t, hosts, 2)
					continue
				}
				require.ErrorContains(t, err, dir+"/a.yaml:")
				require.ErrorContains(t, err, c.want)
				require.ErrorContains(t, err, "of node b is also at "+dir+"/a.yaml:")
				require.Empty(t, hosts)
			}
		})
	}
}

// I9: two entries that could mean one host are refused, both places named.
func TestDuplicateHosts(t *testing.T) {
	const uuid, swapped, reversed = "4c4c4544-0042-3510-8052-b4c04f4d3332", "44454c4c-4200-1035-8052-b4c04f4d3332", "32334d4f-c0b4-5280-1035-42004445" + "4c4c"
	type entry struct{ node, cluster, address, uuid string }
	for _, c := range []struct {
		name string
		a, b entry
		want string // "" = both are accepted
	}{
		{"one node", entry{"n", "prod", "192.0.2.1", ""}, entry{"n", "prod", "192.0.2.2", ""}, "node n of cluster prod"},
		{"one name in two clusters", entry{"n", "prod", "192.0.2.1", ""}, entry{"n", "lab", "192.0.2.2", ""}, ""},
		{"one address", entry{"a", "prod", "192.0.2.1", ""}, entry{"b", "prod", "ipmi://192.0.2.1:623", ""}, "the BMC ipmi://192.0.2.1:623 of node b"},
		{"one address in two clusters", entry{"a", "prod", "192.0.2.1", ""}, entry{"b", "lab", "192.0.2.1", ""}, "the BMC"},
		{"one address, two protocols", entry{"a", "prod", "ipmi://192.0.2.1", ""}, entry{"b", "prod", "redfish://192.0.2.1/redfish/v1/Systems/1", ""}, "the BMC"},
		{"the same, the other way", entry{"a", "prod", "redfish://192.0.2.1/redfish/v1/Systems/1", ""}, entry{"b", "prod", "ipmi://192.0.2.1", ""}, "the BMC"},
		{"one name in capitals", entry{"a", "prod", "bmc1.example.com", ""}, entry{"b", "prod", "BMC1.example.com", ""}, "the BMC"},
		{"one IPv6 address, two texts", entry{"a", "prod", "ipmi://[2001:db8::1]", ""}, entry{"b", "prod", "ipmi://[2001:db8:0::1]", ""}, "the BMC"},
		{"two ports", entry{"a", "prod", "ipmi://127.0.0.1:6231", ""}, entry{"b", "prod", "ipmi://127.0.0.1:6232", ""}, ""},
		{"two systems of one service", entry{"a", "prod", "redfish://192.0.2.1/redfish/v1/Systems/1", ""}, entry{"b", "prod", "redfish://192.0.2.1/redfish/v1/Systems/2", ""}, ""},
		{"one system of one service", entry{"a", "prod", "redfish://192.0.2.1/redfish/v1/Systems/1", ""}, entry{"b", "prod", "redfish://192.0.2.1/redfish/v1/Systems/1/", ""}, "the BMC"},
		{"a named and an unnamed system", entry{"a", "prod", "redfish://192.0.2.1/redfish/v1/Systems/1", ""}, entry{"b", "prod", "redfish://192.0.2.1", ""}, "the BMC"},
		{"one UUID", entry{"a", "prod", "192.0.2.1", uuid}, entry{"b", "lab", "192.0.2.2", strings.ToUpper(uuid)}, "the UUID"},
		{"one UUID, fields swapped", entry{"a", "prod", "192.0.2.1", uuid}, entry{"b", "prod", "192.0.2.2", swapped}, "the UUID"},
		{"one UUID, reversed", entry{"a", "prod", "192.0.2.1", uuid}, entry{"b", "prod", "192.0.2.2", reversed}, "the UUID"},
		{"two UUIDs", entry{"a", "prod", "192.0.2.1", uuid}, entry{"b", "prod", "192.0.2.2", "4c4c4544-0042-3510-8052-b4c04f4d3333"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := func(e entry) string {
				return fmt.Sprintf("hosts:\n- {node: %s, cluster: %s, uuid: %q, bmc: {address: %q, username: u, passwordFile: p}}\n", e.node, e.cluster, e.uuid, e.address)
			}
			hosts, dir, err := loadFiles(t, []string{"prod", "lab"}, map[string]string{"a.yaml": text(c.a), "b.yaml": text(c.b)})
			if c.want == "" {
				require.NoError(t, err)
				require.Len(t, hosts, 2)
				return
			}
			require.ErrorContains(t, err, dir+"/b.yaml:2: ")
			require.ErrorContains(t, err, c.want)
			require.ErrorContains(t, err, "is also at "+dir+"/a.yaml:2")
			require.Empty(t, hosts)
		})
	}
}

// An entry in which something is wrong is refused for the host that it names, and the others serve. Where nobody can tell
// whose an entry is, it may be anybody's: that is Unread.
func TestReadHostsRefusesEntries(t *testing.T) {
	const good = "- {node: good, cluster: prod, bmc: {address: 192.0.2.1, username: u, passwordFile: p}}\n"
	const rest = "bmc: {address: 192.0.2.2, username: u, passwordFile: p}}\n"
	for name, c := range map[string]struct {
		text    string
		refused []string // names
		unread  bool
	}{
		"nothing":                     {"", nil, false},
		"an unknown key":              {"- {node: a, cluster: prod, protect: true, " + rest, []string{"prod/a"}, false},
		"no BMC":                      {"- {node: a, cluster: prod}\n", []string{"prod/a"}, false},
		"a Machine":                   {"- {machine: ns/m, cluster: prod, uuid: x, " + rest, []string{"prod/machine/ns/m"}, false},
		"a Node and a Machine":        {"- {node: a, machine: ns/m, cluster: prod, " + rest, []string{"prod/a", "prod/machine/ns/m"}, false},
		"no cluster":                  {"- {node: a, " + rest, []string{"prod/a", "lab/a"}, false},
		"a cluster that is not there": {"- {node: a, cluster: lap, " + rest, []string{"prod/a", "lab/a"}, false},
		"a BMC that two have":         {"- {node: a, cluster: lab, bmc: {address: 192.0.2.1, username: u, passwordFile: p}}\n", []string{"prod/good", "lab/a"}, false},
		"a refused one has it, too":   {"- {node: a, cluster: lab, x: y, bmc: {address: 192.0.2.1, username: u, passwordFile: p}}\n", []string{"prod/good", "lab/a"}, false},
		"one name twice":              {"- {node: good, cluster: prod, " + rest, []string{"prod/good", "prod/good"}, false},
		"three with a BMC":            {"- {node: a, cluster: lab, " + rest + "- {node: b, cluster: lab, " + rest + "- {node: c, cluster: lab, " + rest, []string{"lab/a", "lab/b", "lab/c"}, false},
		"one says not which system": {"- {node: a, cluster: lab, bmc: {address: redfish://192.0.2.3/redfish/v1/Systems/1, username: u, passwordFile: p}}\n" +
			"- {node: b, cluster: lab, bmc: {address: redfish://192.0.2.3, username: u, passwordFile: p}}\n" +
			"- {node: c, cluster: lab, bmc: {address: redfish://192.0.2.3/redfish/v1/Systems/2, username: u, passwordFile: p}}\n", []string{"lab/a", "lab/b", "lab/c"}, false},
		"no name":                       {"- {cluster: prod, " + rest, nil, true},
		"a name with a slip in its key": {"- {nod: a, cluster: prod, " + rest, nil, true},
		"a bad name":                    {"- {node: A_b, cluster: prod, " + rest, nil, true},
		"a name twice in one entry":     {"- {node: a, node: b, cluster: prod, " + rest, nil, true},
		"two clusters in one entry":     {"- {node: a, cluster: prod, cluster: lab, " + rest, nil, true},
		"an empty entry":                {"-\n", nil, true},
		"a word":                        {"- a\n", nil, true},
		"an unknown key beside":         {"host: []\n", nil, true},
		"no YAML":                       {"- {\n", nil, true},
		"a tab":                         {"\t- {node: a}\n", nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			file := write(t, map[string]string{"hosts.d/a.yaml": "hosts:\n" + good + c.text})
			cfg := Default()
			cfg.File, cfg.Hosts = file, filepath.Join(filepath.Dir(file), "hosts.d")
			cfg.Clusters = []Cluster{{Name: "prod"}, {Name: "lab"}}
			h := ReadHosts(cfg)
			var refused []string
			for _, e := range h.Entries {
				if e.Refused != nil {
					refused = append(refused, e.Name)
					require.Contains(t, e.Refused.Error(), "a.yaml:")
				}
			}
			require.ElementsMatch(t, c.refused, refused)
			require.Equal(t, c.unread, h.Unread != nil, "%v", h.Unread)
			_, err := LoadHosts(cfg)
			require.Equal(t, c.text != "", err != nil, "what is refused is an error of --check-config")
		})
	}
}

// A slip in the plug of one host does not refuse every other outlet of the PDU.
func TestRefusedEntryLeavesOtherOutlets(t *testing.T) {
	const outlet = "hosts:\n- {node: %s, bmc: {driver: fence-agent, agent: fence_apc, address: pdu, username: u, passwordFile: p, parameters: {%s}}}\n"
	file := write(t, map[string]string{
		"hosts.d/a.yaml": strings.NewReplacer("%s, bmc", "a, bmc", "{%s}", "{plug: 1}").Replace(outlet),
		"hosts.d/b.yaml": strings.NewReplacer("%s, bmc", "b, bmc", "{%s}", "{plug: [2]}").Replace(outlet),
	})
	cfg := Default()
	cfg.File, cfg.Hosts, cfg.Clusters = file, filepath.Join(filepath.Dir(file), "hosts.d"), []Cluster{{Name: "prod"}}
	h := ReadHosts(cfg)
	require.NoError(t, h.Unread)
	require.Len(t, h.Entries, 2)
	require.NoError(t, h.Entries[0].Refused)
	require.Error(t, h.Entries[1].Refused)
}

// What concerns some hosts or clusters keeps no daemon down; every other error does.
func TestWhole(t *testing.T) {
	one, two := errors.New("fenced.yaml:1: a"), errors.New("hosts.d/a.yaml:1: b")
	require.NoError(t, Whole(nil))
	require.NoError(t, Whole(errors.Join(InPart{two}, InPart{one})))
	require.EqualError(t, Whole(errors.Join(one, errors.Join(InPart{two}, one))), "fenced.yaml:1: a\nfenced.yaml:1: a")

	file := write(t, map[string]string{"fenced.yaml": "clusters: [{name: prod, kubeconfig: kc}]\nhosts: hosts.d\n", "kc": "", "hosts.d/a.yaml": "hosts: [{node: a}]\n"})
	_, err := Check(file, func(Config) ([]string, error) { return nil, InPart{two} })
	require.ErrorContains(t, err, "a.yaml:1: hosts[0]: bmc is missing")
	require.ErrorContains(t, err, two.Error())
	require.NoError(t, Whole(err))
}

// A refused entry names the devices of each power level together: a run that began with them brings all of them back. // I20
func TestRefusedEntryKeepsItsLevels(t *testing.T) {
	const outlet = "{driver: fence-agent, agent: fence_apc, address: pdu, username: u, passwordFile: p, parameters: {plug: %s}}"
	file := write(t, map[string]string{"hosts.d/a.yaml": "hosts:\n- {node: a, x: y, levels: [{devices: [" + strings.Replace(outlet, "%s", "1", 1) + ", " + strings.Replace(outlet, "%s", "2", 1) + "]}]}\n"})
	cfg := Default()
	cfg.File, cfg.Hosts, cfg.Clusters = file, filepath.Join(filepath.Dir(file), "hosts.d"), []Cluster{{Name: "prod"}}
	h := ReadHosts(cfg)
	require.Len(t, h.Entries, 1)
	require.ErrorContains(t, h.Entries[0].Refused, "unknown key")
	require.Len(t, h.Entries[0].Levels, 1)
	require.Len(t, h.Entries[0].Levels[0].Devices, 2)
	require.Len(t, h.Entries[0].ReadPasswords(t.Context()).Levels[0].Devices, 2)
}

// The hosts that a check has read are used, unless what they mean is another now: then they are read again.
func TestHostsOfACheck(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.yaml"), []byte("hosts: [{node: a, bmc: {address: 192.0.2.1, username: u, secret: ns/s}}]"), 0o600))
	c := Config{File: "fenced.yaml", Hosts: dir, Clusters: []Cluster{{Name: "prod"}}, Guards: Guards{Identity: "required"}}
	read := ReadHosts(c)
	require.Equal(t, "prod/a", read.Entries[0].Name)
	require.NoError(t, os.Remove(filepath.Join(dir, "a.yaml")))
	require.Len(t, read.For(c).Entries, 1, "the file is not read again")
	for what, change := range map[string]func(*Config){
		"directory": func(c *Config) { c.Hosts = t.TempDir() },
		"clusters":  func(c *Config) { c.Clusters = append(slices.Clone(c.Clusters), Cluster{Name: "lab"}) },
		"identity":  func(c *Config) { c.Guards.Identity = "pinned" },
	} {
		other := c
		change(&other)
		require.Empty(t, read.For(other).Entries, what)
	}
}

// Files are read at the same time. Entries, errors and warnings are in the order of the files all the same.
func TestFilesAreInOrder(t *testing.T) {
	files := map[string]string{"fenced.yaml": "clusters: [{name: prod, kubeconfig: kc}]\nhosts: hosts.d\n", "kc": ""}
	var names, wrong, missing []string
	for i := range 40 {
		name := fmt.Sprintf("n-%02d", i)
		text := fmt.Sprintf("hosts: [{node: %s, bmc: {address: 192.0.2.%d, username: u, passwordFile: /nowhere}}]\n", name, i)
		names, missing = append(names, name), append(missing, fmt.Sprintf("%02d.yaml:1: hosts[0].bmc.passwordFile", i))
		if i%3 == 0 {
			text += "x: y\n"
			wrong = append(wrong, fmt.Sprintf("%02d.yaml:2: x", i))
		}
		files[fmt.Sprintf("hosts.d/%02d.yaml", i)] = text
	}
	found := func(lines, want []string) (all []string) {
		for _, l := range lines {
			for _, w := range want {
				if strings.Contains(l, w) {
					all = append(all, w)
				}
			}
		}
		return all
	}
	file := write(t, files)
	checked, err := CheckAndRead(file, Hosts{}, func(Config) ([]string, error) { return nil, nil })
	var read []string
	for _, e := range checked.Hosts.Entries {
		read = append(read, e.Node)
	}
	require.Equal(t, names, read)
	require.Equal(t, wrong, found(strings.Split(err.Error(), "\n"), wrong))
	require.Equal(t, missing, found(checked.Warnings, missing))
}

// What is read again is the same whether or not it could be taken over from what was read before: entries, errors and warnings. Only the entries of
// a file that changed are new ones. A password file is looked at each time.
func TestHostsAreTakenOver(t *testing.T) {
	dir := filepath.Dir(write(t, map[string]string{
		"hosts.d/a.yaml": "hosts: [{node: a, bmc: {address: 192.0.2.1, username: u, passwordFile: ../pw}}, {node: a2, bmc: {address: 192.0.2.11, username: u, secret: ns/s}}]\n",
		"hosts.d/b.yaml": "hosts: [{node: b, bmc: {address: 192.0.2.2, username: u, passwordFile: ../pw}}]\n",
		"hosts.d/c.yaml": "hosts: [{node: c, bmc: {address: 192.0.2.3, username: u, passwordFile: ../pw}}, {node: c2, x: y}]\n",
		"pw":             "secret",
	}))
	c := Config{File: "fenced.yaml", Hosts: filepath.Join(dir, "hosts.d"), Clusters: []Cluster{{Name: "prod"}}, Guards: Guards{Identity: "required"}}
	set := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	set("pw", "secret")
	before, _, _ := loadHosts(c, Hosts{}, true)
	for _, step := range []struct {
		what    string
		change  func()
		same    string // the names of the entries that are those of before
		refused string
		warned  int
	}{
		{"nothing has changed", func() {}, "a a2 b", "c2", 0},
		{"another file", func() {
			set("hosts.d/b.yaml", "hosts: [{node: b, protected: true, bmc: {address: 192.0.2.2, username: u, passwordFile: ../pw}}]\n")
		}, "a a2", "c2", 0},
		{"a BMC that an entry of another file has", func() {
			set("hosts.d/b.yaml", "hosts: [{node: b, bmc: {address: 192.0.2.1, username: u, passwordFile: ../pw}}]\n")
		}, "a2", "a b c2", 0},
		{"they still have it", func() {}, "a2", "a b c2", 0},
		{"it has another again", func() {
			set("hosts.d/b.yaml", "hosts: [{node: b, bmc: {address: 192.0.2.2, username: u, passwordFile: ../pw}}]\n")
		}, "a2", "c2", 0},
		{"everybody may read the password", func() { require.NoError(t, os.Chmod(filepath.Join(dir, "pw"), 0o644)) }, "", "c2", 3},
		{"nobody else may", func() { require.NoError(t, os.Chmod(filepath.Join(dir, "pw"), 0o600)) }, "a a2 b", "c2", 0},
		{"the password is too long", func() { set("pw", "a-password-of-28-bytes-is-it") }, "", "c2", 3},
		{"and is right again", func() { set("pw", "secret") }, "a a2 b", "c2", 0},
		{"a slip in a file", func() { set("hosts.d/a.yaml", "hosts: [{node: a, y: z}]\n") }, "b", "a c2", 0},
		{"another identity", func() { c.Guards.Identity = "pinned" }, "", "a c2", 0},
		{"another cluster", func() { c.Clusters = append(c.Clusters, Cluster{Name: "lab"}) }, "", "a a b b c c c2 c2", 0}, // none says which it means
		{"a file is gone", func() { require.NoError(t, os.Remove(filepath.Join(dir, "hosts.d/a.yaml"))) }, "", "b b c c c2 c2", 0},
	} {
		step.change()
		anew, warned, wrong := loadHosts(c, Hosts{}, true)
		again, warnings, errs := loadHosts(c, before, true)
		require.Equal(t, anew, again, step.what)
		require.Equal(t, warned, warnings, step.what)
		require.Equal(t, wrong, errs, step.what)
		require.Len(t, warnings, step.warned, step.what)
		var same, refused []string
		for _, e := range again.Entries {
			if slices.Contains(before.Entries, e) {
				same = append(same, e.Of())
			}
			if e.Refused != nil {
				refused = append(refused, e.Of())
			}
		}
		require.Equal(t, step.same, strings.Join(same, " "), step.what)
		require.Equal(t, step.refused, strings.Join(refused, " "), step.what)
		before = again
	}
}

// BenchmarkReadHosts reads a hundred thousand entries, with the check of their passwords, as each start does, and as a reload does that finds the
// files as they were.
func BenchmarkReadHosts(b *testing.B) {
	dir, password := b.TempDir(), filepath.Join(b.TempDir(), "password")
	require.NoError(b, os.WriteFile(password, []byte("secret"), 0o600))
	const files, each = 100, 1000
	for i := range files {
		text := []byte("hosts:\n")
		for j := range each {
			text = fmt.Appendf(text, "  - node: n-%03d-%04d\n    bmc: {address: \"ipmi://10.1.%d.%d:%d\", username: fence, passwordFile: %s}\n", i, j, i, j%250, 1000+j, password)
		}
		require.NoError(b, os.WriteFile(filepath.Join(dir, fmt.Sprintf("%03d.yaml", i)), text, 0o600))
	}
	c := Config{File: "fenced.yaml", Hosts: dir, Clusters: []Cluster{{Name: "prod"}}, Guards: Guards{Identity: "required"}}
	before := liveHeap()
	var hosts Hosts
	read := func(b *testing.B, known func() Hosts) {
		for b.Loop() {
			var errs []error
			hosts, _, errs = loadHosts(c, known(), true)
			require.Empty(b, errs)
		}
		require.Len(b, hosts.Entries, files*each)
		b.ReportMetric(float64(liveHeap()-before)/files/each, "kept-B/host")
	}
	b.Run("start", func(b *testing.B) { read(b, func() Hosts { return Hosts{} }) })
	b.Run("reload", func(b *testing.B) { read(b, func() Hosts { return hosts }) })
	runtime.KeepAlive(hosts)
}

func liveHeap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
