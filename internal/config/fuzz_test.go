package config

import (
	"bytes"
	"os"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// accepted checks what was read without an error against an independent
// reading of the same bytes: no key may be there that the struct lacks.
func accepted(t *testing.T, data []byte, typ reflect.Type) {
	var loose map[string]any
	require.NoError(t, yaml.NewDecoder(bytes.NewReader(data)).Decode(&loose), "what the parser refuses was accepted")
	onlyKnownKeys(t, loose, typ)
}

func onlyKnownKeys(t *testing.T, value any, typ reflect.Type) {
	switch v := value.(type) {
	case map[string]any:
		for name, inner := range v {
			require.True(t, slices.Contains(keysOf(typ), name), "the unknown key %q was accepted", name)
			field, _ := fieldOf(typ, name)
			onlyKnownKeys(t, inner, field.Type)
		}
	case []any:
		for _, inner := range v {
			onlyKnownKeys(t, inner, typ.Elem())
		}
	}
}

func FuzzReadConfig(f *testing.F) {
	reference, err := os.ReadFile(configs + "fenced.yaml")
	require.NoError(f, err)
	for _, seed := range []string{string(reference), "", "a: &a [*a]\n", "clusters: [{<<: {name: a}}]\n", "guards: {? {} : 1}\n", "--- !!map {hosts: !!binary YQ==}\n...\n"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, lines, errs := readConfig("/etc/fenced/fenced.yaml", data)
		if len(errs) > 0 {
			return
		}
		if len(lines) > 0 {
			accepted(t, data, reflect.TypeFor[Config]())
		}
		require.GreaterOrEqual(t, c.Guards.QuietPeriod, time.Duration(0))
		require.Positive(t, c.Power.OffReadSpacing)
		require.Contains(t, []string{"required", "pinned", "off"}, c.Guards.Identity)
		for _, cl := range c.Clusters {
			require.Contains(t, []string{ModeObserve, ModeEvaluate}, cl.Mode)
		}
	})
}

func FuzzReadHosts(f *testing.F) {
	example, err := os.ReadFile(configs + "hosts.d/example.yaml")
	require.NoError(f, err)
	for _, seed := range []string{string(example), "hosts: [{node: a, bmc: {address: x, secret: a/b}}]\n", "hosts: [&a {}, *a]\n"} {
		f.Add([]byte(seed))
	}
	c := Default()
	c.Clusters = []Cluster{{Name: "prod"}}
	f.Fuzz(func(t *testing.T, data []byte) {
		hosts, errs := readHosts(c, "/etc/fenced/hosts.d/a.yaml", data)
		if len(errs) > 0 {
			return
		}
		if len(hosts) > 0 {
			accepted(t, data, reflect.TypeFor[hostsFile]())
		}
		for _, e := range hosts {
			require.Equal(t, "prod/"+e.Node, e.Name)
			require.NotEmpty(t, e.Node)
			d, p := e.Levels[0].Devices[0], e.Passwords[0][0]
			require.NotEmpty(t, d.Endpoint.Host)
			require.Contains(t, []string{"required", "pinned", "off"}, e.IdentityMode)
			sources := 0
			for _, s := range []string{p.File, p.Credential, d.Secret} {
				if s != "" {
					sources++
				}
			}
			require.Equal(t, 1, sources, "one source of the password")
		}
	})
}
