package ipmi

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/bmc/bmctest"
	"github.com/fenced/fenced/test/ipmisim"
	"github.com/fenced/fenced/test/law"
	"github.com/fenced/fenced/test/must"
	"github.com/fenced/fenced/test/pace"
)

// TestTriesSpreadOut: a BMC that is slow is asked again after 250 ms, 500 ms, 1 s
// and then every 2 s, give or take 20 %.
func TestTriesSpreadOut(t *testing.T) {
	t.Parallel()
	conn := must.Do(net.ListenPacket("udp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { _ = conn.Close() })
	times := make(chan time.Time, 20)
	go func() {
		var buf [256]byte
		for {
			if _, _, err := conn.ReadFrom(buf[:]); err != nil {
				return // closed
			}
			times <- time.Now()
		}
	}()
	// A busy machine makes some of the tries late, or notices late that they came.
	onTime := func() bool {
		for len(times) > 0 {
			<-times
		}
		c := New(hostAt(t, conn.LocalAddr().String()), bmc.Timing{ReadTimeout: 7 * time.Second, SendTimeout: time.Second})
		_, err := c.Read(t.Context())
		require.Error(t, err)
		seen := func() (at time.Time) { // zero if none came, or its noting is late
			select {
			case at = <-times:
			case <-time.After(time.Second):
			}
			return at
		}
		last := seen()
		for _, want := range []time.Duration{firstWait, 2 * firstWait, 4 * firstWait, lastWait} {
			next := seen()
			if off := next.Sub(last) - want; off.Abs() > want/5+150*time.Millisecond {
				t.Logf("a try %s after the last one, not %s", next.Sub(last), want)
				return false
			}
			last = next
		}
		return true
	}
	pace.Until(t, "tries that are spread out like this", onTime)
}

func TestJitter(t *testing.T) {
	law.Check(t, func(t *rapid.T) {
		d := time.Duration(rapid.Int64Range(0, int64(time.Minute)).Draw(t, "d"))
		got := jitter(d)
		assert.GreaterOrEqual(t, got, d*8/10-1)
		assert.LessOrEqual(t, got, d*12/10+1)
	})
	seen := map[time.Duration]bool{}
	for range 100 {
		seen[jitter(time.Hour)] = true
	}
	assert.Greater(t, len(seen), 90, "clients do not ask in step")
}

// silent is a BMC that never answers.
func silent(t *testing.T) string {
	t.Helper()
	conn := must.Do(net.ListenPacket("udp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { _ = conn.Close() })
	return conn.LocalAddr().String()
}

// cutShort asserts that do lasts for d. A try that began 0.75 s after the first one,
// give or take jitter, ends by itself only after 1.4 s: whoever waits for 0.9 s must
// have been cut short.
func cutShort(t *testing.T, d time.Duration, do func()) {
	t.Helper()
	pace.Lasts(t, d, 450*time.Millisecond, do)
}

func TestSilentBMCTakesTheDeadline(t *testing.T) {
	t.Parallel()
	h := hostAt(t, silent(t))
	cutShort(t, 900*time.Millisecond, func() {
		ctx, cancel := context.WithTimeout(t.Context(), 900*time.Millisecond)
		defer cancel()
		_, err := New(h, timing).Read(ctx)
		assert.Equal(t, bmc.KindUnreachable, bmc.KindOf(err))
		assert.ErrorIs(t, err, context.DeadlineExceeded)
	})
	cutShort(t, 900*time.Millisecond, func() {
		_, err := New(h, bmc.Timing{ReadTimeout: time.Minute, SendTimeout: 900 * time.Millisecond}).Send(t.Context(), bmc.CommandOff)
		e := bmctest.Failed(t, err, bmc.KindUnreachable)
		assert.Equal(t, bmc.SentNo, e.Sent, "no session was ever open")
		assert.Equal(t, h.Endpoint.HostPort(), e.Addr)
	})
	_, err := New(h, bmc.Timing{ReadTimeout: 500 * time.Millisecond, SendTimeout: time.Second}).Describe(t.Context())
	bmctest.Failed(t, err, bmc.KindUnreachable)
}

func TestNothingIsSentForACallerThatHasGone(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	relay := relayTo(t, startGo(t, ipmisim.Options{}))
	warm := clientAt(t, relay.Addr())
	bmctest.Read(t, warm)
	costs(t, []int{1}, func() []int {
		asked := relay.Asked()
		_, err := warm.Send(ctx, bmc.CommandOff)
		assert.ErrorIs(t, err, context.Canceled)
		assert.Equal(t, bmc.On, bmctest.Read(t, warm).State)
		return []int{relay.Asked() - asked}
	})
}

func TestClosedPort(t *testing.T) {
	t.Parallel()
	// A socket that is connected elsewhere keeps the port, and the kernel refuses all others.
	conn, err := net.Dial("udp", silent(t))
	require.NoError(t, err)
	defer conn.Close()
	c := New(hostAt(t, conn.LocalAddr().String()), timing)
	pace.Once(t, time.Second, func() {
		_, err = c.Read(t.Context())
		assert.Equal(t, bmc.KindRefused, bmc.KindOf(err), "%v", err)
	})
}

func TestPortClosesUnderASession(t *testing.T) {
	t.Parallel()
	b := startGo(t, ipmisim.Options{})
	c := clientAt(t, b.Addr())
	before := bmctest.Read(t, c)
	b.Stop()
	_, err := c.Read(t.Context())
	assert.Equal(t, bmc.KindRefused, bmc.KindOf(err), "%v", err)

	assert.Equal(t, ipmisim.PayloadOpenRequest, firstAsked(t, c, b.Addr()).Payload(), "the dead session is not tried first")

	again := startGo(t, ipmisim.Options{Addr: b.Addr()})
	after := bmctest.Read(t, c)
	assert.NotEqual(t, before.Session, after.Session, "a BMC that restarted voids a proof")
	assert.Positive(t, again.Counts().Status)
}

// firstAsked is what a client sends first to a BMC at this address, where nobody else
// listens.
func firstAsked(t *testing.T, c *Client, addr string) ipmisim.Datagram {
	t.Helper()
	conn := must.Do(again(ipmisim.Options{Addr: addr}, func() (net.PacketConn, error) { return net.ListenPacket("udp", addr) }))(t)
	defer conn.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var first ipmisim.Datagram
	go func() {
		defer cancel()
		var buf [1024]byte
		if n, _, err := conn.ReadFrom(buf[:]); err == nil {
			first.Data = buf[:n]
		}
	}()
	_, err := c.Read(ctx)
	require.Error(t, err)
	<-ctx.Done()
	return first
}

// TestBMCForgetsTheSession restarts the BMC between two reads, unnoticed.
func TestBMCForgetsTheSession(t *testing.T) {
	t.Parallel()
	onPeers(t, ipmisim.Options{}, func(t *testing.T, p peer, b ipmisim.BMC) {
		c := clientAt(t, b.Addr())
		before := bmctest.Read(t, c)
		b.Stop()
		p.start(t, ipmisim.Options{Addr: b.Addr()})
		after := bmctest.Read(t, c)
		assert.NotEqual(t, before.Session, after.Session)
		assert.Equal(t, before.Identity, after.Identity)
	})
}

func TestSessionsOfTwoClientsDiffer(t *testing.T) {
	b := startGo(t, ipmisim.Options{})
	r1 := bmctest.Read(t, clientAt(t, b.Addr()))
	r2 := bmctest.Read(t, clientAt(t, b.Addr()))
	assert.NotEqual(t, r1.Session, r2.Session)
}

func TestIdleSessionIsReplaced(t *testing.T) {
	t.Parallel()
	b := startGo(t, ipmisim.Options{})
	c := clientAt(t, b.Addr())
	before := bmctest.Read(t, c)
	c.session.lastAnswer = time.Now().Add(-idleLimit - time.Second)
	after := bmctest.Read(t, c)
	assert.NotEqual(t, before.Session, after.Session)
	assert.Eventually(t, func() bool { return b.Sessions() == 1 }, pace.Tries, 5*time.Millisecond,
		"the old one was closed on the BMC")
}

func TestNoSessionLeft(t *testing.T) {
	t.Parallel()
	// On a busy machine an answer may be late: another session is opened, and ended later.
	pace.Until(t, "a session for each of four, none for a fifth, and one after a Close", func() bool {
		b := startGo(t, ipmisim.Options{})
		var first *Client
		for range 4 { // as many as go-ipmi's server has
			c := clientAt(t, b.Addr())
			if _, err := c.Read(t.Context()); err != nil {
				t.Log(err)
				return false
			}
			if first == nil {
				first = c
			}
		}
		c := clientAt(t, b.Addr())
		if _, err := c.Read(t.Context()); bmc.KindOf(err) != bmc.KindSessions {
			t.Log(err)
			return false
		}
		closed := first.Close(t.Context())
		_, err := c.Read(t.Context())
		t.Log(closed, err)
		return closed == nil && err == nil
	})
}

func TestCloseOfASilentBMC(t *testing.T) {
	t.Parallel()
	relay := relayTo(t, startGo(t, ipmisim.Options{}))
	c := clientAt(t, relay.Addr())
	c.timing.ReadTimeout = 10 * pace.Hang
	bmctest.Read(t, c)
	relay.Filter(func(ipmisim.Datagram) []ipmisim.Datagram { return nil })
	begun := time.Now()
	assert.Equal(t, bmc.KindUnreachable, bmc.KindOf(c.Close(t.Context())))
	assert.Less(t, time.Since(begun), pace.Hang, "it does not take as long as a Read may")
	assert.NoError(t, c.Close(t.Context()), "nothing is left to close")
}
