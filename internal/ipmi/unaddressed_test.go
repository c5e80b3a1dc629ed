package ipmi

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/test/ipmisim"
	"github.com/fenced/fenced/test/pace"
)

// refusalLen is how long OpenBMC's netipmid makes each refusal.
var refusalLen = map[int]int{ipmisim.PayloadOpenResponse: 36, ipmisim.PayloadRAKP2: 40, ipmisim.PayloadRAKP4: 8}

// unaddressed is a refusal as OpenBMC's netipmid sends it: nothing but the status is
// set, neither the tag nor the id of the console.
func unaddressed(payload int, status byte) []byte {
	refusal := make([]byte, refusalLen[payload])
	refusal[1] = status
	return plainDatagram(byte(payload), refusal)
}

// asOpenBMC is a BMC whose refusals name no request.
func asOpenBMC(d ipmisim.Datagram) []ipmisim.Datagram {
	if d.FromBMC && refusalLen[d.Payload()] > 0 && d.Data[headerLen+1] != 0 {
		d = d.With(unaddressed(d.Payload(), d.Data[headerLen+1]))
	}
	return []ipmisim.Datagram{d}
}

// refusing is a BMC that refuses at one message, as OpenBMC does.
func refusing(payload int, status byte) func(ipmisim.Datagram) []ipmisim.Datagram {
	return func(d ipmisim.Datagram) []ipmisim.Datagram {
		if d.Payload() == payload {
			d = d.With(unaddressed(payload, status))
		}
		return []ipmisim.Datagram{d}
	}
}

// TestUnknownUserOfOpenBMC: it is refused, at once, and not a dead BMC.
func TestUnknownUserOfOpenBMC(t *testing.T) {
	t.Parallel()
	relay := relayTo(t, startGo(t, ipmisim.Options{Sessions: 64}))
	relay.Filter(refusing(ipmisim.PayloadRAKP2, 0x0d))
	costs(t, []int{2}, func() []int { // Open Session Request and RAKP 1
		asked := relay.Asked()
		_, err := clientAt(t, relay.Addr()).Read(t.Context())
		require.Equal(t, bmc.KindAuth, bmc.KindOf(err), "%v", err)
		require.ErrorContains(t, err, "user refused (status 0x0d)")
		return []int{relay.Asked() - asked}
	})
	assert.Zero(t, proofs(relay.Seen()))
}

// TestSuiteThatOpenBMCHasNot: the next one is asked for at once.
func TestSuiteThatOpenBMCHasNot(t *testing.T) {
	t.Parallel()
	relay := relayTo(t, startGo(t, ipmisim.Options{Suites: []int{3}}))
	relay.Filter(asOpenBMC)
	costs(t, []int{5}, func() []int { // one request more than with the right suite
		asked := relay.Asked()
		c := clientAt(t, relay.Addr())
		r, err := c.Read(t.Context())
		require.NoError(t, err)
		assert.Equal(t, bmc.On, r.State)
		closes(t, c)
		return []int{relay.Asked() - asked - 1} // without the end of the session
	})
}

// TestUnaddressedRefusals: each status means what it means with a tag.
func TestUnaddressedRefusals(t *testing.T) {
	t.Parallel()
	const open, rakp2, rakp4 = ipmisim.PayloadOpenResponse, ipmisim.PayloadRAKP2, ipmisim.PayloadRAKP4
	b := startGo(t, ipmisim.Options{Sessions: 64})
	for _, c := range []struct {
		payload int
		status  byte
		kind    bmc.Kind
	}{
		{open, 0x01, bmc.KindSessions},
		{open, 0x04, bmc.KindUnsupported},
		{open, 0x11, bmc.KindUnsupported},
		{rakp2, 0x01, bmc.KindSessions},
		{rakp2, 0x02, bmc.KindProtocol},
		{rakp2, 0x09, bmc.KindPrivilege},
		{rakp2, 0x0c, bmc.KindAuth},
		{rakp2, 0x0d, bmc.KindAuth},
		{rakp2, 0x12, bmc.KindProtocol},
		{rakp4, 0x0f, bmc.KindAuth},
	} {
		t.Run(fmt.Sprintf("payload 0x%02x, status 0x%02x", c.payload, c.status), func(t *testing.T) {
			t.Parallel()
			pace.Until(t, "the refusal", func() bool { // on a busy machine it may come after the wait
				relay := relayTo(t, b)
				relay.Filter(refusing(c.payload, c.status))
				_, err := clientAt(t, relay.Addr()).Read(t.Context())
				t.Log(err)
				return bmc.KindOf(err) == c.kind && strings.Contains(err.Error(), fmt.Sprintf("status 0x%02x", c.status)) &&
					proofs(relay.Seen()) <= 2 // a BMC locks accounts
			})
		})
	}
	assert.True(t, b.Power())
}

// TestForgedRefusal: whoever forges a refusal before each answer ends no login to which
// the BMC answers, changes no session, and is never an answer to a command.
func TestForgedRefusal(t *testing.T) {
	t.Parallel()
	onPeers(t, ipmisim.Options{}, func(t *testing.T, _ peer, b ipmisim.BMC) {
		relay := relayTo(t, b)
		relay.Filter(func(d ipmisim.Datagram) []ipmisim.Datagram {
			if !d.FromBMC {
				return []ipmisim.Datagram{d}
			}
			var out []ipmisim.Datagram
			for payload := range refusalLen {
				for _, status := range []byte{0x01, 0x02, 0x09, 0x0d, 0x0f} {
					out = append(out, d.With(unaddressed(payload, status)))
				}
			}
			return append(out, d)
		})
		pace.Until(t, "a login, an off and a reading", func() bool { // a busy machine may delay the answer
			require.NoError(t, b.SetPower(true))
			c := clientAt(t, relay.Addr())
			if _, err := c.Send(t.Context(), bmc.CommandOff); err != nil {
				t.Log(err)
				return false
			}
			r, err := c.Read(t.Context())
			t.Log(err)
			return err == nil && r.State == bmc.Off && !b.Power()
		})
	})
}

// TestForgedRefusalOfASilentBMC: it is no reading and no receipt.
func TestForgedRefusalOfASilentBMC(t *testing.T) {
	t.Parallel()
	b := startGo(t, ipmisim.Options{Off: true})
	relay := relayTo(t, b)
	relay.Filter(func(d ipmisim.Datagram) []ipmisim.Datagram {
		if d.FromBMC {
			return nil
		}
		return []ipmisim.Datagram{d.Reply(unaddressed(ipmisim.PayloadOpenResponse, 0x0d))}
	})
	c := clientAt(t, relay.Addr())
	r, err := c.Read(t.Context())
	require.Error(t, err)
	assert.Equal(t, bmc.Reading{}, r)
	_, err = c.Send(t.Context(), bmc.CommandOff)
	var e *bmc.Error
	require.ErrorAs(t, err, &e)
	assert.Equal(t, bmc.SentNo, e.Sent)
	assert.Nil(t, c.session)
}
