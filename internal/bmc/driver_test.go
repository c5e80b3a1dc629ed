package bmc

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

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
