package ipmi

import (
	"crypto/aes"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/bmc/bmctest"
	"github.com/fenced/fenced/test/ipmisim"
	"github.com/fenced/fenced/test/pace"
)

// TestRepeatedCommand: a BMC drops what it has seen, so each try is new in its
// session sequence number and its vector, and the same command inside.
func TestRepeatedCommand(t *testing.T) {
	t.Parallel()
	relay := relayTo(t, startGo(t, ipmisim.Options{}))
	c := clientAt(t, relay.Addr())
	bmctest.Read(t, c)
	first := len(relay.Seen())
	lost := 0
	relay.Filter(losing(func(ipmisim.Datagram) bool { lost++; return lost <= 2 }))
	bmctest.Read(t, c)

	sequences, vectors, commands := map[uint32]bool{}, map[[aes.BlockSize]byte]bool{}, map[string]bool{}
	for _, d := range relay.Seen()[first:] {
		if d.FromBMC {
			continue
		}
		message, n, err := c.session.seal.open(d.Data, c.session.bmcID)
		require.NoError(t, err)
		p, err := parsePacket(d.Data)
		require.NoError(t, err)
		sequences[n], vectors[[aes.BlockSize]byte(p.payload)], commands[string(message)] = true, true, true
	}
	assert.Len(t, sequences, 3)
	assert.Len(t, vectors, 3)
	assert.Len(t, commands, 1)
}

// slowBMC is a BMC that works on one command after the other, and needs long for each.
type slowBMC interface {
	ipmisim.BMC
	Slow(d time.Duration) error
}

// shippedTiming is what the daemon gives a BMC by default.
var shippedTiming = bmc.Timing{ReadTimeout: 5 * time.Second, SendTimeout: 10 * time.Second}

// TestSerialBMC: a BMC that needs two seconds for each command, as virtualbmc with a slow
// libvirt, is read and switched in time, over one session. No command is sent while it
// works on one, because it would work on that one too.
func TestSerialBMC(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(*testing.T) slowBMC{
		"pyghmi":   func(t *testing.T) slowBMC { return startPyghmi(t, ipmisim.Options{}) },
		"ipmi_sim": func(t *testing.T) slowBMC { return startDebian(t, ipmisim.Options{}) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := start(t)
			require.NoError(t, b.Slow(2*time.Second))
			costs(t, []int{4, 1, 2, 1}, func() (asked []int) { // status, status, off, status
				relay := relayTo(t, b)
				c := clientAt(t, relay.Addr(), withSuites(3))
				c.timing = shippedTiming
				defer c.drop() // one play after the other
				at := 0
				took := func(err error) {
					now := relay.Asked()
					sent := now - at
					if err != nil {
						sent += 100 // a busy machine; another attempt
					}
					asked, at = append(asked, sent), now
				}
				for range 2 {
					_, err := c.Read(t.Context())
					took(err)
				}
				_, sent := c.Send(t.Context(), bmc.CommandOff)
				took(sent)
				r, err := c.Read(t.Context())
				took(err)
				if sent == nil && err == nil {
					assert.Equal(t, bmc.Off, r.State)
				}
				return asked
			})
		})
	}
}

// TestSlowerThanTheFirstWait: a BMC that answers its first command later than one that
// forgot its session would, keeps the session.
func TestSlowerThanTheFirstWait(t *testing.T) {
	t.Parallel()
	b := startPyghmi(t, ipmisim.Options{})
	require.NoError(t, b.Slow(4*time.Second))
	pace.Until(t, "one handshake", func() bool {
		relay := relayTo(t, b)
		assert.Equal(t, bmc.On, bmctest.Read(t, clientAt(t, relay.Addr(), withSuites(3))).State)
		return len(consoles(relay.Seen())) == 1
	})
}

// TestPatience is how long each command waits before it is repeated.
func TestPatience(t *testing.T) {
	ctx := t.Context()
	var c commandTimes
	tries, wait := c.patience(ctx, chassisStatus)
	assert.Equal(t, newCommandTries, tries)
	assert.Equal(t, newCommandWait, wait, "nothing is known of the BMC")

	c.record(chassisStatus, 5*time.Millisecond)
	tries, wait = c.patience(ctx, chassisStatus)
	assert.Equal(t, commandTries, tries)
	assert.Equal(t, firstWait, wait, "it answers this command at once")
	_, wait = c.patience(ctx, setPrivilege(3))
	assert.Equal(t, newCommandWait, wait, "which says nothing about another")

	c.record(chassisStatus, 2500*time.Millisecond)
	_, wait = c.patience(ctx, chassisStatus)
	assert.Equal(t, 5*time.Second, wait)
	_, wait = c.patience(ctx, setPrivilege(3))
	assert.Equal(t, 5*time.Second, wait, "a slow BMC is slow with all")

	c.record(chassisStatus, time.Minute)
	_, wait = c.patience(ctx, chassisStatus)
	assert.Equal(t, longestWait, wait)
}

// TestNoStorm: what a client sends to a BMC that answers nothing is bounded, whatever it
// waits for. The number is that of the waits, which a busy machine only makes longer.
func TestNoStorm(t *testing.T) {
	t.Parallel()
	for _, k := range kinds {
		if k.fromBMC {
			continue
		}
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			relay := relayTo(t, startGo(t, ipmisim.Options{}))
			relay.Filter(losing(func(d ipmisim.Datagram) bool { return d.Payload() == k.payload }))
			c := clientAt(t, relay.Addr())
			c.timing = shippedTiming
			_, err := c.Read(t.Context())
			assert.Equal(t, bmc.KindUnreachable, bmc.KindOf(err), "%v", err)
			assert.LessOrEqual(t, relay.Asked(), 25)
		})
	}
}
