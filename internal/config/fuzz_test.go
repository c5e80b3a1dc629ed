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

	"github.com/fenced/fenced/internal/bmc"
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
		if typ.Kind() == reflect.Map { // the keys of others
			return
		}
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
	for _, seed := range []string{string(example), "hosts: [{node: a, bmc: {address: x, secret: a/b}}]\n", "hosts: [&a {}, *a]\n",
		"hosts: [{node: a, levels: [{devices: [{driver: fence-agent, agent: fence_apc, address: pdu:23, parameters: {plug: 3}}]}]}]\n"} {
		f.Add([]byte(seed))
	}
	c := Default()
	c.Clusters = []Cluster{{Name: "prod"}}
	f.Fuzz(func(t *testing.T, data []byte) {
		r := newReader("/etc/fenced/hosts.d/a.yaml")
		hosts, unread := r.hosts(c, data)
		require.LessOrEqual(t, len(unread), len(r.errs))
		for _, e := range hosts { // whatever is wrong: it is known whose entry it is, and that nobody may use it
			require.Equal(t, bmc.EntryName("prod", e.Of()), e.Name)
			require.True(t, len(r.errs) > 0 || e.Refused == nil)
		}
		if len(r.errs) > 0 {
			return
		}
		if len(hosts) > 0 {
			accepted(t, data, reflect.TypeFor[hostsFile]())
		}
		for _, e := range hosts {
			require.Equal(t, bmc.EntryName("prod", e.Of()), e.Name)
			require.NotEqual(t, e.Node == "", e.Machine == "", "it names a Node or a Machine")
			require.Contains(t, []string{"required", "pinned", "off"}, e.IdentityMode)
			require.NotEmpty(t, e.Levels)
			require.Len(t, e.Passwords, len(e.Levels))
			for i, l := range e.Levels {
				require.NotEmpty(t, l.Devices)
				for j, d := range l.Devices {
					soundDevice(t, d, e.Passwords[i][j])
				}
			}
		}
	})
}

// soundDevice checks what the drivers rely on.
func soundDevice(t *testing.T, d bmc.Device, p PasswordSource) {
	sources := 0
	for _, s := range []string{p.File, p.Credential, d.Secret} {
		if s != "" {
			sources++
		}
	}
	require.Contains(t, []bmc.Driver{bmc.DriverIPMI, bmc.DriverRedfish, bmc.DriverBMCLib, bmc.DriverFenceAgent}, d.Driver)
	if d.Driver == bmc.DriverFenceAgent {
		require.Regexp(t, `^fence_[a-z0-9_]+$`, d.Agent)
		require.LessOrEqual(t, sources, 1)
		for name, value := range d.Parameters {
			require.NotContains(t, name+value, "\n", "a line of its own on the agent's stdin")
			require.NotContains(t, []string{"ip", "action", "password", "missing_as_off"}, name)
		}
		return
	}
	require.NotEmpty(t, d.Endpoint.Host)
	require.Equal(t, 1, sources, "one source of the password")
	if d.Driver != bmc.DriverBMCLib {
		require.EqualValues(t, d.Endpoint.Protocol, d.Driver)
	}
}
