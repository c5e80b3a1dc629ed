package ipmisim

import (
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/test/must"
	"github.com/fenced/fenced/test/pace"
)

// Clients that went away without a word leave no socket behind for ever, and one that
// was only silent is served again.
func TestRelayForgetsSilentClients(t *testing.T) {
	bmc := must.Do(net.ListenPacket("udp", "127.0.0.1:0"))(t)
	defer bmc.Close()
	r := must.Do(StartRelay(bmc.LocalAddr().String()))(t)
	defer r.Stop()
	r.mu.Lock()
	r.idle = 50 * time.Millisecond
	r.mu.Unlock()
	sockets := func() int {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.back)
	}
	client := must.Do(net.Dial("udp", r.Addr()))(t)
	defer client.Close()
	for range 2 {
		must.Do(client.Write([]byte("ask")))(t)
		var buf [8]byte
		require.NoError(t, bmc.SetReadDeadline(time.Now().Add(pace.Hang)))
		n, _, err := bmc.ReadFrom(buf[:])
		require.NoError(t, err)
		assert.Equal(t, "ask", string(buf[:n]))
		require.Eventually(t, func() bool { return sockets() == 0 }, time.Minute, 10*time.Millisecond)
	}
}

// echo is a peer that sends everything back, behind a relay, and its client.
func echo(t *testing.T) (*Relay, net.Conn) {
	t.Helper()
	peer := must.Do(net.ListenPacket("udp", "127.0.0.1:0"))(t)
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
	r := must.Do(StartRelay(peer.LocalAddr().String()))(t)
	t.Cleanup(r.Stop)
	client := must.Do(net.Dial("udp", r.Addr()))(t)
	t.Cleanup(func() { _ = client.Close() })
	return r, client
}

// exchange sends n numbered datagrams and gives the first numbers that came back.
func exchange(t *testing.T, client net.Conn, n, want int) []byte {
	t.Helper()
	for i := range n {
		must.Do(client.Write([]byte{byte(i)}))(t)
		time.Sleep(time.Millisecond) // a socket's buffer is not endless
	}
	var got []byte
	var buf [64]byte
	for len(got) < want {
		require.NoError(t, client.SetReadDeadline(time.Now().Add(pace.Hang)))
		must.Do(client.Read(buf[:]))(t)
		got = append(got, buf[0])
	}
	return got
}

func TestNetworkDelays(t *testing.T) {
	r, client := echo(t)
	r.Delay(60 * time.Millisecond)
	begun := time.Now()
	must.Do(client.Write([]byte{1}))(t)
	var buf [64]byte
	require.NoError(t, client.SetReadDeadline(time.Now().Add(pace.Hang)))
	must.Do(client.Read(buf[:]))(t)
	assert.GreaterOrEqual(t, time.Since(begun), 60*time.Millisecond)
	assert.Equal(t, 1, r.Asked())
}

func TestNetworkLosesAlikeForASeed(t *testing.T) {
	const sent, last = 100, 255
	runs := [2][]byte{}
	for i := range runs {
		r, client := echo(t)
		done := make(chan struct{})
		r.Network(Network{Loss: 0.3, Seed: 7})
		// Only the way there is diced for: how both ways interleave is chance.
		r.Filter(func(d Datagram) []Datagram {
			switch {
			case !d.FromBMC:
				return []Datagram{d}
			case d.Data[0] == last:
				close(done)
			default:
				runs[i] = append(runs[i], d.Data[0])
			}
			return nil
		})
		exchange(t, client, sent, 0)
		require.Eventually(t, func() bool { return r.Asked() == sent }, pace.Hang, time.Millisecond)
		r.Network(Network{})
		must.Do(client.Write([]byte{last}))(t)
		<-done // and so is all that went before
		r.Stop()
	}
	assert.InDelta(t, 70, len(runs[0]), 20)
	assert.Equal(t, runs[0], runs[1])
}

func TestNetworkDoublesAndReorders(t *testing.T) {
	r, client := echo(t)
	r.Network(Network{Double: 1})
	assert.Len(t, exchange(t, client, 3, 12), 12, "each way doubles")
	require.NoError(t, client.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
	_, err := client.Read(make([]byte, 64))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded, "and no more")

	r, client = echo(t)
	r.Network(Network{Reorder: 1})
	exchange(t, client, 4, 4)
	var arrived []byte
	for _, d := range r.Seen() {
		if d.FromBMC { // in the order in which the peer got them
			arrived = append(arrived, d.Data[0])
		}
	}
	assert.Equal(t, []byte{1, 0, 3, 2}, arrived)
}
