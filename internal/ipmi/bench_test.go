package ipmi

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/test/ipmisim"
)

func benchBMC(b *testing.B) *ipmisim.GoBMC {
	b.Helper()
	peer, err := ipmisim.StartGo(b.Context(), ipmisim.Options{})
	require.NoError(b, err)
	b.Cleanup(peer.Stop)
	return peer
}

func benchRead(b *testing.B, c *Client) {
	b.Helper()
	_, err := c.Read(b.Context())
	require.NoError(b, err)
}

// benchOff is a power off and one confirming read.
func benchOff(b *testing.B, c *Client) {
	b.Helper()
	_, err := c.Send(b.Context(), bmc.CommandOff)
	require.NoError(b, err)
	benchRead(b, c)
}

// warm runs op in one session, and tells the round trips beside the time.
func warm(b *testing.B, op func(*testing.B, *Client)) {
	peer := benchBMC(b)
	c := New(hostAt(b, peer.Addr()), timing)
	defer c.drop()
	op(b, c) // opens the session, and raises its privilege if need be
	begun := peer.Asked()
	for b.Loop() {
		op(b, c)
	}
	b.ReportMetric(float64(peer.Asked()-begun)/float64(b.N), "RT/op")
}

// cold runs op in a session of its own each time; the close is timed too, and
// not among the round trips, because no answer waits for it.
func cold(b *testing.B, op func(*testing.B, *Client)) {
	peer := benchBMC(b)
	c := New(hostAt(b, peer.Addr()), timing)
	for b.Loop() {
		op(b, c)
		require.NoError(b, c.Close(b.Context()))
	}
	b.ReportMetric(float64(peer.Asked())/float64(b.N)-1, "RT/op")
}

func BenchmarkStatusWarm(b *testing.B) { warm(b, benchRead) }

func BenchmarkStatusCold(b *testing.B) { cold(b, benchRead) }

func BenchmarkOffConfirmWarm(b *testing.B) { warm(b, benchOff) }

func BenchmarkOffConfirmCold(b *testing.B) { cold(b, benchOff) }

// BenchmarkStatusColdDelayed is a cold status over a network that adds 20 ms to
// each round trip: docs/performance.md allows 10 % on top of four.
func BenchmarkStatusColdDelayed(b *testing.B) {
	relay, err := ipmisim.StartRelay(benchBMC(b).Addr())
	require.NoError(b, err)
	b.Cleanup(relay.Stop)
	relay.Delay(20 * time.Millisecond)
	c := New(hostAt(b, relay.Addr()), timing)
	for b.Loop() {
		benchRead(b, c)
		b.StopTimer()
		require.NoError(b, c.Close(b.Context()))
		b.StartTimer()
	}
	b.ReportMetric(float64(relay.Asked())/float64(b.N)-1, "RT/op")
}

// BenchmarkSweep is a cold status of a thousand BMCs, 64 at a time, the sum of
// what the clients and the simulated BMCs cost. docs/performance.md allows 0.2 s.
func BenchmarkSweep(b *testing.B) {
	var clients []*Client
	for range 1000 {
		clients = append(clients, New(hostAt(b, benchBMC(b).Addr()), timing))
	}
	for b.Loop() {
		todo := make(chan *Client)
		var wg sync.WaitGroup
		for range 64 {
			wg.Go(func() {
				for c := range todo {
					_, err := c.Read(b.Context())
					require.NoError(b, err)
				}
			})
		}
		for _, c := range clients {
			todo <- c
		}
		close(todo)
		wg.Wait()
		b.StopTimer()
		for _, c := range clients {
			require.NoError(b, c.Close(b.Context()))
		}
		b.StartTimer()
	}
}
