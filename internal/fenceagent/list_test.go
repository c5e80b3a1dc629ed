package fenceagent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/bmc/bmctest"
)

const saysOff = `case "$input" in *action=off*) echo "Success: Already OFF"; exit 0;; esac; echo Status: OFF; exit 2`

// An agent that says off of an outlet that it does not list proves nothing. // I1
func TestOffOfAnOutletThatIsNotThere(t *testing.T) {
	for name, c := range map[string]struct {
		list       string
		parameters map[string]string
		want       bmc.PowerState
	}{
		"listed":                     {`echo 6,; echo 7,worker-5`, nil, bmc.Off},
		"another outlet":             {`echo 6,; echo 17,worker-5; echo 71,`, nil, bmc.Unknown},
		"an empty list":              {`:`, nil, bmc.Unknown},
		"no list of this device":     {`echo "NOTICE: List option is not working on this device yet"`, nil, bmc.Unknown},
		"a word without a separator": {`echo 7`, nil, bmc.Unknown},
		"on stderr":                  {`echo 7,worker-5 >&2`, nil, bmc.Unknown},
		"twice":                      {`echo 7,a; echo 7,b`, nil, bmc.Unknown},
		"by its alias":               {`echo 3,worker-5`, map[string]string{"plug": "worker-5"}, bmc.Off},
		"by the alias of two":        {`echo 3,worker-5; echo 4,worker-5`, map[string]string{"plug": "worker-5"}, bmc.Unknown},
		"a part of an alias":         {`echo 3,worker-5,b`, map[string]string{"plug": "worker-5"}, bmc.Unknown},
		"other letters":              {`echo Worker-5,`, map[string]string{"plug": "worker-5"}, bmc.Unknown},
		"a place that is an alias":   {`echo 3,7`, nil, bmc.Unknown},
		"both place and alias":       {`echo 7,7`, nil, bmc.Off},
		"in a chain":                 {`echo 1:7,; echo 2:7,`, map[string]string{"plug": "7", "switch": "2"}, bmc.Off},
		"not in the chain":           {`echo 1:7,`, map[string]string{"plug": "7", "switch": "2"}, bmc.Unknown},
		"another separator":          {`echo "worker,5|"`, map[string]string{"plug": "worker,5", "plug_separator": ";", "separator": "|"}, bmc.Off},
		"by UUID":                    {`echo ab-12,worker-5`, map[string]string{"uuid": "ab-12"}, bmc.Off},
		"by another UUID":            {`echo ab-12,worker-5`, map[string]string{"uuid": "ab-13", "plug": "worker-5"}, bmc.Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := device()
			if c.parameters != nil {
				d.Parameters = c.parameters
			}
			cl := client(t, listing(t, c.list, saysOff), d)
			r := bmctest.Read(t, cl)
			assert.Equal(t, c.want, r.State, r.Raw)
			if c.want == bmc.Unknown {
				assert.Contains(t, r.Raw, "is not listed")
			}
			_, err := cl.Send(t.Context(), bmc.CommandOff)
			require.NoError(t, err)
			assert.Equal(t, c.want, bmctest.Read(t, cl).State, "a command makes no outlet")
		})
	}
}

// A list that cannot be read lists nothing.
func TestListThatFails(t *testing.T) {
	for list, kind := range map[string]bmc.Kind{
		`echo 7,worker-5; echo "ERROR: Connection lost" >&2; exit 1`: bmc.KindUnreachable,
		`echo 7,worker-5; exit 2`:                                    bmc.KindProtocol,
		`while :; do echo 7,worker-5; done`:                          bmc.KindProtocol,
	} {
		_, err := client(t, listing(t, list, saysOff), device()).Read(t.Context())
		assert.Contains(t, bmctest.Failed(t, err, kind).Error(), "list of outlets")
	}
	c := client(t, listing(t, `sleep 1618.3`, saysOff), device())
	_, err := c.Describe(t.Context())
	require.NoError(t, err)
	c.timing.ReadTimeout = 500 * time.Millisecond
	_, err = c.Read(t.Context())
	bmctest.Failed(t, err, bmc.KindUnreachable)
	assert.Eventually(t, gone(t, "1618.3"), time.Minute, 10*time.Millisecond)
}

// The list is asked for an Off alone, and believed for a minute at most.
func TestListIsAskedSeldom(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	asked, on := filepath.Join(dir, "asked"), filepath.Join(dir, "on")
	p := listing(t, "echo x >>"+asked+"; echo 7,", "[ -e "+on+" ] && exit 0\n"+saysOff)
	times := func() int {
		b, _ := os.ReadFile(asked)
		return strings.Count(string(b), "x")
	}
	require.NoError(t, os.WriteFile(on, nil, 0o600))
	c := client(t, p, device())
	require.Equal(t, bmc.On, bmctest.Read(t, c).State)
	assert.Zero(t, times())
	require.NoError(t, os.Remove(on))
	require.Equal(t, bmc.Off, bmctest.Read(t, c).State)
	require.Equal(t, bmc.Off, bmctest.Read(t, c).State)
	assert.Equal(t, 1, times())
	c.listedAt = c.listedAt.Add(-listAge)
	require.Equal(t, bmc.Off, bmctest.Read(t, c).State)
	assert.Equal(t, 2, times())
	require.Equal(t, bmc.Off, bmctest.Read(t, client(t, p, device())).State)
	assert.Equal(t, 3, times(), "what another session saw is not believed")
}

// One outlet of several, of which nothing tells whether it is there, is no level.
func TestAgentsWithoutAList(t *testing.T) {
	t.Parallel()
	text := strings.Replace(header, `<action name="list"/>`, "", 1) + "cat >/dev/null; echo Status: OFF; exit 2\n"
	d := device()
	c := client(t, raw(t, text), d)
	_, err := c.Read(t.Context())
	assert.Contains(t, bmctest.Failed(t, err, bmc.KindUnsupported).Error(), "cannot list its outlets")
	_, err = c.Send(t.Context(), bmc.CommandOff)
	assert.Equal(t, bmc.SentNo, bmctest.Failed(t, err, bmc.KindUnsupported).Sent)
	d.Parameters = nil
	assert.Equal(t, bmc.Off, bmctest.Read(t, client(t, raw(t, text), d)).State, "the whole box is always there")

	d = installed(t, "fence_powerman", "127.0.0.1:1", map[string]string{"plug": "t1"})
	d.Username, d.Password = "", bmc.Secret{}
	_, err = client(t, systemPath, d).Read(t.Context())
	assert.Contains(t, bmctest.Failed(t, err, bmc.KindUnsupported).Error(), "cannot list its outlets")
}

func FuzzList(f *testing.F) {
	f.Add([]byte("7,worker-5\n"), "7", ",")
	f.Add([]byte("N/A\n"), "N/A", ",")
	f.Add([]byte("7,7\n7,7"), "7", ":")
	f.Fuzz(func(t *testing.T, list []byte, plug, separator string) {
		if separator == "" || plug == "" {
			return
		}
		if (outlet{plug}).isListed(list, separator) && (!strings.Contains(string(list), plug) || !strings.Contains(string(list), separator)) {
			t.Fatalf("%q with %q lists %q", list, separator, plug)
		}
	})
}
