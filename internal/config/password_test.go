package config

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/test/must"
)

func passwordFile(t *testing.T, text string, mode os.FileMode) string {
	path := filepath.Join(t.TempDir(), "pw")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	require.NoError(t, os.Chmod(path, mode))
	return path
}

func TestReadPassword(t *testing.T) {
	for _, mode := range []os.FileMode{0o400, 0o600, 0o640} {
		e := entryWith(PasswordSource{File: passwordFile(t, "  s3 cret\n", mode)})
		secret := must.Do(readPassword(e))(t)
		require.Equal(t, "s3 cret", secret.Reveal(), "outer whitespace is trimmed, inner is not")
		require.NotContains(t, fmt.Sprintf("%v %+v %#v", secret, secret, secret), "s3") // I25
	}
	e := entryWith(PasswordSource{File: passwordFile(t, "one", 0o600)})
	require.NoError(t, os.WriteFile(e.Passwords[0][0].File, []byte("two"), 0o600))
	secret := must.Do(readPassword(e))(t)
	require.Equal(t, "two", secret.Reveal(), "read at each use")
}

func TestReadPasswordRefuses(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	require.NoError(t, syscall.Mkfifo(fifo, 0o600))
	inOpenDirectory := passwordFile(t, "canary", 0o600)
	require.NoError(t, os.Chmod(filepath.Dir(inOpenDirectory), 0o777))
	for _, c := range []struct{ name, path, want string }{
		{"open to everyone", passwordFile(t, "canary", 0o644), "; run: chgrp fenced "},
		{"written by everyone", passwordFile(t, "canary", 0o602), "is open to everyone (mode 0602)"},
		{"in a directory that is", inOpenDirectory, "everybody may write " + filepath.Dir(inOpenDirectory)},
		{"empty", passwordFile(t, " \n\t", 0o600), "is empty"},
		{"huge", passwordFile(t, strings.Repeat("canary", 1000), 0o600), "larger than 4096"},
		{"missing", "/nowhere/pw", "no such file"},
		{"a directory", t.TempDir(), "/"},
		{"a pipe that nobody writes", fifo, "not a regular file"},
	} {
		e := entryWith(PasswordSource{File: c.path})
		secret, err := readPassword(e)
		require.ErrorContains(t, err, c.want, c.name)
		require.ErrorContains(t, err, "hosts.d/a.yaml:3: read the password of prod/a", c.name)
		require.NotContains(t, err.Error(), "canary", c.name) // I25
		require.True(t, secret.Empty(), c.name)
	}
}

func TestReadPasswordFromACredential(t *testing.T) {
	e := entryWith(PasswordSource{Credential: "a-bmc"})
	t.Setenv("CREDENTIALS_DIRECTORY", "")
	_, err := readPassword(e)
	require.ErrorContains(t, err, "add LoadCredential=a-bmc:PATH to the unit")
	dir := t.TempDir()
	t.Setenv("CREDENTIALS_DIRECTORY", dir)
	_, err = readPassword(e)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a-bmc"), []byte("s3cret"), 0o400))
	secret := must.Do(readPassword(e))(t)
	require.Equal(t, "s3cret", secret.Reveal())
}

// A longer one would be cut at one end and not at the other, or refused there.
func TestPasswordsOfIPMIAreShort(t *testing.T) {
	for n, want := range map[int]string{20: "", 21: "it has 21 bytes, and IPMI 2.0 takes 20"} {
		e := entryWith(PasswordSource{File: passwordFile(t, strings.Repeat("c", n)+"\n", 0o600)})
		d := &e.Levels[0].Devices[0]
		require.NoError(t, e.ReadPasswords(t.Context()).Levels[0].Devices[0].Unusable, "another protocol takes it")
		for _, d.Driver = range []bmc.Driver{bmc.DriverIPMI, bmc.DriverBMCLib} {
			d.Endpoint.Protocol = bmc.ProtocolIPMI
			secret, err := readPassword(e)
			if want == "" {
				require.NoError(t, err)
				require.False(t, secret.Empty())
				continue
			}
			require.ErrorContains(t, err, "hosts.d/a.yaml:3: read the password of prod/a: "+want)
			require.NotContains(t, err.Error(), "ccc") // I25
			require.True(t, secret.Empty())
		}
	}
}

// The key of a BMC is text, or hexadecimal digits; it stands beside any source of the
// password.
func TestReadBMCKey(t *testing.T) {
	for text, want := range map[string]string{
		"a key of 20 bytes...\n": "a key of 20 bytes...", "0x00c0ffee": "\x00\xc0\xff\xee", "0xC0FFEE\n": "\xc0\xff\xee", "0": "0",
	} {
		e := entryWith(PasswordSource{KgFile: passwordFile(t, text, 0o600)})
		e.Levels[0].Devices[0].Secret = "ns/s"
		d := e.ReadPasswords(t.Context()).Levels[0].Devices[0]
		require.NoError(t, d.Unusable)
		require.Equal(t, want, d.BMCKey.Reveal())
		require.NotContains(t, fmt.Sprintf("%v %+v %#v", d, d, d), "key of 20") // I25
		require.True(t, e.Levels[0].Devices[0].BMCKey.Empty(), "the entry is read anew each time")
	}
	for text, want := range map[string]string{
		"0xcanary": "is not an even number of hexadecimal digits", "0xabc": "is not an even number of hexadecimal digits",
		"canary-of-21-bytes-xx": "holds 21 bytes, and a key (K_g) of IPMI 2.0 has at most 20", "0x" + strings.Repeat("ca", 21): "holds 21 bytes",
		"0x" + strings.Repeat("00", 20): "holds only zeros", "0x": "holds only zeros",
	} {
		d := entryWith(PasswordSource{KgFile: passwordFile(t, text, 0o600)}).ReadPasswords(t.Context()).Levels[0].Devices[0]
		require.ErrorContains(t, d.Unusable, "hosts.d/a.yaml:3: read the password of prod/a: kgFile: ")
		require.ErrorContains(t, d.Unusable, want)
		require.NotContains(t, d.Unusable.Error(), "canary") // I25
		require.True(t, d.BMCKey.Empty())
	}
	d := entryWith(PasswordSource{KgFile: passwordFile(t, "canary", 0o644)}).ReadPasswords(t.Context()).Levels[0].Devices[0]
	require.ErrorContains(t, d.Unusable, "is open to everyone")
}

func TestReadSecretParameters(t *testing.T) {
	good, open := passwordFile(t, "canary\n", 0o640), passwordFile(t, "canary", 0o644)
	d := entryWith(PasswordSource{Parameters: map[string]string{"community": good}}).ReadPasswords(t.Context()).Levels[0].Devices[0]
	require.NoError(t, d.Unusable, "an agent may need no password")
	require.Equal(t, "canary", d.SecretParameters["community"].Reveal())
	require.NotContains(t, fmt.Sprintf("%v %+v %#v", d, d, d), "canary") // I25
	require.True(t, d.Password.Empty())

	// The entry, which others read meanwhile, stays as it is, and an enrolment counts whether or not its secrets can be read. // I8
	for _, file := range []string{good, open} {
		e := entryWith(PasswordSource{Parameters: map[string]string{"community": good, "snmp_priv_passwd": file}})
		names := map[string]bmc.Secret{"community": {}, "snmp_priv_passwd": {}}
		e.Levels[0].Devices[0].SecretParameters = names
		entry := e.Levels[0].Devices[0]
		d := e.ReadPasswords(t.Context()).Levels[0].Devices[0]
		if file == open {
			require.ErrorContains(t, d.Unusable, "parameter snmp_priv_passwd: "+open+" is open to everyone")
		} else {
			require.Equal(t, "canary", d.SecretParameters["snmp_priv_passwd"].Reveal())
		}
		require.Equal(t, entry, e.Levels[0].Devices[0])
		require.True(t, names["community"].Empty())
		require.Equal(t, entry.Fingerprint(), d.Fingerprint())
	}
}

func TestReadPasswordsLeavesSecretsToTheDaemon(t *testing.T) {
	h := entryWith(PasswordSource{})
	h.Levels[0].Devices[0].Secret = "ns/s"
	d := h.ReadPasswords(t.Context()).Levels[0].Devices[0]
	require.NoError(t, d.Unusable)
	require.True(t, d.Password.Empty())
}

// entryWith is an entry of one device with that password.
func entryWith(p PasswordSource) *HostEntry {
	return &HostEntry{
		Host:      bmc.Host{Name: "prod/a", Source: "hosts.d/a.yaml:3", Levels: []bmc.Level{{Devices: []bmc.Device{{}}}}},
		Passwords: [][]PasswordSource{{p}},
	}
}

func readPassword(e *HostEntry) (bmc.Secret, error) {
	d := e.ReadPasswords(context.Background()).Levels[0].Devices[0]
	return d.Password, d.Unusable
}

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
	reference := must.Do(os.ReadFile(configs + "fenced.yaml"))(f)
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
	example := must.Do(os.ReadFile(configs + "hosts.d/example.yaml"))(f)
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

// Thousands of hosts may name one file: a reading of all reads it once. The next reading sees what has changed.
func TestPasswordsOnce(t *testing.T) {
	file := passwordFile(t, "before", 0o600)
	e := entryWith(PasswordSource{File: file})
	read := func(ctx context.Context) string { return e.ReadPasswords(ctx).Levels[0].Devices[0].Password.Reveal() }
	once := PasswordsOnce(t.Context())
	assert.Equal(t, "before", read(once))
	require.NoError(t, os.WriteFile(file, []byte("after"), 0o600))
	assert.Equal(t, "before", read(once))
	assert.Equal(t, "after", read(PasswordsOnce(t.Context())))
	assert.Equal(t, "after", read(t.Context()))
}
