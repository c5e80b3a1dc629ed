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
	dir := t.TempDir()
	examples := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(documents(t)["power.md"], -1)
	require.Len(t, examples, 2)
	for i, m := range examples {
		require.NoError(t, os.WriteFile(filepath.Join(dir, string(rune('a'+i))+".yaml"), []byte(m[1]), 0o600))
	}
	c, err := config.Load("../configs/fenced.yaml", "hosts="+dir)
	require.NoError(t, err)
	hosts, err := config.LoadHosts(c)
	require.NoError(t, err)
	require.Len(t, hosts, 2)
	assert.Equal(t, "https://192.0.2.15:443/redfish/v1/Systems/1, then fence_apc_snmp://pdu-a.example.org#7 + fence_raritan://pdu-b.example.org#7",
		hosts[0].Address())
	assert.Equal(t, "https://192.0.2.16:443/redfish/v1/Systems/1, then bmclib+ipmi://192.0.2.16:623", hosts[1].Address())
}
