package ipmi

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/bmc/bmctest"
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
		withKey := func(text string) func(*bmc.Device) {
			return func(d *bmc.Device) { d.BMCKey = bmc.NewSecret(text) }
		}
		c := clientAt(t, b.Addr(), withKey(key))
		bmctest.Send(t, c, bmc.CommandOff)
		assert.Equal(t, bmc.Off, bmctest.Read(t, c).State)
		require.NoError(t, c.Close(t.Context()))

		for text, want := range map[string]string{"": "set kgFile", "another-key": "kgFile is not that of the BMC"} {
			pace.Until(t, "two logins", func() bool { // one whose answer comes late says nothing about the key
				relay := relayTo(t, b)
				_, err := clientAt(t, relay.Addr(), withKey(text)).Read(t.Context())
				assert.Equal(t, bmc.KindProtocol, bmc.KindOf(err), "%v", err)
				assert.ErrorContains(t, err, want)
				assert.ErrorContains(t, err, "K_g")
				assert.NotContains(t, err.Error(), "another-key")
				return different(relay.Seen(), ipmisim.PayloadRAKP4) == 2
			})
		}
	})
}
