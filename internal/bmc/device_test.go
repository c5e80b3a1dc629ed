package bmc

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// I9: what names the outlet is in the key, however the agent calls it.
func TestAgentKeys(t *testing.T) {
	for _, c := range []struct {
		parameters map[string]string
		key, text  string
	}{
		{nil, "pdu", "fence_x://pdu"},
		{map[string]string{"ssh": "1"}, "pdu", "fence_x://pdu"},
		{map[string]string{"plug": "7"}, "pdu 7", "fence_x://pdu#7"},
		{map[string]string{"port": "7"}, "pdu 7", "fence_x://pdu#7"},
		{map[string]string{"uuid": "u"}, "pdu u", "fence_x://pdu#u"},
		{map[string]string{"plug": "7", "uuid": "u"}, "pdu 7", "fence_x://pdu#7"},
		{map[string]string{"plug": "7", "switch": "2"}, "pdu 2:7", "fence_x://pdu#2:7"},
		{map[string]string{"switch": "2"}, "pdu", "fence_x://pdu"},
		{map[string]string{"plug": "7", "systems_uri": "/s/1"}, "pdu 1", "fence_x://pdu#/s/1"},
		{map[string]string{"systems-uri": "/s/1"}, "pdu 1", "fence_x://pdu#/s/1"},
	} {
		d := Device{Driver: DriverFenceAgent, Agent: "fence_x", Endpoint: Endpoint{Host: "PDU."}, Parameters: c.parameters}
		assert.Equal(t, c.key, d.Key(), c.parameters)
		d.Endpoint.Host = "pdu"
		assert.Equal(t, c.text, d.String(), c.parameters)
	}
}

// I9: one box is one service, whoever asks it, and one machine has one key.
func TestKeysAcrossDrivers(t *testing.T) {
	agent := func(name, host string, port int, parameters ...string) Device {
		d := Device{Driver: DriverFenceAgent, Agent: name, Endpoint: Endpoint{Host: host, Port: port}, Parameters: map[string]string{}}
		for i := 0; i < len(parameters); i += 2 {
			d.Parameters[parameters[i]] = parameters[i+1]
		}
		return d
	}
	native := func(address string) Device {
		e, err := ParseEndpoint(address)
		require.NoError(t, err)
		return Device{Driver: Driver(e.Protocol), Endpoint: e}
	}
	for name, same := range map[string]struct {
		key     string
		devices []Device
	}{
		"a BMC": {"192.0.2.1", []Device{
			native("ipmi://192.0.2.1"), native("ipmi://[::ffff:192.0.2.1]"), native("redfish://192.0.2.1"), agent("fence_ipmilan", "192.0.2.1", 0),
			agent("fence_ipmilan", "192.0.2.1", 623, "plug", "a"), agent("fence_idrac", "192.0.2.1", 0, "port", "b"),
			agent("fence_ilo4_ssh", "192.0.2.1", 22), agent("fence_redfish", "192.0.2.1", 443),
		}},
		"a system": {"192.0.2.1 a", []Device{
			native("redfish://192.0.2.1/redfish/v1/Systems/a"), native("redfish://192.0.2.1/redfish/v1/Systems/a/"),
			agent("fence_redfish", "192.0.2.1", 0, "systems_uri", "/redfish/v1/Systems/a/", "plug", "b"),
			agent("fence_redfish", "192.0.2.1", 443, "systems-uri", "/redfish/v1/Systems/a"),
			{Driver: DriverBMCLib, Endpoint: native("redfish://192.0.2.1/redfish/v1/Systems/a").Endpoint},
		}},
		"an outlet": {"pdu 7", []Device{
			agent("fence_apc", "pdu", 23, "plug", "7"), agent("fence_apc", "PDU.", 22, "port", "7"), agent("fence_apc_snmp", "pdu", 161, "plug", "7"),
			agent("fence_tripplite_snmp", "pdu", 0, "plug", "7"),
		}},
		"a satellite":              {"192.0.2.1 0x20", []Device{agent("fence_ipmilan", "192.0.2.1", 0, "target", "0x20", "plug", "a")}},
		"a cartridge":              {"192.0.2.1 c1", []Device{agent("fence_ilo_moonshot", "192.0.2.1", 0, "plug", "c1")}},
		"a machine in a folder":    {"vc /dc1/vm/a", []Device{agent("fence_vmware_soap", "vc", 443, "plug", "/dc1/vm/a")}},
		"a machine of no address":  {"fence_xvm a", []Device{agent("fence_xvm", "", 0, "port", "a")}},
		"a PDU at another port":    {"pdu port 2301 7", []Device{agent("fence_apc", "pdu", 2301, "plug", "7")}},
		"a BMC at another port":    {"192.0.2.1 port 6230", []Device{native("ipmi://192.0.2.1:6230"), agent("fence_ipmilan", "192.0.2.1", 6230)}},
		"a native one at SSH port": {"192.0.2.1 port 22", []Device{native("redfish://192.0.2.1:22")}},
	} {
		for _, d := range same.devices {
			assert.Equal(t, same.key, d.Key(), "%s: %s", name, d)
		}
	}
}
