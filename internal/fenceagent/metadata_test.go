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
)

func actions(text string) []byte {
	return []byte(`<resource-agent name="fence_x"><actions>` + text + `</actions></resource-agent>`)
}

func TestDecode(t *testing.T) {
	const all = `<action name="on" automatic="0"/><action name="off"/><action name="status"/>`
	_, err := decode(actions(all + `<action name="reboot"/>`))
	require.NoError(t, err)
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
		b, err := os.ReadFile(out)
		require.NoError(t, err)
		return strings.Count(string(b), "-o")
	}
	for range 3 {
		bmctest.Read(t, client(t, p, device()))
	}
	assert.Equal(t, 1, asked())
	path := filepath.Join(p.dirs[0], "fence_test")
	require.NoError(t, os.Remove(path))
	executable(t, path, strings.ReplaceAll(text, "4.2.1", "4.2.2-new")+"cat >/dev/null\n")
	d, err := client(t, p, device()).Describe(t.Context())
	require.NoError(t, err)
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
