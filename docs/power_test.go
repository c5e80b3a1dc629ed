package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/config"
)

// TestPowerExamplesLoad: what people will copy is a hosts.d file as it stands.
func TestPowerExamplesLoad(t *testing.T) {
	for file, want := range map[string][]string{
		"../README.md": {
			"https://192.0.2.15:443, then fence_apc://pdu-a#7 + fence_apc://pdu-b#7",
		},
		"power.md": {
			"https://192.0.2.15:443/redfish/v1/Systems/1, then fence_apc_snmp://pdu-a.example.org#7 + fence_raritan://pdu-b.example.org#7",
			"https://192.0.2.16:443/redfish/v1/Systems/1, then bmclib+ipmi://192.0.2.16:623",
		},
	} {
		t.Run(filepath.Base(file), func(t *testing.T) {
			dir := t.TempDir()
			examples := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(documents(t)[file], -1)
			for i, m := range examples {
				require.NoError(t, os.WriteFile(filepath.Join(dir, string(rune('a'+i))+".yaml"), []byte(m[1]), 0o600))
			}
			c, err := config.Load("../configs/fenced.yaml", "hosts="+dir)
			require.NoError(t, err)
			hosts, err := config.LoadHosts(c)
			require.NoError(t, err)
			var got []string
			for _, h := range hosts {
				got = append(got, h.Address())
			}
			assert.Equal(t, want, got)
		})
	}
}
