package bmc

import (
	"net"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/test/must"
)

func ipmiAt(host string, port int) Endpoint {
	return Endpoint{Protocol: ProtocolIPMI, Host: host, Port: port, Privilege: "OPERATOR"}
}

func redfishAt(host string, port int, system string) Endpoint {
	return Endpoint{Protocol: ProtocolRedfish, Host: host, Port: port, System: system, Privilege: "OPERATOR"}
}

func plain(e Endpoint) Endpoint { e.Plain = true; return e }

func admin(e Endpoint) Endpoint { e.Privilege = "ADMINISTRATOR"; return e }

const system1 = "/redfish/v1/Systems/1"

func TestParseEndpoint(t *testing.T) {
	const idracSystem = "/redfish/v1/Systems/System.Embedded.1"
	for _, c := range []struct {
		address string
		want    Endpoint
		text    string
	}{
		{"192.0.2.13", ipmiAt("192.0.2.13", 623), "ipmi://192.0.2.13:623"},
		{"192.0.2.13:6230", ipmiAt("192.0.2.13", 6230), "ipmi://192.0.2.13:6230"},
		{"192.0.2.13:", ipmiAt("192.0.2.13", 623), "ipmi://192.0.2.13:623"},
		{"bmc1", ipmiAt("bmc1", 623), "ipmi://bmc1:623"},
		{"bmc.example.org", ipmiAt("bmc.example.org", 623), "ipmi://bmc.example.org:623"},
		{"[2001:db8::1]:624", ipmiAt("2001:db8::1", 624), "ipmi://[2001:db8::1]:624"},
		{"[2001:db8::1]", ipmiAt("2001:db8::1", 623), "ipmi://[2001:db8::1]:623"},
		{"ipmi:192.0.2.13", ipmiAt("192.0.2.13", 623), "ipmi://192.0.2.13:623"},
		{"ipmi:192.0.2.13:624", ipmiAt("192.0.2.13", 624), "ipmi://192.0.2.13:624"},
		{"ipmi:bmc1:624", ipmiAt("bmc1", 624), "ipmi://bmc1:624"},
		{"ipmi:[2001:db8::1]:624", ipmiAt("2001:db8::1", 624), "ipmi://[2001:db8::1]:624"},
		{"ipmi://192.0.2.13", ipmiAt("192.0.2.13", 623), "ipmi://192.0.2.13:623"},
		{"  ipmi://192.0.2.13:624\n", ipmiAt("192.0.2.13", 624), "ipmi://192.0.2.13:624"},
		{"ipmi://[2001:db8::1]", ipmiAt("2001:db8::1", 623), "ipmi://[2001:db8::1]:623"},
		{"ipmi://192.0.2.13/redfish/v1/Systems/1", ipmiAt("192.0.2.13", 623), "ipmi://192.0.2.13:623"},
		{"IPMI://h:65535", ipmiAt("h", 65535), "ipmi://h:65535"},
		{"ipmi://h:1", ipmiAt("h", 1), "ipmi://h:1"},
		{"ipmi://h?privilegelevel=administrator", admin(ipmiAt("h", 623)), "ipmi://h:623?privilegelevel=ADMINISTRATOR"},
		{"ipmi://h?PrivilegeLevel=Operator&x=y", ipmiAt("h", 623), "ipmi://h:623"},
		{"ipmi:h:624?privilegelevel=ADMINISTRATOR", admin(ipmiAt("h", 624)), "ipmi://h:624?privilegelevel=ADMINISTRATOR"},
		{"h?privilegelevel=ADMINISTRATOR", admin(ipmiAt("h", 623)), "ipmi://h:623?privilegelevel=ADMINISTRATOR"},
		{"libvirt://192.0.2.13:6230", ipmiAt("192.0.2.13", 6230), "ipmi://192.0.2.13:6230"},
		{"libvirt://192.0.2.13?privilegelevel=ADMINISTRATOR", admin(ipmiAt("192.0.2.13", 623)), "ipmi://192.0.2.13:623?privilegelevel=ADMINISTRATOR"},

		{"redfish:192.0.2.13", redfishAt("192.0.2.13", 443, ""), "https://192.0.2.13:443"},
		{"redfish:192.0.2.13:8443" + system1, redfishAt("192.0.2.13", 8443, system1), "https://192.0.2.13:8443" + system1},
		{"redfish+http:h" + system1, plain(redfishAt("h", 80, system1)), "http://h:80" + system1},
		{"redfish://192.0.2.13/", redfishAt("192.0.2.13", 443, ""), "https://192.0.2.13:443"},
		{"redfish://192.0.2.13/redfish/v1", redfishAt("192.0.2.13", 443, ""), "https://192.0.2.13:443"},
		{"redfish://192.0.2.13/redfish/v1/", redfishAt("192.0.2.13", 443, ""), "https://192.0.2.13:443"},
		{"redfish://192.0.2.13/redfish/v1/Systems/", redfishAt("192.0.2.13", 443, ""), "https://192.0.2.13:443"},
		{"redfish://192.0.2.13" + system1 + "/", redfishAt("192.0.2.13", 443, system1), "https://192.0.2.13:443" + system1},
		{"redfish://[2001:db8::1]" + system1, redfishAt("2001:db8::1", 443, system1), "https://[2001:db8::1]:443" + system1},
		{"redfish://h/redfish/v1/Systems/a%2Fb%20c", redfishAt("h", 443, "/redfish/v1/Systems/a%2Fb%20c"), "https://h:443/redfish/v1/Systems/a%2Fb%20c"},
		{"redfish://h/Redfish/V1/systems/é", redfishAt("h", 443, "/Redfish/V1/systems/%C3%A9"), "https://h:443/Redfish/V1/systems/%C3%A9"},
		{"redfish://h" + system1 + "?x=y#z", redfishAt("h", 443, system1), "https://h:443" + system1},
		{"redfish-uefihttp://h/verbatim/Path", redfishAt("h", 443, "/verbatim/Path"), "https://h:443/verbatim/Path"},
		{"idrac-redfish://h" + idracSystem, redfishAt("h", 443, idracSystem), "https://h:443" + idracSystem},
		{"redfish://ann:secret@h" + system1, redfishAt("h", 443, system1), "https://h:443" + system1},
		{"https://h" + system1, redfishAt("h", 443, system1), "https://h:443" + system1},
		{"http://h:8000", plain(redfishAt("h", 8000, "")), "http://h:8000"},

		// Of what Metal3 removed, only a path that is a system is taken for one.
		{"idrac://h:8443/wsman", redfishAt("h", 8443, ""), "https://h:8443"},
		{"idrac://h" + idracSystem, redfishAt("h", 443, idracSystem), "https://h:443" + idracSystem},
		{"ibmc://h/redfish/v1/Systems/1/", redfishAt("h", 443, system1), "https://h:443" + system1},
		{"ilo5://h/json/login", redfishAt("h", 443, ""), "https://h:443"},
		// The port is that of SCCI, power went over IPMI.
		{"irmc://h:8443", ipmiAt("h", 623), "ipmi://h:623"},
		{"irmc://h", ipmiAt("h", 623), "ipmi://h:623"},
	} {
		t.Run(c.address, func(t *testing.T) {
			e := must.Do(ParseEndpoint(c.address))(t)
			assert.Equal(t, c.want, e)
			assert.Equal(t, c.text, e.String())
		})
	}
}

// Each scheme that Metal3 has or had, with each transport.
func TestParseEndpointSchemes(t *testing.T) {
	for _, name := range []string{
		"redfish", "redfish-virtualmedia", "redfish-uefihttp", "ilo5-redfish", "ilo5-virtualmedia", "idrac-redfish", "idrac-virtualmedia",
		"idrac", "ibmc", "ilo4", "ilo4-virtualmedia", "ilo5",
	} {
		for transport, want := range map[string]Endpoint{
			"": redfishAt("h", 443, system1), "+https": redfishAt("h", 443, system1), "+http": plain(redfishAt("h", 80, system1)),
			"+HTTPS": redfishAt("h", 443, system1),
		} {
			for _, slashes := range []string{"://", ":"} {
				e, err := ParseEndpoint(name + transport + slashes + "h" + system1)
				require.NoError(t, err, name+transport)
				require.Equal(t, want, e, name+transport)
			}
		}
		_, err := ParseEndpoint(name + "+ssh://h")
		require.ErrorContains(t, err, "+ssh is neither +http nor +https")
	}
	for _, name := range []string{"ipmi", "libvirt", "irmc"} {
		e := must.Do(ParseEndpoint(strings.ToUpper(name) + "://h"))(t)
		require.Equal(t, ipmiAt("h", 623), e, name)
		for _, transport := range []string{"+http", "+https"} {
			_, err := ParseEndpoint(name + transport + "://h")
			require.ErrorContains(t, err, "no "+transport+" form; leave "+transport+" out")
		}
	}
}

func TestParseEndpointRefuses(t *testing.T) {
	for _, c := range []struct{ address, shows, says string }{
		{"", "", "is empty; write for example"},
		{" \t\n", "", "is empty"},
		{"snmp://h", "snmp://h", `unknown scheme "snmp"; write ipmi://HOST or redfish://`},
		{"snmp:h", "snmp:h", `unknown scheme "snmp"`},
		{"redfish2://h/x?y=z", "redfish2://h/x:", `unknown scheme "redfish2"`},
		{"http+https://h", "http+https://h", "unknown scheme"},
		{"bmc1:623", "bmc1:623", "a name with a port needs a scheme; write ipmi://bmc1:623"},
		{"bmc.example.org:623", "bmc.example.org:623", "write ipmi://bmc.example.org:623"},
		{"2001:db8::1", "2001:db8::1", "an IPv6 address needs brackets; write ipmi://[2001:db8::1]"},
		{"ipmi://2001:db8::1", "ipmi://2001:db8::1", "is not an IP address; write an IPv6 address in brackets"},
		{"ipmi://[fe80::1%25eth0]", "ipmi://[fe80::1%25eth0]", `the zone "eth0"`},
		{"[fe80::1%25eth0]:623", "ipmi://[fe80::1%25eth0]:623", `the zone "eth0"`},
		{"ipmi://[fe80::1%eth0]", "ipmi://[fe80::1%eth0]", "does not parse"},
		{"ipmi://[192.0.2.1", "ipmi://[192.0.2.1", "does not parse"},
		{"redfish+ssh://h", "redfish+ssh://h", "neither +http nor +https"},
		{"ipmi://", "ipmi://", "neither an IP address nor a DNS name"},
		{"ipmi:", "ipmi:", "neither an IP address nor a DNS name"},
		{"redfish:///redfish/v1/Systems/1", "redfish:///redfish/v1/Systems/1", "neither an IP address nor a DNS name"},
		{"//h", "ipmi:////h", "neither an IP address nor a DNS name"},
		{"ipmi://host-", "ipmi://host-", "neither an IP address nor a DNS name"},
		{"ipmi://-host", "ipmi://-host", "neither an IP address nor a DNS name"},
		{"ipmi://ho_st", "ipmi://ho_st", "neither an IP address nor a DNS name"},
		{"ipmi://a..b", "ipmi://a..b", "neither an IP address nor a DNS name"},
		{"ipmi://bmc.example.org.", "ipmi://bmc.example.org.", "neither an IP address nor a DNS name"},
		{"ipmi://192.0.2.256", "ipmi://192.0.2.256", "neither an IP address nor a DNS name"},
		{"192.0.02.1", "ipmi://192.0.02.1", "neither an IP address nor a DNS name"},
		{"ipmi://" + strings.Repeat("a", 64), "ipmi://aaa", "neither an IP address nor a DNS name"},
		{"ipmi://" + strings.Repeat("a.", 126) + "aa", "ipmi://a.a", "neither an IP address nor a DNS name"},
		{"ipmi://" + strings.Repeat("a", 3000), "ipmi://aaa", "longer than 2048 bytes"},
		{"redfish://h/" + strings.Repeat("ü", 900), "redfish://h/", "longer than 2048 bytes once its path is escaped"},
		{"0.0.0.0", "ipmi://0.0.0.0", "is not the address of one machine"},
		{"ipmi://[::]", "ipmi://[::]", "is not the address of one machine"},
		{"ipmi://224.0.0.1", "ipmi://224.0.0.1", "is not the address of one machine"},
		{"ipmi://255.255.255.255", "ipmi://255.255.255.255", "is not the address of one machine"},
		{"ipmi://h:0", "ipmi://h:0", "port 0 is not between 1 and 65535"},
		{"192.0.2.1:65536", "ipmi://192.0.2.1:65536", "port 65536 is not between 1 and 65535"},
		{"irmc://h:0", "irmc://h:0", "port 0 is not between"},
		{"ipmi://h:x", "ipmi://h:x", "does not parse"},
		{"http://%zz", "http://%zz", "does not parse"},
		{"ipmi://h x", "ipmi://h x", "does not parse"},
		{"ipmi://h?privilegelevel=USER", "ipmi://h:", "privilegelevel must be OPERATOR or ADMINISTRATOR"},
		{"ipmi://h?privilegelevel=", "ipmi://h:", "privilegelevel must be"},
		{"ipmi://h?privilegelevel=ADMINISTRATOR&PRIVILEGELEVEL=x", "ipmi://h:", "privilegelevel must be"},
		{"redfish://h/a/../b", "redfish://h/a/../b", "not the @odata.id of a system"},
		{"redfish://h//x/y", "redfish://h//x/y", "not the @odata.id of a system"},
	} {
		t.Run(c.address, func(t *testing.T) {
			_, err := ParseEndpoint(c.address)
			require.ErrorContains(t, err, c.says)
			require.ErrorContains(t, err, "BMC address "+strings.TrimPrefix(c.shows, "BMC address "))
			require.Less(t, len(err.Error()), 1000)
		})
	}
}

// FuzzParseEndpoint: no address panics, what parses can be dialled and read
// again to the same, and a user information never comes out.
func FuzzParseEndpoint(f *testing.F) {
	for _, s := range []string{
		"192.0.2.13", "[::1]:623", "ipmi:h:1", "redfish+http://h:80/redfish/v1/Systems/1?x=y#z", "a:b@c", "://", "ipmi://%41",
		"irmc://h:8443", "idrac://h/wsman", "[fe80::1%25eth0]", "bmc1:623", "redfish://h/%2f/%zz", "redfish://h/" + strings.Repeat("\xff", 690), "ipmi://h?privilegelevel=administrator", "https://h/a%3Fb;c",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, address string) {
		if scheme, rest, ok := strings.Cut(address, "://"); ok && !strings.ContainsAny(scheme, "@:/?#") {
			with, err := ParseEndpoint(scheme + "://ann:" + canary + "@" + rest)
			if err == nil {
				require.NotContains(t, with.String(), canary)
			} else {
				require.NotContains(t, err.Error(), canary)
			}
		}
		e, err := ParseEndpoint(address)
		if err != nil {
			require.Contains(t, err.Error(), "BMC address ")
			return
		}
		_, _, err = net.SplitHostPort(e.HostPort())
		require.NoError(t, err)
		require.Positive(t, e.Port)
		require.True(t, validHost(e.Host))
		require.Contains(t, []string{"OPERATOR", "ADMINISTRATOR"}, e.Privilege)
		require.NotContains(t, e.String(), "@")

		again, err := ParseEndpoint(e.String())
		require.NoError(t, err, e.String())
		require.Equal(t, e, again)
	})
}

// An account is sent to the configured service only. // I10
func TestServes(t *testing.T) {
	secure := Endpoint{Host: "bmc.example", Port: 443}
	for text, want := range map[string]bool{
		"https://bmc.example/redfish/v1": true,
		"https://BMC.example:443/":       true,
		"http://bmc.example/":            false,
		"http://bmc.example:443/":        false,
		"https://bmc.example:8443/":      false,
		"https://other.example/":         false,
		"https://bmc.example.evil/":      false,
		"https://admin@bmc.example/":     false,
		"//bmc.example/":                 false,
	} {
		u := must.Do(url.Parse(text))(t)
		assert.Equal(t, want, secure.Serves(u), text)
	}
	plain := must.Do(url.Parse("http://bmc.example/"))(t)
	assert.True(t, Endpoint{Host: "bmc.example", Port: 80, Plain: true}.Serves(plain))
	assert.False(t, Endpoint{Host: "bmc.example", Port: 8000, Plain: true}.Serves(plain))
}

// canary is a password that must not come out of anything.
const canary = "hunter2hunter2"

func TestEndpointHidesUserInformation(t *testing.T) { // I25
	for _, address := range []string{
		"redfish://ann:" + canary + "@h/redfish/v1/Systems/1",
		"redfish://" + canary + "@h",
		"ipmi://ann:" + canary + "@h?privilegelevel=USER",
		"ipmi://h?privilegelevel=USER&password=" + canary,
		"ipmi://h:0#" + canary,
		"ipmi://h:x?password=a@" + canary,
		"snmp://ann:" + canary + "@h",
		"snmp:ann:" + canary + "@h://",
		"ipmi:ann:" + canary + "@h",
		"redfish:ann:" + canary + "@h",
		"ann:" + canary + "@h",
		canary + "@h:623",
		canary + "@h:x",
		"ipmi://ann:" + canary + "@h:99999",
		"ipmi://ann:" + canary + "%@h",
		"ipmi://ann:" + canary + "@ho_st",
		"ipmi://ann:pass/" + canary + "@h",
		"ipmi://ann:pass?" + canary + "@h",
		"ipmi://ann:pass#" + canary + "@h",
		"redfish://ann/" + canary + "@h",
		"redfish://ann:80/" + canary + "@h/redfish/v1/Systems/1",
	} {
		e, err := ParseEndpoint(address)
		assert.NotContains(t, e.String()+e.BaseURL()+e.HostPort(), canary, address)
		if err != nil {
			assert.NotContains(t, err.Error(), canary, address)
		}
		if _, err := ParseAgentAddress(address); err != nil {
			assert.NotContains(t, err.Error(), canary, address)
		}
	}
}

func TestRefusalsArePrintable(t *testing.T) {
	_, err := ParseEndpoint("ipmi://h\x1b[31m\x00\xff")
	require.ErrorContains(t, err, "BMC address ipmi://h?[31m??")
}

func TestParseAgentAddress(t *testing.T) {
	for address, want := range map[string]Endpoint{
		"192.0.2.9":         {Host: "192.0.2.9"},
		" pdu1.example.org": {Host: "pdu1.example.org"},
		"pdu1:161":          {Host: "pdu1", Port: 161},
		"[2001:db8::9]:22":  {Host: "2001:db8::9", Port: 22},
		"[2001:db8::9]":     {Host: "2001:db8::9"},
		"2001:db8::9":       {Host: "2001:db8::9"},
	} {
		e, err := ParseAgentAddress(address)
		require.NoError(t, err, address)
		assert.Equal(t, want, e, address)
	}
	assert.Equal(t, "192.0.2.9", Endpoint{Host: "192.0.2.9"}.HostPort(), "the agent's own port")
	for address, says := range map[string]string{
		"":                  `"" is neither an IP address nor a DNS name; write HOST or HOST:PORT`,
		"ssh://pdu1":        "port //pdu1 is not between",
		"pdu1:":             "the port is missing",
		"pdu1:0":            "port 0 is not between",
		"pdu1:telnet":       "port telnet is not between",
		"ann@pdu1":          "neither an IP address nor a DNS name",
		"0.0.0.0":           "not the address of one machine",
		"fe80::1%eth0":      `the zone "eth0"`,
		"pdu1\nip=10.0.0.1": "neither an IP address nor a DNS name",
	} {
		_, err := ParseAgentAddress(address)
		require.ErrorContains(t, err, says, address)
	}
}

// TestEverySchemeHasARow: the table of addresses says of each scheme in the code
// what it does.
func TestEverySchemeHasARow(t *testing.T) {
	text := must.Do(os.ReadFile("../../docs/power.md"))(t)
	rows := map[string][]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z0-9-]+)`( \\(removed\\))? \\|(.*)\\|$").FindAllStringSubmatch(string(text), -1) {
		if cells := strings.Split(m[3], " | "); len(cells) == 4 && (strings.TrimSpace(cells[0]) == "yes" || strings.TrimSpace(cells[0]) == "no") {
			rows[m[1]] = cells
		}
	}
	for _, d := range descriptors {
		for name := range d.schemes {
			row, ok := rows[name]
			if !assert.True(t, ok, "power.md has no row %s", name) {
				continue
			}
			e := must.Do(ParseEndpoint(name + "://h/redfish/v1/Systems/1"))(t)
			port := strconv.Itoa(e.Port)
			assert.Regexp(t, "(?i)^"+string(e.Protocol)+`\b`, row[1], name)
			assert.Regexp(t, "^"+port+`\b`, row[2], name)
			assert.Equal(t, e.System == "", strings.HasPrefix(row[3], "not read"), name)
			over, err := ParseEndpoint(name + "+http://h")
			assert.Equal(t, strings.TrimSpace(row[0]) == "yes", err == nil, name)
			if err == nil {
				assert.Contains(t, row[2], "`+http` "+strconv.Itoa(over.Port), name)
			}
			delete(rows, name)
		}
	}
	assert.Empty(t, rows, "rows of no scheme")
}
