package fenceagent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/bmc/bmctest"
	"github.com/fenced/fenced/test/asroot"
	"github.com/fenced/fenced/test/must"
)

func known(names ...string) metadata {
	m := metadata{Actions: []action{{Name: "list"}}}
	for _, n := range names {
		p := parameter{Name: n}
		if n == "plug_separator" {
			p.Content.Default = ","
		}
		m.Parameters = append(m.Parameters, p)
	}
	return m
}

func TestInputUsesTheAgentsNames(t *testing.T) {
	d := device()
	d.Endpoint.Port = 8443
	text := must.Do(input(d, known("ip", "ipaddr", "ipport", "login", "username", "passwd", "password", "plug"), "off"))(t)
	assert.Equal(t, "action=off\nip=192.0.2.1\nipport=8443\npassword=c4nary-secret\nplug=7\nusername=admin\n", string(text))

	d.SecretParameters = map[string]bmc.Secret{"community": bmc.NewSecret("c0mmunity-secret")}
	d.Endpoint.Port, d.Parameters = 0, map[string]string{"port": "7"}
	text = must.Do(input(d, known("ipaddr", "login", "passwd", "port", "community"), "status"))(t)
	assert.Equal(t, "action=status\ncommunity=c0mmunity-secret\nipaddr=192.0.2.1\nlogin=admin\npasswd=c4nary-secret\nport=7\n", string(text))
}

func TestInputRefuses(t *testing.T) {
	m := known("ip", "username", "password", "plug", "port", "community", "missing_as_off", "plug_separator", "debug_file")
	for name, c := range map[string]struct {
		change func(*bmc.Device)
		why    string
	}{
		"an action":       {func(d *bmc.Device) { d.Parameters["action"] = "reboot" }, "fenced says what to do"},
		"an option":       {func(d *bmc.Device) { d.Parameters["option"] = "reboot" }, "fenced says what to do"},
		"a password":      {func(d *bmc.Device) { d.Parameters["password"] = "x" }, "passwordFile"},
		"a debug file":    {func(d *bmc.Device) { d.Parameters["debug_file"] = "/x" }, "passwords to a file"},
		"an unknown name": {func(d *bmc.Device) { d.Parameters["frobnicate"] = "x" }, "-o metadata"},
		"a near name":     {func(d *bmc.Device) { d.Parameters["Communit-y"] = "x" }, "did you mean community"},
		"missing as off":  {func(d *bmc.Device) { d.Parameters["missing_as_off"] = "1" }, "proves nothing"},
		"missing-as-off":  {func(d *bmc.Device) { d.Parameters["missing-as-off"] = "yes" }, "proves nothing"},
		"an action in secret": {func(d *bmc.Device) {
			d.SecretParameters = map[string]bmc.Secret{"action": bmc.NewSecret("reboot")}
		}, "fenced says what to do"},
		"two outlets":           {func(d *bmc.Device) { d.Parameters["plug"] = "1,2" }, "several outlets"},
		"two outlets, own sign": {func(d *bmc.Device) { d.Parameters["plug"], d.Parameters["plug_separator"] = "1:2", ":" }, "several outlets"},
		"plug and port":         {func(d *bmc.Device) { d.Parameters["port"] = "8" }, "the same parameter"},
		"a line break":          {func(d *bmc.Device) { d.Parameters["plug"] = "1\naction=on" }, "control character"},
		"a NUL":                 {func(d *bmc.Device) { d.Parameters["plug"] = "1\x00" }, "control character"},
		"a break in a password": {func(d *bmc.Device) { d.Password = bmc.NewSecret("a\nplug=2") }, "control character"},
		"a space at the end":    {func(d *bmc.Device) { d.Password = bmc.NewSecret("a ") }, "space"},
		"quotes":                {func(d *bmc.Device) { d.Password = bmc.NewSecret(`"a"`) }, "quotes"},
		"an outlet in secret":   {func(d *bmc.Device) { d.SecretParameters = map[string]bmc.Secret{"port": bmc.NewSecret("8")} }, "is not secret"},
		"no outlet":             {func(d *bmc.Device) { delete(d.Parameters, "plug") }, "set the parameter plug"},
		"a port":                {func(d *bmc.Device) { d.Endpoint.Port = 1 }, "takes no port"},
	} {
		t.Run(name, func(t *testing.T) {
			d := device()
			c.change(&d)
			_, err := input(d, m, "off")
			require.ErrorContains(t, err, c.why)
			assert.NotContains(t, err.Error(), "action=on")
		})
	}
	_, err := input(device(), known("plug"), "off")
	assert.ErrorContains(t, err, "takes no address")
}

func TestFind(t *testing.T) {
	p := raw(t, "#!/bin/sh\n")
	dir := p.dirs[0]
	path := filepath.Join(dir, "fence_test")
	f := must.Do(p.find("fence_test"))(t)
	assert.Equal(t, path, f.path)

	for _, name := range []string{"", "fence_", "fence_Test", "../fence_test", "fence_test;", "ipmitool", "fence_test/../x"} {
		_, err := p.find(name)
		assert.ErrorContains(t, err, "not the name", name)
	}
	_, err := p.find("fence_none")
	assert.ErrorContains(t, err, "install the package")

	require.NoError(t, os.Symlink("fence_test", filepath.Join(dir, "fence_alias")))
	alias := must.Do(p.find("fence_alias"))(t)
	assert.Equal(t, path, alias.resolved)
	assert.NotEqual(t, f, alias, "some agents look at their name")

	require.NoError(t, os.Chmod(path, 0o775))
	_, err = p.find("fence_alias")
	assert.ErrorContains(t, err, "writable by users other than root")
	require.NoError(t, os.Chmod(path, 0o644))
	_, err = p.find("fence_test")
	assert.ErrorContains(t, err, "not an executable")
	require.NoError(t, os.Chmod(path, 0o755))
	require.NoError(t, os.Chmod(dir, 0o777))
	_, err = p.find("fence_test")
	assert.ErrorContains(t, err, "writable by users other than root")
}

func TestOwnerOfAgents(t *testing.T) {
	asroot.Need(t, "give a file away")
	p := raw(t, "#!/bin/sh\n")
	require.NoError(t, os.Chown(filepath.Join(p.dirs[0], "fence_test"), 12345, -1))
	_, err := p.find("fence_test")
	assert.ErrorContains(t, err, "not by root")
}

func TestEntriesTLSIsRefused(t *testing.T) {
	d := device()
	d.TLS.InsecureSkipVerify = true
	_, err := newClient(d, timing, raw(t, "#!/bin/sh\n"))
	assert.Contains(t, bmctest.Failed(t, err, bmc.KindUnsupported).Error(), "ssl_insecure")
}

func actions(text string) []byte {
	return []byte(`<resource-agent name="fence_x"><actions>` + text + `</actions></resource-agent>`)
}

func TestDecode(t *testing.T) {
	const all = `<action name="on" automatic="0"/><action name="off"/><action name="status"/>`
	must.Do(decode(actions(all + `<action name="reboot"/>`)))(t)
	for text, why := range map[string]string{
		all: "network or storage",
		strings.Replace(all, `"0"`, `"1"`, 1) + `<action name="reboot"/>`: "network or storage",
		`<action name="on"/><action name="off"/><action name="reboot"/>`:  `no action "status"`,
		`<action name="status"/><action name="reboot"/>`:                  `no action "on"`,
	} {
		_, err := decode(actions(text))
		assert.ErrorContains(t, err, why)
	}
	for _, text := range []string{"", "not xml", "<a/>", "<resource-agent"} {
		_, err := decode([]byte(text))
		assert.Error(t, err, text)
	}
}

// The metadata is read once for all, and again when the agent was changed.
func TestMetadataIsReadOnce(t *testing.T) {
	t.Parallel()
	out := filepath.Join(t.TempDir(), "asked")
	text := strings.Replace(header, "#!/bin/sh\n", "#!/bin/sh\necho $1 >>"+out+"\n", 1)
	p := raw(t, text+"cat >/dev/null\n")
	asked := func() int {
		b := must.Do(os.ReadFile(out))(t)
		return strings.Count(string(b), "-o")
	}
	for range 3 {
		bmctest.Read(t, client(t, p, device()))
	}
	assert.Equal(t, 1, asked())
	path := filepath.Join(p.dirs[0], "fence_test")
	require.NoError(t, os.Remove(path))
	executable(t, path, strings.ReplaceAll(text, "4.2.1", "4.2.2-new")+"cat >/dev/null\n")
	d := must.Do(client(t, p, device()).Describe(t.Context()))(t)
	assert.Equal(t, bmc.Description{Model: "fence_test", Firmware: "4.2.2-new"}, d)
	assert.Equal(t, 2, asked())
}

// What could not be read is asked again: a full disk is no property of an agent.
func TestMetadataThatFailedIsAskedAgain(t *testing.T) {
	t.Parallel()
	flag := filepath.Join(t.TempDir(), "flag")
	p := raw(t, strings.Replace(header, "#!/bin/sh\n", "#!/bin/sh\n[ -e "+flag+" ] || { echo no room >&2; exit 1; }\n", 1)+"cat >/dev/null\n")
	c := client(t, p, device())
	_, err := c.Read(t.Context())
	assert.Contains(t, bmctest.Failed(t, err, bmc.KindUnsupported).Error(), "no room")
	require.NoError(t, os.WriteFile(flag, nil, 0o600))
	assert.Equal(t, bmc.On, bmctest.Read(t, c).State)
}

func FuzzDecode(f *testing.F) {
	start := strings.Index(header, "<?xml")
	f.Add([]byte(header[start:strings.Index(header, "END\nexit")]))
	f.Add(actions(`<action name="on"/>`))
	f.Add([]byte("<resource-agent>"))
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := decode(text)
		if err != nil {
			return
		}
		for _, need := range []string{"on", "off", "status", "reboot"} {
			if _, ok := m.action(need); !ok {
				t.Fatalf("an agent without %s was taken", need)
			}
		}
		m.similar("plug")
	})
}

func FuzzStatus(f *testing.F) {
	f.Add(0, []byte("Status: ON\n"))
	f.Add(2, []byte("Status: OFF\n"))
	f.Add(2, []byte("Status: OFF\nStatus: ON\n"))
	f.Fuzz(func(t *testing.T, code int, out []byte) {
		state, raw := status(result{code: code, stdout: out})
		if len(raw) > maxRaw {
			t.Fatalf("raw has %d bytes", len(raw))
		}
		if state == bmc.Off && (code != 2 || !strings.Contains(strings.ToUpper(string(out)), "STATUS: OFF")) {
			t.Fatalf("exit %d with %q was taken for off", code, out)
		}
	})
}
