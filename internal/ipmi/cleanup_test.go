package ipmi

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/test/ipmisim"
	"github.com/fenced/fenced/test/pace"
)

// TestCutLoginLeavesNoSession: the caller goes while an answer of the handshake is
// still on its way; the session that it tells of is ended all the same.
func TestCutLoginLeavesNoSession(t *testing.T) {
	for name, payload := range map[string]int{
		"open session response": ipmisim.PayloadOpenResponse, "RAKP 2": ipmisim.PayloadRAKP2, "RAKP 4": ipmisim.PayloadRAKP4,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// A busy machine is late once, and then the client no longer listens.
			pace.Until(t, "a caller who does not wait, and a session that is ended", func() bool {
				b := startGo(t, ipmisim.Options{})
				relay := relayTo(t, b)
				ctx, cancel := context.WithCancel(t.Context())
				var late atomic.Bool
				relay.Filter(func(d ipmisim.Datagram) []ipmisim.Datagram {
					if d.Payload() != payload {
						return []ipmisim.Datagram{d}
					}
					cancel()
					time.AfterFunc(time.Second, func() {
						late.Store(true)
						relay.Send(d)
					})
					return nil
				})
				c := clientAt(t, relay.Addr())
				_, err := c.Read(ctx)
				require.ErrorIs(t, err, context.Canceled)
				return !late.Load() && comesTrue(func() bool { return late.Load() && b.Sessions() == 0 })
			})
		})
	}
}

// comesTrue waits for less than the minute after which the BMC forgets a session by
// itself.
func comesTrue(what func() bool) bool {
	for end := time.Now().Add(pace.Hang / 2); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if what() {
			return true
		}
	}
	return false
}

// TestSlowLoginOpensOneSession: a BMC that answers each repeated request with a
// session of its own is left with one.
func TestSlowLoginOpensOneSession(t *testing.T) {
	t.Parallel()
	pace.Until(t, "one session, although several were requested", func() bool {
		b := startGo(t, ipmisim.Options{Sessions: 64})
		b.Slow(700 * time.Millisecond)
		relay := relayTo(t, b)
		c := clientAt(t, relay.Addr())
		_, err := c.Read(t.Context())
		require.NoError(t, err)
		opened := 0
		for _, d := range relay.Seen() {
			if d.Payload() == ipmisim.PayloadOpenRequest {
				opened++
			}
		}
		require.Greater(t, opened, 1)
		return comesTrue(func() bool { return b.Sessions() == 1 })
	})
}

// TestFloodOfSessions: forged answers do not make us send without bound.
func TestFloodOfSessions(t *testing.T) {
	t.Parallel()
	relay := relayTo(t, startGo(t, ipmisim.Options{}))
	relay.Filter(func(d ipmisim.Datagram) []ipmisim.Datagram {
		if d.Payload() != ipmisim.PayloadOpenResponse {
			return []ipmisim.Datagram{d}
		}
		flood := []ipmisim.Datagram{d}
		for i := range 200 {
			other := append([]byte(nil), d.Data...)
			other[headerLen+8] ^= byte(1 + i)
			flood = append(flood, d.With(other))
		}
		return flood
	})
	r, err := clientAt(t, relay.Addr()).Read(t.Context())
	require.NoError(t, err)
	assert.Equal(t, bmc.On, r.State)
	assert.Less(t, relay.Asked(), 100, "half of what was forged")
}
