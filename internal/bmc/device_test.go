package bmc

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// I9: what names the outlet is in the key, however the agent calls it.
func TestAgentKeys(t *testing.T) {
	for _, c := range []struct {
		parameters map[string]string
		key, text  string
	}{
		{nil, "fence_x pdu port 0", "fence_x://pdu"},
		{map[string]string{"ssh": "1"}, "fence_x pdu port 0", "fence_x://pdu"},
		{map[string]string{"plug": "7"}, "fence_x pdu port 0 7", "fence_x://pdu#7"},
		{map[string]string{"port": "7"}, "fence_x pdu port 0 7", "fence_x://pdu#7"},
		{map[string]string{"uuid": "u"}, "fence_x pdu port 0 u", "fence_x://pdu#u"},
		{map[string]string{"plug": "7", "uuid": "u"}, "fence_x pdu port 0 7", "fence_x://pdu#7"},
		{map[string]string{"plug": "7", "switch": "2"}, "fence_x pdu port 0 2:7", "fence_x://pdu#2:7"},
		{map[string]string{"switch": "2"}, "fence_x pdu port 0", "fence_x://pdu"},
		{map[string]string{"plug": "7", "systems_uri": "/s/1"}, "fence_x pdu port 0 /s/1", "fence_x://pdu#/s/1"},
		{map[string]string{"systems-uri": "/s/1"}, "fence_x pdu port 0 /s/1", "fence_x://pdu#/s/1"},
	} {
		d := Device{Driver: DriverFenceAgent, Agent: "fence_x", Endpoint: Endpoint{Host: "PDU."}, Parameters: c.parameters}
		assert.Equal(t, c.key, d.Key(), c.parameters)
		d.Endpoint.Host = "pdu"
		assert.Equal(t, c.text, d.String(), c.parameters)
	}
}
