package bmc

import (
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseEndpoint(t *testing.T) {
	ipmi := func(host string, port int) Endpoint {
		return Endpoint{Protocol: ProtocolIPMI, Host: host, Port: port, Privilege: "OPERATOR"}
	}
	redfish := func(host string, port int, system string) Endpoint {
		return Endpoint{Protocol: ProtocolRedfish, Host: host, Port: port, System: system, Privilege: "OPERATOR"}
	}
	plain := func(e Endpoint) Endpoint { e.Plain = true; return e }
	admin := func(e Endpoint) Endpoint { e.Privilege = "ADMINISTRATOR"; return e }
	const system = "/redfish/v1/Systems/1"
	for _, c := range []struct {
		address string
		want    Endpoint
		text    string
	}{
		{"192.0.2.13", ipmi("192.0.2.13", 623), "ipmi://192.0.2.13:623"},
		{"192.0.2.13:6230", ipmi("192.0.2.13", 6230), "ipmi://192.0.2.13:6230"},
		{"bmc.example.org", ipmi("bmc.example.org", 623), "ipmi://bmc.example.org:623"},
		{"[2001:db8::1]:624", ipmi("2001:db8::1", 624), "ipmi://[2001:db8::1]:624"},
		{"ipmi:192.0.2.13", ipmi("192.0.2.13", 623), "ipmi://192.0.2.13:623"},
		{"ipmi:192.0.2.13:624", ipmi("192.0.2.13", 624), "ipmi://192.0.2.13:624"},
		{"ipmi://192.0.2.13", ipmi("192.0.2.13", 623), "ipmi://192.0.2.13:623"},
		{"  ipmi://192.0.2.13:624\n", ipmi("192.0.2.13", 624), "ipmi://192.0.2.13:624"},
		{"ipmi://[2001:db8::1]", ipmi("2001:db8::1", 623), "ipmi://[2001:db8::1]:623"},
		{"ipmi://h?privilegelevel=administrator", admin(ipmi("h", 623)), "ipmi://h:623"},
		{"libvirt://192.0.2.13:6230", ipmi("192.0.2.13", 6230), "ipmi://192.0.2.13:6230"},
		{"redfish:192.0.2.13", redfish("192.0.2.13", 443, ""), "https://192.0.2.13:443"},
		{"redfish://192.0.2.13", redfish("192.0.2.13", 443, ""), "https://192.0.2.13:443"},
		{"redfish://192.0.2.13/", redfish("192.0.2.13", 443, ""), "https://192.0.2.13:443"},
		{"redfish://192.0.2.13/redfish/v1", redfish("192.0.2.13", 443, ""), "https://192.0.2.13:443"},
		{"redfish://192.0.2.13/redfish/v1/", redfish("192.0.2.13", 443, ""), "https://192.0.2.13:443"},
		{"redfish://192.0.2.13:8443" + system, redfish("192.0.2.13", 8443, system), "https://192.0.2.13:8443" + system},
		{"redfish://192.0.2.13" + system + "/", redfish("192.0.2.13", 443, system), "https://192.0.2.13:443" + system},
		{"redfish+https://h" + system, redfish("h", 443, system), "https://h:443" + system},
		{"redfish+http://h:8000" + system, plain(redfish("h", 8000, system)), "http://h:8000" + system},
		{"redfish+http://h", plain(redfish("h", 80, "")), "http://h:80"},
		{"REDFISH://h", redfish("h", 443, ""), "https://h:443"},
		{"redfish-virtualmedia://h" + system, redfish("h", 443, system), "https://h:443" + system},
		{"redfish-uefihttp+http://h" + system, plain(redfish("h", 80, system)), "http://h:80" + system},
		{"ilo5-redfish://h" + system, redfish("h", 443, system), "https://h:443" + system},
		{"ilo5-virtualmedia://h" + system, redfish("h", 443, system), "https://h:443" + system},
		{"idrac-redfish://h/redfish/v1/Systems/System.Embedded.1", redfish("h", 443, "/redfish/v1/Systems/System.Embedded.1"), "https://h:443/redfish/v1/Systems/System.Embedded.1"},
		{"idrac-virtualmedia://h" + system, redfish("h", 443, system), "https://h:443" + system},
		{"redfish://ann:secret@h" + system, redfish("h", 443, system), "https://h:443" + system},
	} {
		t.Run(c.address, func(t *testing.T) {
			e, err := ParseEndpoint(c.address)
			require.NoError(t, err)
			assert.Equal(t, c.want, e)
			assert.Equal(t, c.text, e.String())
		})
	}
}

func TestParseEndpointRefuses(t *testing.T) {
	for _, c := range []struct{ address, says string }{
		{"", "is empty"},
		{" \t\n", "is empty"},
		{"snmp://h", `unknown scheme "snmp"`},
		{"idrac://h", `unknown scheme "idrac"`},
		{"ibmc://h", `unknown scheme "ibmc"`},
		{"ipmi+https://h", "no +https form"},
		{"redfish+ssh://h", "neither +http nor +https"},
		{"ipmi://", "neither an IP address nor a DNS name"},
		{"redfish:///redfish/v1/Systems/1", "neither an IP address nor a DNS name"},
		{"ipmi://host-", "neither an IP address nor a DNS name"},
		{"ipmi://-host", "neither an IP address nor a DNS name"},
		{"ipmi://ho_st", "neither an IP address nor a DNS name"},
		{"ipmi://a..b", "neither an IP address nor a DNS name"},
		{"ipmi://" + strings.Repeat("a", 64), "neither an IP address nor a DNS name"},
		{"ipmi://" + strings.Repeat("a.", 126) + "aa", "neither an IP address nor a DNS name"},
		{"ipmi://h:0", "not between 1 and 65535"},
		{"ipmi://h:65536", "not between 1 and 65535"},
		{"ipmi://h:x", "does not parse"},
		{"http://%zz", "does not parse"},
		{"ipmi://h?privilegelevel=USER", "privilegelevel must be"},
	} {
		t.Run(c.address, func(t *testing.T) {
			_, err := ParseEndpoint(c.address)
			require.ErrorContains(t, err, c.says)
		})
	}
}

// canary is a password that must not come out of anything.
const canary = "hunter2hunter2"

func TestEndpointHidesUserInformation(t *testing.T) {
	for _, address := range []string{
		"redfish://ann:" + canary + "@h/redfish/v1/Systems/1",
		"redfish://" + canary + "@h",
		"ipmi://ann:" + canary + "@h?privilegelevel=USER",
		"ipmi://h?privilegelevel=USER&password=" + canary,
		"snmp://ann:" + canary + "@h",
		"snmp:ann:" + canary + "@h://",
		"ipmi:ann:" + canary + "@h",
		"redfish:ann:" + canary + "@h",
		"ipmi://ann:" + canary + "@h:99999",
		"ipmi://ann:" + canary + "%@h",
		"ipmi://ann:" + canary + "@ho_st",
	} {
		e, err := ParseEndpoint(address)
		assert.NotContains(t, e.String()+e.BaseURL()+e.HostPort(), canary, address)
		if err != nil {
			assert.NotContains(t, err.Error(), canary, address)
		}
	}
}

// FuzzParseEndpoint: no address panics, what parses can be dialled and read
// again to the same, and a user information never comes out.
func FuzzParseEndpoint(f *testing.F) {
	for _, s := range []string{"192.0.2.13", "[::1]:623", "ipmi:h:1", "redfish+http://h:80/redfish/v1/Systems/1?x=y#z", "a:b@c", "://", "ipmi://%41"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, address string) {
		e, err := ParseEndpoint(address)
		if err != nil {
			return
		}
		_, _, err = net.SplitHostPort(e.HostPort())
		require.NoError(t, err)
		require.Positive(t, e.Port)
		require.True(t, validHost(e.Host))
		require.Contains(t, []string{"OPERATOR", "ADMINISTRATOR"}, e.Privilege)

		if scheme, rest, ok := strings.Cut(address, "://"); ok && !strings.ContainsAny(scheme, ":/?#") {
			with, err := ParseEndpoint(scheme + "://ann:" + canary + "@" + rest)
			if err == nil {
				require.NotContains(t, with.String(), canary)
			} else {
				require.NotContains(t, err.Error(), canary)
			}
		}
	})
}
