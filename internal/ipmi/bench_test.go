package ipmi

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/test/ipmisim"
)

func benchBMC(b *testing.B) *ipmisim.GoBMC {
	b.Helper()
	peer, err := ipmisim.StartGo(b.Context(), ipmisim.Options{})
	require.NoError(b, err)
	b.Cleanup(peer.Stop)
	return peer
}

func BenchmarkStatusWarm(b *testing.B) {
	c := New(hostAt(b, benchBMC(b).Addr()), timing)
	defer c.drop()
	for b.Loop() {
		_, err := c.Read(b.Context())
		require.NoError(b, err)
	}
}

func BenchmarkStatusCold(b *testing.B) {
	c := New(hostAt(b, benchBMC(b).Addr()), timing)
	for b.Loop() {
		_, err := c.Read(b.Context())
		require.NoError(b, err)
		require.NoError(b, c.Close(b.Context()))
	}
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
