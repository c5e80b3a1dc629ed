package docs_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/config"
	"github.com/fenced/fenced/test/asroot"
)

// TestPortsAreThoseOfTheCode: the page names the ports that addresses without one have, and where the
// metrics are.
func TestPortsAreThoseOfTheCode(t *testing.T) {
	page := documents(t)["network.md"]
	for address, protocol := range map[string]string{
		"ipmi://192.0.2.1": "udp", "redfish://192.0.2.1/redfish/v1/Systems/1": "tcp", "redfish+http://192.0.2.1/redfish/v1/Systems/1": "tcp",
	} {
		e, err := bmc.ParseEndpoint(address)
		require.NoError(t, err)
		port := strconv.Itoa(e.Port)
		assert.Contains(t, page, port+"/"+protocol, address)
		assert.Regexp(t, `ip daddr @bmcs `+protocol+` dport [^\n]*\b`+port+`\b`, page, address)
	}
	listen := config.Default().Metrics.Listen
	assert.Contains(t, page, "`"+listen+"`")
	_, port, _ := strings.Cut(listen, ":")
	assert.Equal(t, 1, strings.Count(page, "| "+port+"/tcp |"))
	assert.Contains(t, page, "`"+config.Default().Control.Socket+"`")
}

// TestFirewallRulesAreUnderstood: nft takes the table as it is, for a user that this machine has.
func TestFirewallRulesAreUnderstood(t *testing.T) {
	block := regexp.MustCompile("(?s)```nft\n(.*?)```").FindStringSubmatch(documents(t)["network.md"])
	require.NotNil(t, block)
	require.Contains(t, block[1], `meta skuid != "fenced"`)
	rules := strings.ReplaceAll(block[1], `"fenced"`, `"root"`)
	asroot.Need(t, "ask nft")
	nft, err := exec.LookPath("nft")
	if err != nil {
		nft = "/usr/sbin/nft"
	}
	if _, err := os.Stat(nft); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("nft is not installed; `make deps` does it")
		}
		t.Skip("nft is not installed; `make deps` does it")
	}
	file := filepath.Join(t.TempDir(), "rules")
	require.NoError(t, os.WriteFile(file, []byte(rules), 0o600))
	said, err := exec.Command("unshare", "--net", nft, "-c", "-f", file).CombinedOutput()
	assert.NoError(t, err, "%s", said)
	require.NoError(t, os.WriteFile(file, []byte(strings.Replace(rules, "@bmcs", "@nothing", 1)), 0o600))
	require.Error(t, exec.Command("unshare", "--net", nft, "-c", "-f", file).Run(), "a wrong rule is noticed")
}

// TestEtcdIsSetUpAsInTheTests: each setting of the page for the etcd is a flag with which the tests
// start theirs; those of the peers are the same for other connections.
func TestEtcdIsSetUpAsInTheTests(t *testing.T) {
	code, err := os.ReadFile("../test/rig/etcdcluster.go")
	require.NoError(t, err)
	settings := regexp.MustCompile(`(?m)^    ETCD_([A-Z_]+)=\S+$`).FindAllStringSubmatch(documents(t)["placement.md"], -1)
	require.Greater(t, len(settings), 10)
	for _, m := range settings {
		flag := "--" + strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(m[1], "PEER_")), "_", "-")
		assert.Contains(t, string(code), `"`+flag, "ETCD_%s", m[1])
	}
}

// TestSizesWereMeasured: each number in the column "Measured" is one of the results.
func TestSizesWereMeasured(t *testing.T) {
	all := documents(t)
	found := 0
	for _, row := range regexp.MustCompile(`(?m)^\| [^|]+ \| ([^|]*\d[^|]*) \|`).FindAllStringSubmatch(all["sizing.md"], -1) {
		for _, number := range regexp.MustCompile(`\d[\d.]* (?:[KMG]i?B|%|m?s)\b|\d[\d.]* %`).FindAllString(row[1], -1) {
			found++
			assert.Contains(t, all["results.md"]+all["performance.md"], number)
		}
	}
	assert.Greater(t, found, 7, "the numbers were not found")
}
