package config

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// An entry in which something is wrong is refused for the host that it names, and the others serve. Where nobody can tell
// whose an entry is, it may be anybody's: that is Unread.
func TestReadHostsRefusesEntries(t *testing.T) {
	const good = "- {node: good, cluster: prod, bmc: {address: 192.0.2.1, username: u, passwordFile: p}}\n"
	const rest = "bmc: {address: 192.0.2.2, username: u, passwordFile: p}}\n"
	for name, c := range map[string]struct {
		text    string
		refused []string // names
		unread  bool
	}{
		"nothing":                     {"", nil, false},
		"an unknown key":              {"- {node: a, cluster: prod, protect: true, " + rest, []string{"prod/a"}, false},
		"no BMC":                      {"- {node: a, cluster: prod}\n", []string{"prod/a"}, false},
		"a Machine":                   {"- {machine: ns/m, cluster: prod, uuid: x, " + rest, []string{"prod/machine/ns/m"}, false},
		"a Node and a Machine":        {"- {node: a, machine: ns/m, cluster: prod, " + rest, []string{"prod/a", "prod/machine/ns/m"}, false},
		"no cluster":                  {"- {node: a, " + rest, []string{"prod/a", "lab/a"}, false},
		"a cluster that is not there": {"- {node: a, cluster: lap, " + rest, []string{"prod/a", "lab/a"}, false},
		"a BMC that two have":         {"- {node: a, cluster: lab, bmc: {address: 192.0.2.1, username: u, passwordFile: p}}\n", []string{"prod/good", "lab/a"}, false},
		"a refused one has it, too":   {"- {node: a, cluster: lab, x: y, bmc: {address: 192.0.2.1, username: u, passwordFile: p}}\n", []string{"prod/good", "lab/a"}, false},
		"one name twice":              {"- {node: good, cluster: prod, " + rest, []string{"prod/good", "prod/good"}, false},
		"three with a BMC":            {"- {node: a, cluster: lab, " + rest + "- {node: b, cluster: lab, " + rest + "- {node: c, cluster: lab, " + rest, []string{"lab/a", "lab/b", "lab/c"}, false},
		"one says not which system": {"- {node: a, cluster: lab, bmc: {address: redfish://192.0.2.3/redfish/v1/Systems/1, username: u, passwordFile: p}}\n" +
			"- {node: b, cluster: lab, bmc: {address: redfish://192.0.2.3, username: u, passwordFile: p}}\n" +
			"- {node: c, cluster: lab, bmc: {address: redfish://192.0.2.3/redfish/v1/Systems/2, username: u, passwordFile: p}}\n", []string{"lab/a", "lab/b", "lab/c"}, false},
		"no name":                       {"- {cluster: prod, " + rest, nil, true},
		"a name with a slip in its key": {"- {nod: a, cluster: prod, " + rest, nil, true},
		"a bad name":                    {"- {node: A_b, cluster: prod, " + rest, nil, true},
		"a name twice in one entry":     {"- {node: a, node: b, cluster: prod, " + rest, nil, true},
		"two clusters in one entry":     {"- {node: a, cluster: prod, cluster: lab, " + rest, nil, true},
		"an empty entry":                {"-\n", nil, true},
		"a word":                        {"- a\n", nil, true},
		"an unknown key beside":         {"host: []\n", nil, true},
		"no YAML":                       {"- {\n", nil, true},
		"a tab":                         {"\t- {node: a}\n", nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			file := write(t, map[string]string{"hosts.d/a.yaml": "hosts:\n" + good + c.text})
			cfg := Default()
			cfg.File, cfg.Hosts = file, filepath.Join(filepath.Dir(file), "hosts.d")
			cfg.Clusters = []Cluster{{Name: "prod"}, {Name: "lab"}}
			h := ReadHosts(cfg)
			var refused []string
			for _, e := range h.Entries {
				if e.Refused != nil {
					refused = append(refused, e.Name)
					require.Contains(t, e.Refused.Error(), "a.yaml:")
				}
			}
			require.ElementsMatch(t, c.refused, refused)
			require.Equal(t, c.unread, h.Unread != nil, "%v", h.Unread)
			_, err := LoadHosts(cfg)
			require.Equal(t, c.text != "", err != nil, "what is refused is an error of --check-config")
		})
	}
}

// A slip in the plug of one host does not refuse every other outlet of the PDU.
func TestRefusedEntryLeavesOtherOutlets(t *testing.T) {
	const outlet = "hosts:\n- {node: %s, bmc: {driver: fence-agent, agent: fence_apc, address: pdu, username: u, passwordFile: p, parameters: {%s}}}\n"
	file := write(t, map[string]string{
		"hosts.d/a.yaml": strings.NewReplacer("%s, bmc", "a, bmc", "{%s}", "{plug: 1}").Replace(outlet),
		"hosts.d/b.yaml": strings.NewReplacer("%s, bmc", "b, bmc", "{%s}", "{plug: [2]}").Replace(outlet),
	})
	cfg := Default()
	cfg.File, cfg.Hosts, cfg.Clusters = file, filepath.Join(filepath.Dir(file), "hosts.d"), []Cluster{{Name: "prod"}}
	h := ReadHosts(cfg)
	require.NoError(t, h.Unread)
	require.Len(t, h.Entries, 2)
	require.NoError(t, h.Entries[0].Refused)
	require.Error(t, h.Entries[1].Refused)
}

// What concerns some hosts or clusters keeps no daemon down; every other error does.
func TestWhole(t *testing.T) {
	one, two := errors.New("fenced.yaml:1: a"), errors.New("hosts.d/a.yaml:1: b")
	require.NoError(t, Whole(nil))
	require.NoError(t, Whole(errors.Join(InPart{two}, InPart{one})))
	require.EqualError(t, Whole(errors.Join(one, errors.Join(InPart{two}, one))), "fenced.yaml:1: a\nfenced.yaml:1: a")

	file := write(t, map[string]string{"fenced.yaml": "clusters: [{name: prod, kubeconfig: kc}]\nhosts: hosts.d\n", "kc": "", "hosts.d/a.yaml": "hosts: [{node: a}]\n"})
	_, err := Check(file, func(Config) ([]string, error) { return nil, InPart{two} })
	require.ErrorContains(t, err, "a.yaml:1: hosts[0]: bmc is missing")
	require.ErrorContains(t, err, two.Error())
	require.NoError(t, Whole(err))
}

// A refused entry names the devices of each power level together: a run that began with them brings all of them back. // I20
func TestRefusedEntryKeepsItsLevels(t *testing.T) {
	const outlet = "{driver: fence-agent, agent: fence_apc, address: pdu, username: u, passwordFile: p, parameters: {plug: %s}}"
	file := write(t, map[string]string{"hosts.d/a.yaml": "hosts:\n- {node: a, x: y, levels: [{devices: [" + strings.Replace(outlet, "%s", "1", 1) + ", " + strings.Replace(outlet, "%s", "2", 1) + "]}]}\n"})
	cfg := Default()
	cfg.File, cfg.Hosts, cfg.Clusters = file, filepath.Join(filepath.Dir(file), "hosts.d"), []Cluster{{Name: "prod"}}
	h := ReadHosts(cfg)
	require.Len(t, h.Entries, 1)
	require.ErrorContains(t, h.Entries[0].Refused, "unknown key")
	require.Len(t, h.Entries[0].Levels, 1)
	require.Len(t, h.Entries[0].Levels[0].Devices, 2)
	require.Len(t, h.Entries[0].ReadPasswords().Levels[0].Devices, 2)
}
