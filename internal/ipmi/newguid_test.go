package ipmi

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/test/ipmisim"
)

// virtualbmc has a new GUID at each start. It can be read and switched, and what it
// reports beside the GUID stays the same.
func TestGUIDThatIsNewAtEachStart(t *testing.T) {
	var guids []string
	for range 2 {
		d := hostAt(t, startPyghmi(t, ipmisim.Options{NewGUID: true}).Addr())
		d.IgnoreUUID = true
		c := New(d, timing)
		t.Cleanup(c.drop)
		r, err := c.Read(t.Context())
		require.NoError(t, err)
		assert.Equal(t, bmc.On, r.State)
		assert.Empty(t, r.Identity.Serial, "it has no inventory")
		guids = append(guids, r.Identity.UUID)
		_, err = c.Send(t.Context(), bmc.CommandOff)
		require.NoError(t, err)
		r, err = c.Read(t.Context())
		require.NoError(t, err)
		assert.Equal(t, bmc.Off, r.State)
		require.NoError(t, c.Close(t.Context()))
	}
	assert.NotEqual(t, guids[0], guids[1])
	for _, guid := range guids {
		assert.True(t, bmc.UsableUUID(guid), "nothing in it says that it identifies no host")
	}
}
