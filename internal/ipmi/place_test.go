package ipmi

import (
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
)

// A name that stands for an address where no BMC may be is sent nothing. // I10
func TestNothingIsSentWhereNoBMCMayBe(t *testing.T) {
	there, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	defer there.Close()
	_, text, err := net.SplitHostPort(there.LocalAddr().String())
	require.NoError(t, err)
	port, err := strconv.Atoi(text)
	require.NoError(t, err)
	for _, host := range []string{"127.0.0.1", "localhost"} {
		d := bmc.Device{
			Endpoint: bmc.Endpoint{Protocol: bmc.ProtocolIPMI, Host: host, Port: port, Privilege: "OPERATOR"},
			Username: "fence", Password: bmc.NewSecret("secret"), Networks: &bmc.Networks{},
		}
		c := New(d, bmc.Timing{ReadTimeout: time.Minute, SendTimeout: time.Minute})
		_, err := c.Read(t.Context())
		require.ErrorContains(t, err, "loopback", host)
		require.NoError(t, c.Close(t.Context()))
	}
	require.NoError(t, there.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
	_, _, err = there.ReadFrom(make([]byte, 1))
	assert.ErrorContains(t, err, "timeout", "a datagram came")
}
