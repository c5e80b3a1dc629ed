package bmc

import (
	"regexp"
	"strings"
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

// I8: an enrolment ends with whatever chose the machine.
func TestFingerprint(t *testing.T) {
	device := func() Device {
		return Device{Driver: DriverFenceAgent, Agent: "fence_lpar", Endpoint: Endpoint{Host: "hmc", Port: 22},
			Parameters: map[string]string{"plug": "node1", "managed": "a"}, Username: "u", Password: NewSecret("p"), SystemUUID: "s"}
	}
	was := device().Fingerprint()
	assert.Regexp(t, regexp.MustCompile("^[0-9a-f]{16}$"), was)
	for what, change := range map[string]func(*Device){
		"driver":            func(d *Device) { d.Driver = DriverBMCLib },
		"provider":          func(d *Device) { d.Provider = "gofish" },
		"agent":             func(d *Device) { d.Agent = "fence_hmc" },
		"protocol":          func(d *Device) { d.Endpoint.Protocol = ProtocolRedfish },
		"host":              func(d *Device) { d.Endpoint.Host = "hmc2" },
		"port":              func(d *Device) { d.Endpoint.Port = 2222 },
		"system":            func(d *Device) { d.Endpoint.System = "/redfish/v1/Systems/2" },
		"parameter":         func(d *Device) { d.Parameters["managed"] = "b" },
		"parameter more":    func(d *Device) { d.Parameters["target"] = "0x20" },
		"parameter less":    func(d *Device) { delete(d.Parameters, "managed") },
		"name and value":    func(d *Device) { d.Parameters = map[string]string{"plug": "node1,managed=a"} },
		"secret given":      func(d *Device) { d.SecretParameters = map[string]Secret{"community": NewSecret("c")} },
		"provider is agent": func(d *Device) { d.Provider, d.Agent = d.Agent, "" },
	} {
		d := device()
		change(&d)
		assert.NotEqual(t, was, d.Fingerprint(), what)
	}
	for what, change := range map[string]func(*Device){
		"user":           func(d *Device) { d.Username = "v" },
		"password":       func(d *Device) { d.Password = NewSecret("q") },
		"pinned UUID":    func(d *Device) { d.SystemUUID = "t" },
		"way of writing": func(d *Device) { d.Endpoint.Host = "HMC." },
		"trust":          func(d *Device) { d.TLS.InsecureSkipVerify = true },
	} {
		d := device()
		change(&d)
		assert.Equal(t, was, d.Fingerprint(), what)
	}
	none, empty := Device{}, Device{Parameters: map[string]string{}}
	assert.Equal(t, none.Fingerprint(), empty.Fingerprint())
}

// The name of an entry tells Nodes, Machines and BareMetalHosts apart.
func TestEntryName(t *testing.T) {
	for of, name := range map[string]string{"n-1": "c/n-1", "machine": "c/machine", "ns/m-1": "c/machine/ns/m-1", "machine/machine": "c/machine/machine/machine"} {
		assert.Equal(t, name, EntryName("c", of))
		cluster, back := EntryOf(name)
		assert.Equal(t, "c", cluster)
		assert.Equal(t, of, back)
	}
	for name, is := range map[string]bool{"c/machine/ns/m-1": true, "c/ns/m-1": false, "c/machine/m-1": false, "c/n-1": false, "c/machine": false} {
		assert.Equal(t, is, IsMachineEntry(name), name)
	}
}

func TestRefusedDevices(t *testing.T) {
	agent := func(name string, parameters map[string]string) Device {
		return Device{Driver: DriverFenceAgent, Agent: name, Parameters: parameters}
	}
	library := func(provider string, port int, plain bool) Device {
		return Device{Driver: DriverBMCLib, Provider: provider, Endpoint: Endpoint{Protocol: ProtocolRedfish, Host: "h", Port: port, Plain: plain}}
	}
	pinned := library("gofish", 443, false)
	pinned.TLS.PinSHA256 = strings.Repeat("0", 64)
	native := Device{Driver: DriverRedfish, TLS: pinned.TLS, Endpoint: Endpoint{Port: 8443}}
	for name, c := range map[string]struct {
		d        Device
		key, why string
	}{
		"one plug":                 {agent("fence_apc", map[string]string{"plug": "7"}), "", ""},
		"no plug":                  {agent("fence_ipmilan", nil), "", ""},
		"two plugs":                {agent("fence_apc", map[string]string{"plug": "1,2"}), "parameters.plug", "several outlets"},
		"two, by the older name":   {agent("fence_apc", map[string]string{"port": "1,2"}), "parameters.port", "several outlets"},
		"a comma in a name":        {agent("fence_vmware", map[string]string{"plug": "a,b", "plug_separator": ";"}), "", ""},
		"two, with their own sign": {agent("fence_apc", map[string]string{"plug": "1:2", "plug_separator": ":"}), "parameters.plug", "several outlets"},
		"a machine by position":    {agent("fence_redfish", map[string]string{"plug": "1"}), "parameters", "set the parameter systems_uri"},
		"a machine by its path":    {agent("fence_redfish", map[string]string{"systems_uri": "/redfish/v1/Systems/1"}), "", ""},
		"a pin of bmclib":          {pinned, "tls.pinSHA256", "tls.ca"},
		"openbmc elsewhere":        {library("openbmc", 8443, false), "address", "only port 443, not 8443"},
		"openbmc over http":        {library("openbmc", 8000, true), "address", "only port 80, not 8000"},
		"openbmc":                  {library("openbmc", 443, false), "", ""},
		"openbmc at port 80":       {library("openbmc", 80, true), "", ""},
		"gofish elsewhere":         {library("gofish", 8443, false), "", ""},
		"a native pin":             {native, "", ""},
	} {
		key, why := c.d.ConfigError()
		assert.Equal(t, c.key, key, name)
		assert.Contains(t, why, c.why, name)
		assert.Equal(t, c.key == "", why == "", name)
	}
}
