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
	"github.com/fenced/fenced/test/ipmisim"
	"github.com/fenced/fenced/test/law"
	"github.com/fenced/fenced/test/pace"
)

// TestHeldBackOff lets a man in the middle hold back genuine replies from the time
// when the host was off, and give them in place of the answer to a later question:
// after one command, and when each number that a command can have was used. // I1
func TestHeldBackOff(t *testing.T) {
	t.Parallel()
	for name, commands := range map[string]int{"one": 1, "as many as there are numbers": 64, "more": 70} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onPeers(t, ipmisim.Options{}, func(t *testing.T, _ peer, b ipmisim.BMC) {
				relay := relayTo(t, b)
				c := clientAt(t, relay.Addr())
				_, err := c.Read(t.Context())
				require.NoError(t, err)
				require.NoError(t, b.SetPower(false))
				var held [][]byte
				arrived := make(chan struct{}, 2*commands)
				relay.Filter(func(d ipmisim.Datagram) []ipmisim.Datagram {
					if !d.FromBMC {
						return []ipmisim.Datagram{d}
					}
					held = append(held, d.Data)
					arrived <- struct{}{}
					return nil
				})
				for range commands {
					ctx, cancel := context.WithCancel(t.Context())
					go func() {
						<-arrived
						cancel()
					}()
					_, err := c.Read(ctx)
					require.Error(t, err)
				}
				require.NoError(t, b.SetPower(true))
				relay.Filter(func(d ipmisim.Datagram) []ipmisim.Datagram {
					if d.FromBMC || d.Payload() != ipmisim.PayloadIPMI || held == nil {
						return []ipmisim.Datagram{d}
					}
					var late []ipmisim.Datagram
					for _, data := range held {
						late = append(late, d.Reply(data))
					}
					held = nil
					return late
				})
				r, err := c.Read(t.Context())
				require.NoError(t, err)
				assert.Equal(t, bmc.On, r.State)
				assert.Nil(t, held, "the old replies were given")
			})
		})
	}
}

// TestTriesSpreadOut: a BMC that is slow is asked again after 250 ms, 500 ms, 1 s
// and then every 2 s, give or take 20 %.
func TestTriesSpreadOut(t *testing.T) {
	t.Parallel()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
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
