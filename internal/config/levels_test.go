package config

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
)

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
			{Driver: bmc.DriverFenceAgent, Endpoint: bmc.Endpoint{Host: "pdu-b"}, Agent: "fence_apc_snmp",
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
