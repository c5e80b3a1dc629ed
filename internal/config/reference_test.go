package config

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const configs = "../../configs/"

// configs/fenced.yaml is the reference: it has every key, with its default, except that it begins
// in mode observe.
func TestReferenceFileIsComplete(t *testing.T) {
	file := configs + "fenced.yaml"
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	c, lines, errs := readConfig(file, data)
	require.Empty(t, errs)
	byDefault := Default()
	want := leaves(&byDefault)
	require.Greater(t, len(want), 40)
	for i, got := range leaves(&c) {
		require.NotEmpty(t, lines[got.key], "the reference lacks %s", got.key)
		if got.key == "clusters" {
			continue
		}
		// An empty list is written [] and nil by default.
		if got.value.Kind() == reflect.Slice && got.value.Len() == 0 && want[i].value.Len() == 0 {
			continue
		}
		require.Equal(t, want[i].value.Interface(), got.value.Interface(), got.key)
	}

	require.Len(t, c.Clusters, 1)
	var cl Cluster
	cl.setDefaults()
	cl.Mode = "observe"
	cl.Name, cl.Kubeconfig = "prod", "/etc/fenced/prod.kubeconfig"
	cl.Namespaces, cl.ControllerNamespaces, cl.RequestNamespaces = []string{}, []string{}, []string{}
	require.Equal(t, cl, c.Clusters[0])
	requireKeys(t, lines, "clusters[0]", reflect.TypeFor[Cluster]())
	_, err = Load(filepath.Join(reference(t), "fenced.yaml"))
	require.NoError(t, err)
}

// reference is a copy of the reference files: everybody may write where they are checked
// out, perhaps.
func reference(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS(configs)))
	return dir
}

// requireKeys checks that every key of a type occurs under prefix.
func requireKeys(t *testing.T, lines map[string]int, prefix string, typ reflect.Type) {
	for f := range typ.Fields() {
		key := join(prefix, f.Tag.Get("yaml"))
		if f.Tag.Get("yaml") == "-" {
			continue
		}
		require.NotEmpty(t, lines[key], "the reference lacks %s", key)
		if f.Type.Kind() == reflect.Struct {
			requireKeys(t, lines, key, f.Type)
		}
	}
}

func TestHostsExample(t *testing.T) {
	dir := reference(t)
	c, err := Load(filepath.Join(dir, "fenced.yaml"), "hosts="+filepath.Join(dir, "hosts.d"))
	require.NoError(t, err)
	hosts, err := LoadHosts(c)
	require.NoError(t, err)
	require.Len(t, hosts, 5)
	require.Equal(t, "prod/worker-3", hosts[0].Name)
	require.Equal(t, []int{17, 3}, hosts[0].Levels[0].Devices[0].CipherSuites)
	require.Equal(t, "openshift-machine-api/worker-4-bmc", hosts[1].Levels[0].Devices[0].Secret)
	require.Equal(t, "https://192.0.2.15:443/redfish/v1/Systems/1, then fence_apc_snmp://pdu-a.example.org#7 + fence_apc_snmp://pdu-b.example.org#7",
		hosts[2].Address())
	require.Equal(t, "ipmi://192.0.2.16:623, then bmclib+ipmi://192.0.2.16:623", hosts[3].Address())

	require.Equal(t, "openshift-machine-api/worker-7", hosts[4].Machine)

	file := configs + "hosts.d/example.yaml"
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	root, err := parseYAML(file, data)
	require.NoError(t, err)
	var f hostsFile
	r := newReader(file)
	r.mapping(root, "", reflect.ValueOf(&f).Elem())
	require.Empty(t, r.errs)
	// Of node and machine, of bmc and levels, and of the three sources of a password, an entry has one;
	// some keys are of one driver alone.
	for key, otherKey := range map[string]string{
		"machine": "hosts[4].machine", "levels": "hosts[1].levels", "bmc.secret": "hosts[1].levels[0].devices[0].secret", "bmc.credential": "hosts[2].levels[0].devices[0].credential",
		"bmc.agent": "hosts[2].levels[1].devices[0].agent", "bmc.parameters": "hosts[2].levels[1].devices[0].parameters",
		"bmc.secretParameters": "hosts[2].levels[1].devices[0].secretParameters", "bmc.provider": "hosts[3].levels[1].devices[0].provider",
	} {
		require.NotEmpty(t, r.lines[otherKey], otherKey)
		r.lines["hosts[0]."+key] = r.lines[otherKey]
	}
	requireKeys(t, r.lines, "hosts[0]", reflect.TypeFor[hostYAML]())
}

// Every name of a check in a tag must be in its table, or the first file that
// uses the key would crash the daemon.
func TestTagsNameKnownChecks(t *testing.T) {
	var walk func(reflect.Type)
	walk = func(typ reflect.Type) {
		for f := range typ.Fields() {
			leaf := f.Type
			if leaf.Kind() == reflect.Slice || leaf.Kind() == reflect.Map {
				leaf = leaf.Elem()
			}
			is := f.Tag.Get("is")
			switch {
			case leaf.Kind() == reflect.Struct:
				walk(leaf)
			case is == "":
			case leaf.Kind() == reflect.String:
				// A single word that is no check is an enumeration of one.
				if is != "bbolt" && !strings.Contains(is, "|") {
					require.Contains(t, textChecks, is, f.Name)
				}
			default:
				require.Contains(t, numberChecks, is, f.Name)
			}
		}
	}
	walk(reflect.TypeFor[Config]())
	walk(reflect.TypeFor[hostsFile]())
}
