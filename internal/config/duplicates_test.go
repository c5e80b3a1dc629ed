package config

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

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
