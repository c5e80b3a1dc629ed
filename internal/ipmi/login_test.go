package ipmi

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/bmc/bmctest"
	"github.com/fenced/fenced/test/ipmisim"
	"github.com/fenced/fenced/test/pace"
)

// TestHandshakeIsFresh: nothing of a handshake repeats, so no answer to an
// earlier one can pass for an answer to this one.
func TestHandshakeIsFresh(t *testing.T) {
	relay := relayTo(t, startGo(t, ipmisim.Options{}))
	c := clientAt(t, relay.Addr())
	const sessions = 8
	for range sessions {
		bmctest.Read(t, c)
		require.NoError(t, c.Close(t.Context()))
	}
	numbers, tags := map[string]bool{}, map[byte]bool{}
	for _, d := range relay.Seen() {
		switch d.Payload() {
		case ipmisim.PayloadOpenRequest:
			tags[d.Data[headerLen]] = true
		case ipmisim.PayloadRAKP1:
			numbers[string(d.Data[headerLen+8:headerLen+24])] = true
		}
	}
	assert.Len(t, consoles(relay.Seen()), sessions)
	assert.Len(t, numbers, sessions)
	assert.Greater(t, len(tags), 2, "tags are random too")
}

// TestAlteredHandshake flips one bit in one answer of the first handshake. That
// answer is not believed: either it is dropped and asked for again, or a code
// fails.
func TestAlteredHandshake(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		payload int
		at      int
		kind    bmc.Kind
	}{
		{"tag of open session response", ipmisim.PayloadOpenResponse, 0, ""},
		{"our id in open session response", ipmisim.PayloadOpenResponse, 4, ""},
		{"BMC's id in open session response", ipmisim.PayloadOpenResponse, 8, ""}, // RAKP 2 refuses, then anew
		{"tag of RAKP 2", ipmisim.PayloadRAKP2, 0, ""},
		{"our id in RAKP 2", ipmisim.PayloadRAKP2, 4, ""},
		{"random number in RAKP 2", ipmisim.PayloadRAKP2, 8, bmc.KindAuth},
		{"GUID in RAKP 2", ipmisim.PayloadRAKP2, 24, bmc.KindAuth},
		{"code in RAKP 2", ipmisim.PayloadRAKP2, 40, bmc.KindAuth},
		{"tag of RAKP 4", ipmisim.PayloadRAKP4, 0, ""},
		{"code in RAKP 4", ipmisim.PayloadRAKP4, 8, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			relay := relayTo(t, startGo(t, ipmisim.Options{}))
			altered := false
			relay.Filter(func(d ipmisim.Datagram) []ipmisim.Datagram {
				if !altered && d.Payload() == c.payload {
					altered = true
					d.Data[headerLen+c.at] ^= 0x04
				}
				return []ipmisim.Datagram{d}
			})
			_, err := clientAt(t, relay.Addr()).Read(t.Context())
			assert.Equal(t, c.kind, bmc.KindOf(err), "%v", err)
			answers := 0
			for _, d := range relay.Seen() {
				if d.Payload() == c.payload && d.Data[headerLen+1] == 0 { // not to a refusal
					answers++
				}
			}
			if c.kind == "" {
				assert.GreaterOrEqual(t, answers, 2, "the altered one did not do")
			}
		})
	}
}

// TestRefusalsOfTheHandshake lets the BMC refuse each message with each status.
func TestRefusalsOfTheHandshake(t *testing.T) {
	for _, c := range []struct {
		payload    int
		status     byte
		kind       bmc.Kind
		handshakes int
	}{
		{ipmisim.PayloadOpenResponse, 0x01, bmc.KindSessions, 1},
		{ipmisim.PayloadOpenResponse, 0x11, bmc.KindUnsupported, 2}, // one for each suite
		{ipmisim.PayloadOpenResponse, 0x12, bmc.KindProtocol, 4},
		{ipmisim.PayloadRAKP2, 0x02, bmc.KindProtocol, 4},
		{ipmisim.PayloadRAKP2, 0x0a, bmc.KindPrivilege, 1},
		{ipmisim.PayloadRAKP2, 0x0b, bmc.KindSessions, 1},
		{ipmisim.PayloadRAKP2, 0x0d, bmc.KindAuth, 1},
		{ipmisim.PayloadRAKP4, 0x02, bmc.KindProtocol, 4},
		{ipmisim.PayloadRAKP4, 0x0f, bmc.KindAuth, 2}, // not more: accounts lock
	} {
		relay := relayTo(t, startGo(t, ipmisim.Options{}))
		relay.Filter(func(d ipmisim.Datagram) []ipmisim.Datagram {
			if d.Payload() == c.payload {
				d.Data[headerLen+1] = c.status
			}
			return []ipmisim.Datagram{d}
		})
		_, err := clientAt(t, relay.Addr()).Read(t.Context())
		assert.Equal(t, c.kind, bmc.KindOf(err), "%v", err)
		assert.Equal(t, c.handshakes, different(relay.Seen(), ipmisim.PayloadOpenRequest), "%v", err)
	}
}

// dropsSuites is a network to a BMC that does not answer a request with one of the
// suites.
func dropsSuites(t *testing.T, b ipmisim.BMC, dropped ...suite) *ipmisim.Relay {
	relay := relayTo(t, b)
	relay.Filter(losing(func(d ipmisim.Datagram) bool {
		asked := func(s suite) bool { return d.Data[headerLen+12] == s.auth }
		return d.Payload() == ipmisim.PayloadOpenRequest && slices.ContainsFunc(dropped, asked)
	}))
	return relay
}

// TestSuiteThatIsDropped: a BMC that drops what it does not support is asked for the next
// suite, and is not asked for the first again.
func TestSuiteThatIsDropped(t *testing.T) {
	t.Parallel()
	onPeers(t, ipmisim.Options{}, func(t *testing.T, p peer, b ipmisim.BMC) {
		if p.suite != 3 {
			t.Skip("it has no other suite")
		}
		relay := dropsSuites(t, b, suites[0])
		c := clientAt(t, relay.Addr())
		bmctest.Read(t, c)
		assert.Equal(t, 3, c.suites[0].id)
		require.NoError(t, c.Close(t.Context()))
		costs(t, []int{4}, func() []int {
			require.NoError(t, c.Close(t.Context()))
			at := relay.Asked()
			bmctest.Read(t, c)
			return []int{relay.Asked() - at}
		})
	})
}

// TestSuiteAfterARefusedOne: the BMC drops nothing, and was only away while it was asked
// for its suite. The refusal of the other one is not its last word.
func TestSuiteAfterARefusedOne(t *testing.T) {
	t.Parallel()
	relay := relayTo(t, startGo(t, ipmisim.Options{Suites: []int{17}}))
	lost := 0
	relay.Filter(losing(func(d ipmisim.Datagram) bool {
		if d.Payload() == ipmisim.PayloadOpenRequest {
			lost++
		}
		return d.Payload() == ipmisim.PayloadOpenRequest && lost <= openTries
	}))
	c := clientAt(t, relay.Addr())
	bmctest.Read(t, c)
	assert.Equal(t, 17, c.suites[0].id)
}

// TestNoSuiteIsAnswered names the key, and what became of each suite, where a suite was left out. A BMC
// that answers to none is away, and nothing is said about suites.
func TestNoSuiteIsAnswered(t *testing.T) {
	t.Parallel()
	b := startGo(t, ipmisim.Options{})
	for name, c := range map[string]struct {
		suites, dropped []int
		timeout         time.Duration
		kind            bmc.Kind
		want            string
	}{
		"both are dropped":     {nil, []int{17, 3}, 5 * time.Second, bmc.KindUnreachable, ""},
		"the only one":         {[]int{17}, []int{17}, time.Second, bmc.KindUnreachable, "cipher suite 17: not answered; the key cipherSuites"},
		"no time for a second": {nil, []int{17, 3}, 500 * time.Millisecond, bmc.KindUnreachable, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var dropped []suite
			for _, n := range c.dropped {
				dropped = append(dropped, suites[slices.IndexFunc(suites, func(s suite) bool { return s.id == n })])
			}
			h := hostAt(t, dropsSuites(t, b, dropped...).Addr())
			h.CipherSuites = c.suites
			pace.Until(t, c.want, func() bool { // a busy machine may have asked for none
				_, err := New(h, bmc.Timing{ReadTimeout: c.timeout, SendTimeout: time.Second}).Read(t.Context())
				assert.Equal(t, c.kind, bmc.KindOf(err), "%v", err)
				if c.want == "" { // no other suite could help
					assert.NotContains(t, err.Error(), "cipher")
				}
				return strings.Contains(err.Error(), c.want)
			})
		})
	}
}

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
		assert.Equal(t, bmc.On, bmctest.Read(t, c).State)
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
