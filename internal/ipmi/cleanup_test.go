package ipmi

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/bmc/bmctest"
	"github.com/fenced/fenced/test/ipmisim"
	"github.com/fenced/fenced/test/pace"
)

// TestCutLoginLeavesNoSession: the caller goes while an answer of the handshake is
// still on its way; the session that it tells of is ended all the same.
func TestCutLoginLeavesNoSession(t *testing.T) {
	t.Parallel()
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

// TestSlowBMC: a BMC that answers later than the first tries wait for, and each repeated request with a
// session of its own, is left with one. What comes late for one try is not taken for another, and no
// command is carried out twice in vain.
func TestSlowBMC(t *testing.T) {
	t.Parallel()
	pace.Until(t, "one session, although several were requested, and an off that is carried out twice at most", func() bool {
		b := startGo(t, ipmisim.Options{Sessions: 64})
		b.Slow(700 * time.Millisecond)
		relay := relayTo(t, b)
		c := clientAt(t, relay.Addr())
		bmctest.Send(t, c, bmc.CommandOff)
		assert.Equal(t, bmc.Off, bmctest.Read(t, c).State)
		opened := 0
		for _, d := range relay.Seen() {
			if d.Payload() == ipmisim.PayloadOpenRequest {
				opened++
			}
		}
		require.Greater(t, opened, 1)
		return b.Counts().Off <= 2 && comesTrue(func() bool { return b.Sessions() == 1 })
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
	assert.Equal(t, bmc.On, bmctest.Read(t, clientAt(t, relay.Addr())).State)
	assert.Less(t, relay.Asked(), 100, "half of what was forged")
}

// TestPyghmiLives cuts a login after each of its datagrams, and loses each of them: the
// BMC is there for the next login. startPyghmi fails the test if it has ended.
func TestPyghmiLives(t *testing.T) {
	t.Parallel()
	b := startPyghmi(t, ipmisim.Options{})
	var wait sync.WaitGroup
	for _, k := range kinds {
		for _, lost := range []bool{true, false} {
			wait.Go(func() { // each waits most of the time
				t.Run(fmt.Sprintf("%s lost %v", k.name, lost), func(t *testing.T) {
					relay := relayTo(t, b)
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					hit := false
					relay.Filter(func(d ipmisim.Datagram) []ipmisim.Datagram {
						if hit || d.FromBMC != k.fromBMC || d.Payload() != k.payload {
							return []ipmisim.Datagram{d}
						}
						if hit = true; lost {
							return nil
						}
						cancel()
						return []ipmisim.Datagram{d}
					})
					c := clientAt(t, relay.Addr())
					if _, err := c.Read(ctx); lost {
						assert.NoError(t, err)
					}
					c.drop()
					time.Sleep(lingerTime) // what is still sent in the background must not end it either
					assert.Equal(t, bmc.On, bmctest.Read(t, clientAt(t, relay.Addr())).State)
				})
			})
		}
	}
	wait.Wait()
}

// TestRefusalFollowsRAKP2: each session that is refused has sent its RAKP 2 before,
// whatever became of the login, and of an audit.
func TestRefusalFollowsRAKP2(t *testing.T) {
	t.Parallel()
	onPeers(t, ipmisim.Options{}, func(t *testing.T, p peer, b ipmisim.BMC) {
		relay := relayTo(t, b)
		relay.Network(withoutDoubles(b, ipmisim.Network{Double: 0.3, Reorder: 0.1, Loss: 0.1, Seed: 11}))
		for _, change := range []func(*bmc.Device){
			func(*bmc.Device) {},
			func(d *bmc.Device) { d.Username = "nobody" },
			withPassword("not-the-password"),
			withSuites(20-p.suite, p.suite),
		} {
			c := clientAt(t, relay.Addr(), change)
			c.timing = bmc.Timing{ReadTimeout: time.Second, SendTimeout: time.Second}
			_, _ = c.Read(t.Context()) // refused or not
			_, _ = c.Audit(t.Context())
			c.drop()
		}
		relay.Network(ipmisim.Network{})
		_, err := clientAt(t, relay.Addr(), withPassword("not-the-password")).Read(t.Context())
		assert.Equal(t, bmc.KindAuth, bmc.KindOf(err), "%v", err)
		require.Eventually(t, func() bool { return refused(t, relay.Seen()) > 0 }, pace.Hang, 10*time.Millisecond,
			"nothing was refused: the test shows nothing")
	})
}

// refused counts the sessions that were refused, each of which must have sent its RAKP 2.
func refused(t *testing.T, seen []ipmisim.Datagram) int {
	asked, ready, count := map[byte]uint32{}, map[uint32]bool{}, 0
	for _, d := range seen {
		if d.Payload() < ipmisim.PayloadRAKP1 || len(d.Data) < headerLen+8 {
			continue
		}
		tag, session := d.Data[headerLen], binary.LittleEndian.Uint32(d.Data[headerLen+4:])
		switch d.Payload() {
		case ipmisim.PayloadRAKP1:
			asked[tag] = session
		case ipmisim.PayloadRAKP2:
			ready[asked[tag]] = true
		case ipmisim.PayloadRAKP3:
			if d.Data[headerLen+1] != 0 {
				count++
				assert.True(t, ready[session], "refused, and its RAKP 2 was not sent")
			}
		}
	}
	return count
}

// TestReplacedSession: each repeated Open Session Request replaces the session of
// pyghmi. RAKP 2 is then about another session than ours, which is no wrong password.
func TestReplacedSession(t *testing.T) {
	t.Parallel()
	t.Run("a slow answer", func(t *testing.T) {
		t.Parallel()
		relay := relayTo(t, startPyghmi(t, ipmisim.Options{}))
		relay.Delay(600 * time.Millisecond)
		assert.Equal(t, bmc.On, bmctest.Read(t, clientAt(t, relay.Addr(), withSuites(3))).State)
		assert.Equal(t, proofs(relay.Seen()), failedLogins(relay.Seen()), "the password was never called wrong")

		before := len(relay.Seen())
		_, err := clientAt(t, relay.Addr(), withSuites(3), withPassword("not-the-password")).Read(t.Context())
		assert.Equal(t, bmc.KindAuth, bmc.KindOf(err), "%v", err)
		assert.Zero(t, proofs(relay.Seen()[before:]))
		assert.LessOrEqual(t, failedLogins(relay.Seen()[before:]), 1, "a BMC locks accounts")
	})
	t.Run("two answers", func(t *testing.T) {
		t.Parallel()
		relay := relayTo(t, startPyghmi(t, ipmisim.Options{}))
		relay.Filter(doublesOneRequest())
		bmctest.Read(t, clientAt(t, relay.Addr()))
	})
}

// TestNewestSession: two answers of pyghmi to a repeated request arrive together. The
// session of the later request is the one that it knows: no second login is needed.
func TestNewestSession(t *testing.T) {
	t.Parallel()
	b := startPyghmi(t, ipmisim.Options{})
	pace.Until(t, "one handshake", func() bool {
		relay := relayTo(t, b)
		var first *ipmisim.Datagram
		relay.Filter(func(d ipmisim.Datagram) []ipmisim.Datagram {
			if d.Payload() != ipmisim.PayloadOpenResponse {
				return []ipmisim.Datagram{d}
			}
			if first == nil {
				first = &d
				return nil
			}
			return []ipmisim.Datagram{*first, d}
		})
		bmctest.Read(t, clientAt(t, relay.Addr(), withSuites(3)))
		return len(consoles(relay.Seen())) == 1
	})
}

// consoles are the session ids of the console in all Open Session Requests: one for each
// handshake.
func consoles(seen []ipmisim.Datagram) map[uint32]bool {
	ids := map[uint32]bool{}
	for _, d := range seen {
		if d.Payload() == ipmisim.PayloadOpenRequest {
			ids[binary.LittleEndian.Uint32(d.Data[headerLen+4:])] = true
		}
	}
	return ids
}

// doublesOneRequest is a network that doubles the first request with suite 3. The BMC has
// answered the first of the two before the second arrives, and both answers arrive
// together.
func doublesOneRequest() func(ipmisim.Datagram) []ipmisim.Datagram {
	var request, answer *ipmisim.Datagram
	done := false
	return func(d ipmisim.Datagram) []ipmisim.Datagram {
		switch {
		case done:
		case d.Payload() == ipmisim.PayloadOpenRequest && d.Data[headerLen+12] == suites[1].auth:
			request = &d
		case d.Payload() == ipmisim.PayloadOpenResponse && request != nil && answer == nil:
			answer = &d
			return []ipmisim.Datagram{*request}
		case d.Payload() == ipmisim.PayloadOpenResponse && answer != nil:
			done = true
			return []ipmisim.Datagram{*answer, d}
		}
		return []ipmisim.Datagram{d}
	}
}

// TestForgedDoubt: a man in the middle who adds Open Session Responses makes each login
// look like one that was replaced. With the right password that costs nothing. With a
// RAKP 2 that he alters it ends as before, after a bounded number of logins, none of
// which proves the password.
func TestForgedDoubt(t *testing.T) {
	t.Parallel()
	onPeers(t, ipmisim.Options{}, func(t *testing.T, _ peer, b ipmisim.BMC) {
		relay := relayTo(t, b)
		var alter atomic.Bool
		relay.Filter(func(d ipmisim.Datagram) []ipmisim.Datagram {
			switch {
			case d.Payload() == ipmisim.PayloadOpenResponse && len(d.Data) > headerLen+12 && d.Data[headerLen+1] == 0:
				other := append([]byte(nil), d.Data...)
				other[headerLen+8] ^= 0x01
				return []ipmisim.Datagram{d, d.With(other)}
			case d.Payload() == ipmisim.PayloadRAKP2 && alter.Load():
				d.Data[len(d.Data)-1] ^= 0x01
			}
			return []ipmisim.Datagram{d}
		})
		if _, pyghmi := b.(*ipmisim.PyghmiBMC); !pyghmi { // which takes RAKP 1 for the forged session as its own
			bmctest.Read(t, clientAt(t, relay.Addr()))
		}
		alter.Store(true)
		before := len(relay.Seen())
		_, err := clientAt(t, relay.Addr()).Read(t.Context())
		assert.Equal(t, bmc.KindAuth, bmc.KindOf(err), "%v", err)
		assert.Zero(t, proofs(relay.Seen()[before:]))
		assert.LessOrEqual(t, failedLogins(relay.Seen()[before:]), 1)
		assert.LessOrEqual(t, len(consoles(relay.Seen()[before:])), 2*maxHandshakes, "one for each suite")
	})
}

// TestStaleProof: the network doubles each RAKP 1, so each RAKP 3 proves the password with
// a random number that the BMC has replaced. A BMC that says nothing gets one such proof in
// a handshake, also from what ends the session in the background.
func TestStaleProof(t *testing.T) {
	t.Parallel()
	relay := relayTo(t, startPyghmi(t, ipmisim.Options{}))
	relay.Filter(func(d ipmisim.Datagram) []ipmisim.Datagram {
		if d.Payload() == ipmisim.PayloadRAKP1 {
			return []ipmisim.Datagram{d, d}
		}
		return []ipmisim.Datagram{d}
	})
	_, err := clientAt(t, relay.Addr()).Read(t.Context())
	assert.Equal(t, bmc.KindUnreachable, bmc.KindOf(err), "%v", err)
	time.Sleep(lingerTime)
	assert.Positive(t, proofs(relay.Seen()))
	assert.LessOrEqual(t, proofs(relay.Seen()), maxHandshakes)
}

// TestSurplusSessionsEnd: a BMC that opens a session for each repeated request is left
// with none when the login fails.
func TestSurplusSessionsEnd(t *testing.T) {
	t.Parallel()
	pace.Until(t, "no session left", func() bool {
		b := startGo(t, ipmisim.Options{Sessions: 64})
		relay := relayTo(t, b)
		relay.Filter(doublesOneRequest())
		_, err := clientAt(t, relay.Addr(), withSuites(3), withPassword("not-the-password")).Read(t.Context())
		require.Equal(t, bmc.KindAuth, bmc.KindOf(err))
		return comesTrue(func() bool { return b.Sessions() == 0 })
	})
}
