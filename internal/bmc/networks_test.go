package bmc

import (
	"net"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestNetworksRefuse(t *testing.T) {
	own := []netip.Addr{netip.MustParseAddr("10.0.0.5"), netip.MustParseAddr("fd00::5")}
	for _, c := range []struct {
		listed []string
		ip     string
		may    bool
	}{
		{nil, "192.0.2.1", true},
		{nil, "2001:db8::1", true},
		{nil, "127.0.0.1", false},
		{nil, "127.9.9.9", false},
		{nil, "::1", false},
		{nil, "::ffff:127.0.0.1", false},
		{nil, "169.254.169.254", false},
		{nil, "fe80::1%eth0", false},
		{nil, "224.0.0.1", false},
		{nil, "ff02::1", false},
		{nil, "255.255.255.255", false},
		{nil, "0.0.0.0", false},
		{nil, "::", false},
		{nil, "10.0.0.5", false},
		{nil, "::ffff:10.0.0.5", false},
		{nil, "fd00::5", false},
		{nil, "10.0.0.6", true},
		{[]string{"10.0.0.0/8"}, "10.0.0.6", true},
		{[]string{"10.0.0.0/8"}, "192.0.2.1", false},
		{[]string{"10.0.0.0/8"}, "10.0.0.5", false},
		{[]string{"10.0.0.5/32"}, "10.0.0.5", true},
		{[]string{"127.0.0.0/8"}, "127.0.0.1", true},
		{[]string{"127.0.0.0/8"}, "10.0.0.6", false},
		{[]string{"0.0.0.0/0"}, "127.0.0.1", false},
		{[]string{"0.0.0.0/0"}, "192.0.2.1", true},
		{[]string{"0.0.0.0/0"}, "2001:db8::1", false},
		{[]string{"::/0"}, "fe80::1", false},
		{[]string{"fe80::/10", "10.0.0.0/8"}, "fe80::1%eth0", true},
	} {
		n := &Networks{Own: own}
		for _, text := range c.listed {
			n.Listed = append(n.Listed, netip.MustParsePrefix(text))
		}
		assert.Equal(t, c.may, n.RefuseHost(c.ip) == "", "%v %s: %s", c.listed, c.ip, n.RefuseHost(c.ip))
		at := net.JoinHostPort(c.ip, "443")
		assert.Equal(t, c.may, n.Control("tcp", at, nil) == nil, "%v %s", c.listed, at)
	}
	var anywhere *Networks
	assert.Empty(t, anywhere.RefuseHost("127.0.0.1"))
	require.NoError(t, anywhere.Control("udp", "127.0.0.1:623", nil))
	assert.Empty(t, new(Networks).RefuseHost("bmc.example.org"), "a name is looked at when it is dialed")
	require.Error(t, new(Networks).Control("udp", "bmc.example.org:623", nil), "what cannot be read is refused")
}
