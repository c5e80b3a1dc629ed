package ipmisim

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/test/pace"
)

// Clients that went away without a word leave no socket behind for ever, and one that
// was only silent is served again.
func TestRelayForgetsSilentClients(t *testing.T) {
	bmc, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	defer bmc.Close()
	r, err := StartRelay(bmc.LocalAddr().String())
	require.NoError(t, err)
	defer r.Stop()
	r.mu.Lock()
	r.idle = 50 * time.Millisecond
	r.mu.Unlock()
	sockets := func() int {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.back)
	}
	client, err := net.Dial("udp", r.Addr())
	require.NoError(t, err)
	defer client.Close()
	for range 2 {
		_, err = client.Write([]byte("ask"))
		require.NoError(t, err)
		var buf [8]byte
		require.NoError(t, bmc.SetReadDeadline(time.Now().Add(pace.Hang)))
		n, _, err := bmc.ReadFrom(buf[:])
		require.NoError(t, err)
		assert.Equal(t, "ask", string(buf[:n]))
		require.Eventually(t, func() bool { return sockets() == 0 }, time.Minute, 10*time.Millisecond)
	}
}
