package bmc

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

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
