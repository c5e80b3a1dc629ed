package ipmi

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/test/ipmisim"
	"github.com/fenced/fenced/test/pace"
)

// TestSlowBMC answers later than the first tries wait for: what comes late for
// one try is not taken for another, and nothing is carried out twice in vain.
func TestSlowBMC(t *testing.T) {
	t.Parallel()
	b := startGo(t, ipmisim.Options{Sessions: 64})
	b.Slow(700 * time.Millisecond)
	pace.Until(t, "an off that is carried out twice at most", func() bool {
		before := b.Counts().Off
		c := clientAt(t, b.Addr())
		_, err := c.Send(t.Context(), bmc.CommandOff)
		require.NoError(t, err)
		r, err := c.Read(t.Context())
		require.NoError(t, err)
		assert.Equal(t, bmc.Off, r.State)
		return b.Counts().Off-before <= 2
	})
}

// TestBadWeather: delay, jitter, loss, doubles and reordering at once.
func TestBadWeather(t *testing.T) {
	t.Parallel()
	onPeers(t, ipmisim.Options{Sessions: 64}, func(t *testing.T, _ peer, b ipmisim.BMC) {
		relay := relayTo(t, b)
		relay.Network(withoutDoubles(b, ipmisim.Network{Delay: 10 * time.Millisecond, Jitter: 20 * time.Millisecond,
			Loss: 0.05, Double: 0.2, Reorder: 0.05, Seed: 4}))
		c := clientAt(t, relay.Addr())
		send := func(command bmc.Command) {
			require.NoError(t, persist(func() error { _, err := c.Send(t.Context(), command); return err }))
		}
		read := func() (r bmc.Reading) {
			require.NoError(t, persist(func() (err error) { r, err = c.Read(t.Context()); return err }))
			return r
		}
		for range 3 {
			send(bmc.CommandOff)
			require.False(t, b.Power())
			require.Equal(t, bmc.Off, read().State)
			send(bmc.CommandOn)
			require.Eventually(t, b.Power, time.Minute, 5*time.Millisecond)
			require.Equal(t, bmc.On, read().State)
		}
	})
}

// TestRestartInMidCommand restarts the BMC when it has carried out the command,
// before its answer arrives.
func TestRestartInMidCommand(t *testing.T) {
	onPeers(t, ipmisim.Options{}, func(t *testing.T, _ peer, b ipmisim.BMC) {
		relay := relayTo(t, b)
		c := clientAt(t, relay.Addr())
		_, err := c.Send(t.Context(), bmc.CommandOn) // raises the privilege
		require.NoError(t, err)
		before, err := c.Read(t.Context())
		require.NoError(t, err)
		restarted, begun := make(chan error, 1), false
		relay.Filter(func(d ipmisim.Datagram) []ipmisim.Datagram {
			if d.FromBMC && !begun {
				begun = true
				go func() { restarted <- b.(ipmisim.Faults).Restart() }()
				return nil
			}
			return []ipmisim.Datagram{d}
		})
		_, err = c.Send(t.Context(), bmc.CommandOff)
		require.NoError(t, err)
		require.NoError(t, <-restarted)
		r, err := c.Read(t.Context())
		require.NoError(t, err)
		assert.Equal(t, bmc.Off, r.State)
		assert.NotEqual(t, before.Session, r.Session, "a restart of the BMC voids a proof")
		assert.Equal(t, before.Identity, r.Identity)
	})
}

// TestAnotherMachineAnswers: from the next session on the BMC tells another GUID,
// as after a mix-up of cables or addresses.
func TestAnotherMachineAnswers(t *testing.T) {
	b := startGo(t, ipmisim.Options{})
	c := clientAt(t, b.Addr())
	before, err := c.Read(t.Context())
	require.NoError(t, err)
	require.NoError(t, b.SetUUID("4c4c4544-0022-0000-8000-00000000cafe"))
	require.NoError(t, b.Restart())
	after, err := c.Read(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "4c4c4544002200008000"+"00000000cafe", after.Identity.UUID)
	assert.NotEqual(t, before.Session, after.Session)
}

// TestHungBMC: one that hangs costs the deadline, and is as good as new after.
func TestHungBMC(t *testing.T) {
	onPeers(t, ipmisim.Options{}, func(t *testing.T, _ peer, b ipmisim.BMC) {
		c := clientAt(t, b.Addr())
		_, err := c.Read(t.Context())
		require.NoError(t, err)
		c.timing.ReadTimeout = 600 * time.Millisecond
		require.NoError(t, b.(ipmisim.Faults).Hang(true))
		begun := time.Now()
		_, err = c.Read(t.Context())
		assert.Equal(t, bmc.KindUnreachable, bmc.KindOf(err), "%v", err)
		assert.Less(t, time.Since(begun), pace.Hang)
		require.NoError(t, b.(ipmisim.Faults).Hang(false))
		c.timing = timing
		_, err = c.Read(t.Context())
		require.NoError(t, err)
	})
}
