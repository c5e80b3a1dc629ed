package bmc

import (
	"encoding/hex"
	"net"
	"net/netip"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fenced/fenced/test/law"
	"github.com/fenced/fenced/test/must"
)

const (
	asIs     = "4c4c4544-0051-4d10-8059-b4c04f563733"
	swapped  = "44454c4c-5100-104d-8059-b4c04f563733"
	reversed = "3337564f-c0b4-5980-104d-510044454c4c"
)

func TestUUIDsMatch(t *testing.T) {
	for _, c := range []struct {
		name, a, b string
		want       bool
	}{
		{"as is", asIs, asIs, true},
		{"first three fields swapped", asIs, swapped, true},
		{"fully reversed", asIs, reversed, true},
		{"upper case, no dashes, spaces around", asIs, " 4C4C454400514D108059B4C04F563733\n", true},
		{"one digit differs", asIs, "4c4c4544-0051-4d10-8059-b4c04f563734", false},
		{"swapped against reversed are not one step apart", swapped, reversed, false},
		{"only one field swapped", asIs, "44454c4c-0051-4d10-8059-b4c04f563733", false},
		{"empty", "", "", false},
		{"too short", asIs[:30], asIs[:30], false},
		{"too long", asIs + "00", asIs + "00", false},
		{"one is a placeholder with its fields swapped", "2020204f-c080-2080-2010-00004c4c4544", "44454c4c-0000-1020-8020-80c04f202020", false},
		{"not hex", "zc4c4544-0051-4d10-8059-b4c04f563733", "zc4c4544-0051-4d10-8059-b4c04f563733", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			assert.Equal(t, c.want, UUIDsMatch(c.a, c.b))
			assert.Equal(t, c.want, UUIDsMatch(c.b, c.a), "the other way round")
		})
	}
}

func TestPlaceholdersIdentifyNothing(t *testing.T) {
	for _, s := range []string{
		"00000000-0000-0000-0000-000000000000",
		"ffffffff-ffff-ffff-ffff-ffffffffffff",
		"FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF",
		"20202020-2020-2020-2020-202020202020",
		"00010203-0405-0607-0809-0a0b0c0d0e0f",
		"03020100-0504-0706-0809-0a0b0c0d0e0f", // counting, fields swapped
		"0f0e0d0c-0b0a-0908-0706-050403020100", // counting, reversed
		"01020304-0506-0708-090a-0b0c0d0e0f10",
		"03000200-0400-0500-0006-000700080009", // AMI
		"00020003-0004-0005-0006-000700080009",
		"12345678-1234-5678-9012-345678901234",
		"12345678-1234-1234-1234-123456789abc",
		"12345678-1234-5678-90ab-cddeefaabbcc",
		"fefefefe-fefe-fefe-fefe-fefefefefefe",
		"88888888-8888-8888-8888-878888888888",
		"00000000-0000-0000-0000-000000000001",
		"ffffffff-0000-0000-ffff-ffff00000000",
		"4c4c4544-00c1-ffff-ffff-ffffffffffff",
		"4c4c4544-0000-2010-8020-80c04f202020", // Dell, no service tag
		"44454c4c-0000-1020-8020-80c04f202020", // the same, fields swapped
		"537b004d-68b0-b59f-1410-8d5300b3b56a", // 6ab5b300-..., reversed
	} {
		assert.False(t, UsableUUID(s), s)
		assert.False(t, UUIDsMatch(s, s), s)
		assert.Empty(t, UUIDForms(s), s)
	}
	for _, s := range []string{
		asIs,
		"00000000-0000-0000-0000-002590c7c0ab", // Supermicro: zeros and the MAC address
		"76006b9c-c49c-0000-0000-000000000000", // ASRock: the MAC address and zeros
		"00000000-0000-00A0-0000-000000000001", // server profiles, numbered from a pool
		"00000000-0000-00A0-0000-000000000010",
		"00000000-0000-0000-0000-00000000000a",
	} {
		assert.True(t, UsableUUID(s), s)
	}
}

// TestUUIDLaw: exactly the three forms of a usable UUID match it, and UUIDForms
// gives them.
func TestUUIDLaw(t *testing.T) {
	law.Check(t, func(t *rapid.T) {
		a := hex.EncodeToString(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "a"))
		b := hex.EncodeToString(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "b"))
		if !UsableUUID(a) {
			return
		}
		forms := UUIDForms(a)
		if len(forms) != 3 || forms[0] != a {
			t.Fatalf("forms of %s: %v", a, forms)
		}
		for _, f := range forms {
			if !UUIDsMatch(a, f) || !UUIDsMatch(f, a) || !UsableUUID(f) {
				t.Fatalf("%s does not match its form %s", a, f)
			}
		}
		if UUIDsMatch(a, b) != (b == forms[0] || b == forms[1] || b == forms[2]) {
			t.Fatalf("%s against %s", a, b)
		}
	})
}

func TestSerialsMatch(t *testing.T) {
	for _, c := range []struct {
		name, a, b   string
		match, known bool
	}{
		{"the same", "J4ZQX13", "J4ZQX13", true, true},
		{"case and blanks", " j4zqx13\t", "J4Z QX13\n", true, true},
		{"a NUL at the end", "J4ZQX13\x00", "J4ZQX13", true, true},
		{"another", "J4ZQX13", "J4ZQX14", false, true},
		{"one is missing", "J4ZQX13", "", false, false},
		{"both are missing", "", "", false, false},
		{"one is a placeholder", "J4ZQX13", "Default string", false, false},
		{"both are the same placeholder", "To Be Filled By O.E.M.", "To Be Filled By O.E.M.", false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, pair := range [][2]string{{c.a, c.b}, {c.b, c.a}} {
				match, known := SerialsMatch(pair[0], pair[1])
				assert.Equal(t, c.match, match)
				assert.Equal(t, c.known, known)
			}
		})
	}
}

func TestPlaceholderSerials(t *testing.T) {
	for _, s := range []string{
		"", " ", "0", "1", "...", "N/A", "None", "NULL", "(null string)", "INVALID", "empty", "Unknow", "Unknown", "Not Specified", "Not Applicable",
		"To Be Filled By O.E.M.", "To be filled by OEM", "Default string", "Default_string", "System Serial Number", "SystemSerialNumb",
		"Chassis Serial Number", "Base Board Serial Number", "Serial Number xxxxxx", "SYS-1234567890", "SYS-9876543210", "SN-12345", "SN-1234567890",
		"MB-1234567890", "0000000", "0000000000", "1111111111", "xxxxxxxxxxx", "NNNNNNN", "EVAL", "0123456789", "12345", "123456789",
		"1234567890", "12345678901234567", "123456789000", "........", "--------", "\x00\x00\x00\x00", "OEM_Serial", "0123456789ABCDEF",
	} {
		assert.False(t, UsableSerial(s), "%q", s)
	}
	for _, s := range []string{"J4ZQX13", "CZ20430ABC", "SGH423XYZ1", "S415566X9C12345", "06AB123", "VMware-564da6d2", "SN-7F3K9", "12346789", "VM-1234"} {
		assert.True(t, UsableSerial(s), "%q", s)
	}
}

func TestNormalizeMAC(t *testing.T) {
	for in, want := range map[string]string{
		"3c:ec:ef:2c:f5:54":   "3c:ec:ef:2c:f5:54",
		" 3C-EC-EF-2C-F5-54 ": "3c:ec:ef:2c:f5:54",
		"3cec.ef2c.f554":      "3c:ec:ef:2c:f5:54",
		"3CECEF2CF554":        "3c:ec:ef:2c:f5:54",
		"":                    "",
		"3c:ec:ef:2c:f5":      "",
		"3c:ec:ef:2c:f5:54:0": "",
		"zc:ec:ef:2c:f5:54":   "",
		"00:00:00:00:00:00":   "",
		"ff:ff:ff:ff:ff:ff":   "",
		"01:00:5e:00:00:01":   "", // group
		"02:42:ac:11:00:02":   "", // locally administered
		"fe:54:00:12:34:56":   "",
		"00:a0:c6:00:00:00":   "", // nobody wrote the last three
		"b0:3a:f2:b6:05:9f":   "",
		"00:50:56:C0:00:08":   "",
		"00:50:56:12:34:56":   "00:50:56:12:34:56",
	} {
		got, ok := NormalizeMAC(in)
		assert.Equal(t, want, got, in)
		assert.Equal(t, want != "", ok, in)
	}
}

func TestMACsMatch(t *testing.T) {
	const a, b, docker = "3c:ec:ef:2c:f5:54", "3c:ec:ef:2c:f5:55", "02:42:ac:11:00:02"
	for _, c := range []struct {
		name         string
		x, y         []string
		match, known bool
	}{
		{"one in common", []string{a, b}, []string{strings.ToUpper(b)}, true, true},
		{"none in common", []string{a}, []string{b}, false, true},
		{"only a local one in common", []string{docker}, []string{docker}, false, false},
		{"a local one in common beside others", []string{docker, a}, []string{docker, b}, false, true},
		{"one side tells none", []string{a}, nil, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			match, known := MACsMatch(c.x, c.y)
			assert.Equal(t, c.match, match)
			assert.Equal(t, c.known, known)
		})
	}
}

// TestFactorLaw: what is not known never matches, and the order of the two
// sides does not matter.
func TestFactorLaw(t *testing.T) {
	serial := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"J4ZQX13", "j4z qx13", "None", "0000", "12345"}))
	law.Check(t, func(t *rapid.T) {
		a, b := serial.Draw(t, "a"), serial.Draw(t, "b")
		match, known := SerialsMatch(a, b)
		match2, known2 := SerialsMatch(b, a)
		if match && !known || match != match2 || known != known2 {
			t.Fatalf("%q against %q: %v %v, the other way %v %v", a, b, match, known, match2, known2)
		}
		if known != (UsableSerial(a) && UsableSerial(b)) {
			t.Fatalf("%q against %q: known %v", a, b, known)
		}
		mac, ok := NormalizeMAC(a)
		if again, okAgain := NormalizeMAC(mac); ok && (!okAgain || again != mac) {
			t.Fatalf("%q is not its own normal form", mac)
		}
	})
}

// Each factor that both sides know must agree; a placeholder is not known. // I8
func TestSameHardware(t *testing.T) {
	const nic, lom, foreign = "b8:ca:3a:00:00:01", "b8:ca:3a:00:00:02", "b8:ca:3a:00:00:99"
	for name, c := range map[string]struct {
		inventory, reported Hardware
		same, differs       bool
	}{
		"the serial number":              {Hardware{Serial: "ABC1234"}, Hardware{Serial: " abc 1234"}, true, false},
		"another serial number":          {Hardware{Serial: "ABC1234"}, Hardware{Serial: "ABC1235"}, false, true},
		"one side has none":              {Hardware{Serial: "ABC1234"}, Hardware{}, false, false},
		"To be filled by O.E.M.":         {Hardware{Serial: "To be filled by O.E.M."}, Hardware{Serial: "To be filled by O.E.M."}, false, false},
		"0123456789":                     {Hardware{Serial: "0123456789"}, Hardware{Serial: "0123456789"}, false, false},
		"None":                           {Hardware{Serial: "None"}, Hardware{Serial: "None"}, false, false},
		"all that it reports":            {Hardware{MACs: []string{nic, lom}}, Hardware{MACs: []string{"B8-CA-3A-00-00-01"}}, true, false},
		"some of what it has":            {Hardware{MACs: []string{nic, lom}}, Hardware{MACs: []string{nic}, SomeMACs: true}, false, false},
		"some, and the serial number":    {Hardware{Serial: "ABC1234", MACs: []string{nic}}, Hardware{Serial: "ABC1234", MACs: []string{nic}, SomeMACs: true}, true, false},
		"some of another machine":        {Hardware{MACs: []string{nic, lom}}, Hardware{MACs: []string{foreign}, SomeMACs: true}, false, true},
		"a card of another machine":      {Hardware{MACs: []string{nic, lom}}, Hardware{MACs: []string{nic, foreign}}, false, false},
		"none in common":                 {Hardware{MACs: []string{nic, lom}}, Hardware{MACs: []string{foreign}}, false, true},
		"the USB network of the BMC":     {Hardware{MACs: []string{"b0:3a:f2:b6:05:9f"}}, Hardware{MACs: []string{"b0:3a:f2:b6:05:9f"}}, false, false},
		"a local address":                {Hardware{MACs: []string{"02:00:00:00:00:01"}}, Hardware{MACs: []string{"02:00:00:00:00:01"}}, false, false},
		"a serial number of the chassis": {Hardware{Serial: "ABC1234", MACs: []string{nic}}, Hardware{Serial: "ABC1234", MACs: []string{foreign}}, false, true},
		"both":                           {Hardware{Serial: "ABC1234", MACs: []string{nic}}, Hardware{Serial: "ABC1234", MACs: []string{nic, foreign}}, true, false},
		"the MACs, but another serial":   {Hardware{Serial: "ABC1234", MACs: []string{nic}}, Hardware{Serial: "ABC1235", MACs: []string{nic}}, false, true},
		"nothing":                        {Hardware{}, Hardware{}, false, false},
	} {
		same, differs, why := SameHardware(c.inventory, c.reported)
		assert.Equal(t, c.same, same, name)
		assert.Equal(t, c.differs, differs, name)
		assert.NotEmpty(t, why, name)
	}
}

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
		e := must.Do(ParseEndpoint(address))(t)
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

func TestNetworksRefuse(t *testing.T) {
	own := []netip.Addr{netip.MustParseAddr("10.0.0.5"), netip.MustParseAddr("fd00::5")}
	for _, c := range []struct {
		listed []string
		ip     string
		may    bool
	}{
		{nil, "192.0.2.1", true},
		{nil, "2001:db8::1", true},
		{nil, "127.0.0.1", false},
		{nil, "127.9.9.9", false},
		{nil, "::1", false},
		{nil, "::ffff:127.0.0.1", false},
		{nil, "169.254.169.254", false},
		{nil, "fe80::1%eth0", false},
		{nil, "224.0.0.1", false},
		{nil, "ff02::1", false},
		{nil, "255.255.255.255", false},
		{nil, "0.0.0.0", false},
		{nil, "::", false},
		{nil, "10.0.0.5", false},
		{nil, "::ffff:10.0.0.5", false},
		{nil, "fd00::5", false},
		{nil, "10.0.0.6", true},
		{[]string{"10.0.0.0/8"}, "10.0.0.6", true},
		{[]string{"10.0.0.0/8"}, "192.0.2.1", false},
		{[]string{"10.0.0.0/8"}, "10.0.0.5", false},
		{[]string{"10.0.0.5/32"}, "10.0.0.5", true},
		{[]string{"127.0.0.0/8"}, "127.0.0.1", true},
		{[]string{"127.0.0.0/8"}, "10.0.0.6", false},
		{[]string{"0.0.0.0/0"}, "127.0.0.1", false},
		{[]string{"0.0.0.0/0"}, "192.0.2.1", true},
		{[]string{"0.0.0.0/0"}, "2001:db8::1", false},
		{[]string{"::/0"}, "fe80::1", false},
		{[]string{"fe80::/10", "10.0.0.0/8"}, "fe80::1%eth0", true},
	} {
		n := &Networks{Own: own}
		for _, text := range c.listed {
			n.Listed = append(n.Listed, netip.MustParsePrefix(text))
		}
		assert.Equal(t, c.may, n.RefuseHost(c.ip) == "", "%v %s: %s", c.listed, c.ip, n.RefuseHost(c.ip))
		at := net.JoinHostPort(c.ip, "443")
		assert.Equal(t, c.may, n.Control("tcp", at, nil) == nil, "%v %s", c.listed, at)
	}
	var anywhere *Networks
	assert.Empty(t, anywhere.RefuseHost("127.0.0.1"))
	require.NoError(t, anywhere.Control("udp", "127.0.0.1:623", nil))
	assert.Empty(t, new(Networks).RefuseHost("bmc.example.org"), "a name is looked at when it is dialed")
	require.Error(t, new(Networks).Control("udp", "bmc.example.org:623", nil), "what cannot be read is refused")
}
