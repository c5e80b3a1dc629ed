package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/config"
)

// TestPowerExamplesLoad: what people will copy is a hosts.d file as it stands.
func TestPowerExamplesLoad(t *testing.T) {
	for file, want := range map[string][]string{
		"../README.md": {
			"https://192.0.2.15:443, then fence_apc://pdu-a#7 + fence_apc://pdu-b#7",
		},
		"power.md": {
			"https://192.0.2.15:443/redfish/v1/Systems/1, then fence_apc_snmp://pdu-a.example.org#7 + fence_raritan_px3://pdu-b.example.org#7",
			"fence_apc_snmp://pdu-c.example.org#8",
			"fence_lpar://hmc.example.org#worker-9",
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

// TestEveryDriverHasARow: the first table tells each driver, and how far it can be
// believed.
func TestEveryDriverHasARow(t *testing.T) {
	told := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\|[^|]*\\| (strict|lower) \\|").FindAllStringSubmatch(documents(t)["power.md"], -1) {
		told[m[1]] = m[2]
	}
	known := map[string]string{}
	for _, d := range bmc.Drivers() {
		known[string(d.Name)] = string(d.Assurance)
	}
	require.Greater(t, len(known), 3, "the drivers were not found")
	assert.Equal(t, known, told)
}

// TestEveryPeerNamesItsTest: each row of the table of what was tried names a test.
// TestNamedTestsExist looks for them.
func TestEveryPeerNamesItsTest(t *testing.T) {
	_, table, found := strings.Cut(documents(t)["power.md"], "\n## Tried with\n")
	require.True(t, found)
	rows := regexp.MustCompile(`(?m)^\| [^|]+ \|.*$`).FindAllString(table, -1)
	require.Greater(t, len(rows), 15, "the rows were not found")
	for _, row := range rows[1:] {
		cells := strings.Split(row, "|")
		require.Len(t, cells, 7, row)
		assert.Regexp(t, "`Test[A-Z]\\w+`", cells[5], row)
	}
}
