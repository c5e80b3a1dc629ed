package fenceagent

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/bmc/bmctest"
)

func TestStatus(t *testing.T) {
	for name, c := range map[string]struct {
		body string
		want bmc.PowerState
	}{
		"off":                    {`echo Status: OFF; exit 2`, bmc.Off},
		"off among other words":  {`echo hello; echo "  Status: off  "; echo bye; exit 2`, bmc.Off},
		"on":                     {`echo Status: ON`, bmc.On},
		"on without a word":      {``, bmc.On},
		"2 without a word":       {`exit 2`, bmc.Unknown},
		"2 of a usage error":     {`echo "usage: fence_test [-h]" >&2; exit 2`, bmc.Unknown},
		"2 that says on":         {`echo Status: ON; exit 2`, bmc.Unknown},
		"0 that says off":        {`echo Status: OFF; exit 0`, bmc.Unknown},
		"two words":              {`echo Status: OFF; echo Status: ON; exit 2`, bmc.Unknown},
		"words of another state": {`echo Status: OFFLINE; exit 2`, bmc.Unknown},
		"words on stderr":        {`echo Status: OFF >&2; exit 2`, bmc.Unknown},
		// The shell ends with 2 when it cannot read the script.
		"a broken script": {`if then`, bmc.Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := bmctest.Read(t, client(t, agent(t, c.body), device()))
			assert.Equal(t, c.want, r.State)
			assert.LessOrEqual(t, len(r.Raw), maxRaw)
			assert.NotEmpty(t, r.Raw)
			assert.Empty(t, r.Identity)
		})
	}
}

func TestComplaints(t *testing.T) {
	for name, c := range map[string]struct {
		body string
		kind bmc.Kind
		text string
	}{
		"login":     {`echo "ERROR: Unable to connect/login to fencing device" >&2; exit 1`, bmc.KindUnreachable, "Unable to connect/login"},
		"privilege": {`echo "Failed: The user does not have the correct privileges to do it." >&2; exit 1`, bmc.KindPrivilege, "privileges"},
		"plug":      {`echo "Failed: You have to enter plug" >&2; echo "ERROR: Please use '-h' for usage" >&2; exit 1`, bmc.KindProtocol, "enter plug"},
		"nothing":   {`exit 9`, bmc.KindProtocol, "exit status 9: it said nothing"},
		"secrets":   {`echo "$input c0mmunity-secret" | tr '\n' ' ' >&2; exit 1`, bmc.KindProtocol, "[redacted]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := device()
			d.SecretParameters = map[string]bmc.Secret{"community": bmc.NewSecret("c0mmunity-secret")}
			d.Password = bmc.NewSecret("c4nary-secret")
			cl := client(t, agent(t, c.body), d)
			_, err := cl.Read(t.Context())
			assert.Contains(t, bmctest.Failed(t, err, c.kind).Error(), c.text)
			_, err = cl.Send(t.Context(), bmc.CommandOff)
			assert.Equal(t, bmc.SentMaybe, bmctest.Failed(t, err, c.kind).Sent, "it was started")
		})
	}
}

func TestSend(t *testing.T) {
	t.Parallel()
	p := agent(t, `case "$input" in *action=reboot*|*action=cycle*) exit 1;; *action=off*) echo "Success: Already OFF";; *) echo "Success: Powered ON";; esac`)
	c := client(t, p, device())
	r, err := c.Send(t.Context(), bmc.CommandOff)
	require.NoError(t, err)
	assert.True(t, r.Already)
	r, err = c.Send(t.Context(), bmc.CommandOn)
	require.NoError(t, err)
	assert.False(t, r.Already)
	_, err = c.Send(t.Context(), bmc.Command(0))
	assert.Equal(t, bmc.SentNo, bmctest.Failed(t, err, bmc.KindUnsupported).Sent)
}
