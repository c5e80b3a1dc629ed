package ipmi

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/bmc/bmctest"
	"github.com/fenced/fenced/test/ipmisim"
	"github.com/fenced/fenced/test/must"
	"github.com/fenced/fenced/test/pace"
)

// kinds are all datagrams that one cold power off is made of.
var kinds = []struct {
	name    string
	payload int
	fromBMC bool
}{
	{"open session request", ipmisim.PayloadOpenRequest, false},
	{"open session response", ipmisim.PayloadOpenResponse, true},
	{"RAKP 1", ipmisim.PayloadRAKP1, false},
	{"RAKP 2", ipmisim.PayloadRAKP2, true},
	{"RAKP 3", ipmisim.PayloadRAKP3, false},
	{"RAKP 4", ipmisim.PayloadRAKP4, true},
	{"command", ipmisim.PayloadIPMI, false},
	{"reply", ipmisim.PayloadIPMI, true},
}

// onNetworks runs fn for each kind of datagram and each kind of BMC.
func onNetworks(t *testing.T, fn func(t *testing.T, b ipmisim.BMC, r *ipmisim.Relay, is func(ipmisim.Datagram) bool)) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			onPeers(t, ipmisim.Options{}, func(t *testing.T, _ peer, b ipmisim.BMC) {
				fn(t, b, relayTo(t, b), func(d ipmisim.Datagram) bool {
					return d.FromBMC == k.fromBMC && d.Payload() == k.payload
				})
			})
		})
	}
}

// offAndOn reads On, switches off, reads Off, and switches on again.
func offAndOn(t *testing.T, c *Client, b ipmisim.BMC) {
	t.Helper()
	r := bmctest.Read(t, c)
	require.Equal(t, bmc.On, r.State)
	bmctest.Send(t, c, bmc.CommandOff)
	require.False(t, b.Power())
	require.Equal(t, bmc.Off, bmctest.Read(t, c).State)
	bmctest.Send(t, c, bmc.CommandOn)
	require.True(t, b.Power())
	closes(t, c)
}

func TestEachDatagramLostOnce(t *testing.T) {
	t.Parallel()
	onNetworks(t, func(t *testing.T, b ipmisim.BMC, r *ipmisim.Relay, is func(ipmisim.Datagram) bool) {
		lost := false
		r.Filter(losing(func(d ipmisim.Datagram) bool {
			first := !lost && is(d)
			lost = lost || first
			return first
		}))
		offAndOn(t, clientAt(t, r.Addr()), b)
	})
}

func TestEachDatagramDoubledOnce(t *testing.T) {
	t.Parallel()
	onNetworks(t, func(t *testing.T, b ipmisim.BMC, r *ipmisim.Relay, is func(ipmisim.Datagram) bool) {
		if withoutDoubles(b, ipmisim.Network{Double: 1}).Double == 0 {
			t.Skip("a doubled request may end pyghmi, whoever sends it")
		}
		doubled := false
		r.Filter(func(d ipmisim.Datagram) []ipmisim.Datagram {
			if !doubled && is(d) {
				doubled = true
				return []ipmisim.Datagram{d, d}
			}
			return []ipmisim.Datagram{d}
		})
		offAndOn(t, clientAt(t, r.Addr()), b)
	})
}

// TestEachDatagramLate holds the first datagram of a kind back until the next
// of that kind has passed: it arrives out of order, when it is of no more use.
func TestEachDatagramLate(t *testing.T) {
	t.Parallel()
	onNetworks(t, func(t *testing.T, b ipmisim.BMC, r *ipmisim.Relay, is func(ipmisim.Datagram) bool) {
		var held *ipmisim.Datagram
		done := false
		r.Filter(func(d ipmisim.Datagram) []ipmisim.Datagram {
			switch {
			case done || !is(d):
				return []ipmisim.Datagram{d}
			case held == nil:
				held = &d
				return nil
			}
			done = true
			return []ipmisim.Datagram{d, *held}
		})
		offAndOn(t, clientAt(t, r.Addr()), b)
	})
}

// costs plays an exchange that gives the datagrams of each of its parts, until none takes
// more than it needs: on a busy machine some are sent again that were not lost.
func costs(t *testing.T, want []int, play func() []int) {
	t.Helper()
	for begun := time.Now(); ; {
		got := play()
		if slices.Equal(want, got) {
			return
		}
		for i := range want {
			require.GreaterOrEqual(t, got[i], want[i], "part %d of %v", i, got)
		}
		require.Less(t, time.Since(begun), pace.Tries, "%v datagrams, and %v are needed", got, want)
	}
}

func TestRoundTrips(t *testing.T) {
	t.Parallel()
	onPeers(t, ipmisim.Options{}, func(t *testing.T, p peer, b ipmisim.BMC) {
		relay := relayTo(t, b)
		costs(t, []int{
			4, // status, cold
			1, // status, warm
			3, // the first off in a session raises the privilege, and one confirm
			2, // off and one confirm, warm
			1, // close
			6, // off and one confirm, cold
		}, func() (asked []int) {
			at := relay.Asked()
			took := func() { asked, at = append(asked, relay.Asked()-at), relay.Asked() }
			read := func(c *Client) {
				bmctest.Read(t, c)
			}
			off := func(c *Client) {
				bmctest.Send(t, c, bmc.CommandOff)
				read(c)
			}
			c := clientAt(t, relay.Addr(), withSuites(p.suite))
			read(c)
			took()
			read(c)
			took()
			off(c)
			took()
			off(c)
			took()
			closes(t, c)
			took()
			c = clientAt(t, relay.Addr(), withSuites(p.suite))
			off(c)
			took()
			closes(t, c)
			return asked
		})
	})
}

// A suite that was refused is not asked for again.
func TestRememberedSuite(t *testing.T) {
	b := startGo(t, ipmisim.Options{Suites: []int{3}})
	costs(t, []int{5, 0, 4, 0}, func() (asked []int) {
		relay := relayTo(t, b)
		c := clientAt(t, relay.Addr())
		for range 2 {
			at := relay.Asked()
			bmctest.Read(t, c)
			asked = append(asked, relay.Asked()-at)
			closes(t, c)
			at = relay.Asked()
			require.NoError(t, c.Close(t.Context()), "again")
			asked = append(asked, relay.Asked()-at)
		}
		return asked
	})
}

// persist repeats an operation that was unlucky with the network: of ten thousand that lose
// one datagram in ten each way, a few lose each of their four handshakes.
func persist(do func() error) (err error) {
	for range 4 {
		if err = do(); bmc.KindOf(err) != bmc.KindUnreachable {
			return err
		}
	}
	return err
}

// different is how many different messages of a kind there were: on a busy machine one is
// sent again that was not lost.
func different(seen []ipmisim.Datagram, payload int) int {
	messages := map[string]bool{}
	for _, d := range seen {
		if d.Payload() == payload {
			messages[string(d.Data)] = true
		}
	}
	return len(messages)
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
	t.Parallel()
	onPeers(t, ipmisim.Options{}, func(t *testing.T, p peer, b ipmisim.BMC) {
		relay := relayTo(t, b)
		c := clientAt(t, relay.Addr(), withSuites(p.suite)) // another one may be refused before the BMC is back
		must.Do(c.Send(t.Context(), bmc.CommandOn))(t)      // raises the privilege
		before := bmctest.Read(t, c)
		restarted, begun := make(chan error, 1), false
		relay.Filter(func(d ipmisim.Datagram) []ipmisim.Datagram {
			if d.FromBMC && !begun {
				begun = true
				go func() { restarted <- b.(ipmisim.Faults).Restart() }()
				return nil
			}
			return []ipmisim.Datagram{d}
		})
		bmctest.Send(t, c, bmc.CommandOff)
		require.NoError(t, <-restarted)
		r := bmctest.Read(t, c)
		assert.Equal(t, bmc.Off, r.State)
		assert.NotEqual(t, before.Session, r.Session, "a restart of the BMC voids a proof")
		assert.Equal(t, before.Identity, r.Identity)
	})
}
