package ipmisim_test

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/test/ipmisim"
)

// echo is a peer that sends everything back, behind a relay, and its client.
func echo(t *testing.T) (*ipmisim.Relay, net.Conn) {
	t.Helper()
	peer, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = peer.Close() })
	go func() {
		var buf [64]byte
		for {
			n, from, err := peer.ReadFrom(buf[:])
			if err != nil {
				return // closed
			}
			_, _ = peer.WriteTo(buf[:n], from)
		}
	}()
	r, err := ipmisim.StartRelay(peer.LocalAddr().String())
	require.NoError(t, err)
	t.Cleanup(r.Stop)
	client, err := net.Dial("udp", r.Addr())
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return r, client
}

// exchange sends n numbered datagrams and gives the numbers that came back.
func exchange(t *testing.T, client net.Conn, n int) []byte {
	t.Helper()
	for i := range n {
		_, err := client.Write([]byte{byte(i)})
		require.NoError(t, err)
		time.Sleep(time.Millisecond) // a socket's buffer is not endless
	}
	var got []byte
	var buf [64]byte
	for {
		require.NoError(t, client.SetReadDeadline(time.Now().Add(200*time.Millisecond)))
		if _, err := client.Read(buf[:]); err != nil {
			return got
		}
		got = append(got, buf[0])
	}
}

func TestNetworkDelays(t *testing.T) {
	r, client := echo(t)
	r.Delay(60 * time.Millisecond)
	begun := time.Now()
	_, err := client.Write([]byte{1})
	require.NoError(t, err)
	var buf [64]byte
	require.NoError(t, client.SetReadDeadline(time.Now().Add(5*time.Second)))
	_, err = client.Read(buf[:])
	require.NoError(t, err)
	assert.GreaterOrEqual(t, time.Since(begun), 60*time.Millisecond)
	assert.Equal(t, 1, r.Asked())
	assert.Equal(t, 1, r.Answered())
}

func TestNetworkLosesAlikeForASeed(t *testing.T) {
	const sent = 100
	runs := [2][]byte{}
	for i := range runs {
		r, client := echo(t)
		r.Network(ipmisim.Network{Loss: 0.3, Seed: 7})
		// Only the way there is diced for: how both ways interleave is chance.
		r.Filter(func(d ipmisim.Datagram) []ipmisim.Datagram {
			if d.FromBMC {
				runs[i] = append(runs[i], d.Data[0])
				return nil
			}
			return []ipmisim.Datagram{d}
		})
		exchange(t, client, sent)
		r.Stop()
	}
	assert.InDelta(t, 70, len(runs[0]), 20)
	assert.Equal(t, runs[0], runs[1])
}

func TestNetworkDoublesAndReorders(t *testing.T) {
	r, client := echo(t)
	r.Network(ipmisim.Network{Double: 1})
	assert.Len(t, exchange(t, client, 3), 12, "each way doubles")

	r, client = echo(t)
	r.Network(ipmisim.Network{Reorder: 1})
	exchange(t, client, 4)
	var arrived []byte
	for _, d := range r.Seen() {
		if d.FromBMC { // in the order in which the peer got them
			arrived = append(arrived, d.Data[0])
		}
	}
	assert.Equal(t, []byte{1, 0, 3, 2}, arrived)
}
