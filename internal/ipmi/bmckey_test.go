package ipmi

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/test/ipmisim"
	"github.com/fenced/fenced/test/pace"
)

// TestBMCKey: a BMC with a key of its own (K_g) is driven with it. Without it, or with
// another, the error says what is missing, after two logins at most: each leaves a session
// that only the BMC can end.
func TestBMCKey(t *testing.T) {
	const key = "a-key-of-19-bytes-x"           // ipmi_sim takes no longer one
	o := ipmisim.Options{KG: key, Sessions: 64} // on a busy machine a repeated request takes one, too
	onPeers(t, o, func(t *testing.T, _ peer, b ipmisim.BMC) {
		h := hostAt(t, b.Addr())
		h.BMCKey = bmc.NewSecret(key)
		c := New(h, timing)
		t.Cleanup(c.drop)
		_, err := c.Send(t.Context(), bmc.CommandOff)
		require.NoError(t, err)
		r, err := c.Read(t.Context())
		require.NoError(t, err)
		assert.Equal(t, bmc.Off, r.State)
		require.NoError(t, c.Close(t.Context()))

		for text, want := range map[string]string{"": "set kgFile", "another-key": "kgFile is not that of the BMC"} {
			pace.Until(t, "two logins", func() bool { // one whose answer comes late says nothing about the key
				relay := relayTo(t, b)
				h := hostAt(t, relay.Addr())
				h.BMCKey = bmc.NewSecret(text)
				_, err := New(h, timing).Read(t.Context())
				assert.Equal(t, bmc.KindProtocol, bmc.KindOf(err), "%v", err)
				assert.ErrorContains(t, err, want)
				assert.ErrorContains(t, err, "K_g")
				assert.NotContains(t, err.Error(), "another-key")
				return different(relay.Seen(), ipmisim.PayloadRAKP4) == 2
			})
		}
	})
}

func TestBMCKeyThatIsTooLong(t *testing.T) {
	h := hostAt(t, silent(t))
	h.BMCKey = bmc.NewSecret("twenty-one-bytes-long")
	_, err := New(h, timing).Read(t.Context())
	assert.Equal(t, bmc.KindUnsupported, bmc.KindOf(err))
	assert.NotContains(t, err.Error(), "twenty-one-bytes-long")
}
