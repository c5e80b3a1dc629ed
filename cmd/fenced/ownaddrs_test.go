package main

import (
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/test/asroot"
)

// netlinkAddrs are the same addresses as the kernel tells them over netlink.
func netlinkAddrs(t *testing.T) (list []string) {
	t.Helper()
	addrs, err := net.InterfaceAddrs()
	require.NoError(t, err)
	for _, a := range addrs {
		list = append(list, netip.MustParsePrefix(a.String()).Addr().String())
	}
	return list
}

func ownAddrTexts(t *testing.T) (list []string) {
	t.Helper()
	addrs, err := ownAddrs()
	require.NoError(t, err)
	for _, a := range addrs {
		list = append(list, a.String())
	}
	return list
}

// The addresses that protect this host from being fenced are all that the kernel has. // I13
func TestOwnAddresses(t *testing.T) {
	before := netlinkAddrs(t)
	require.NotEmpty(t, before)
	for {
		own, after := ownAddrTexts(t), netlinkAddrs(t)
		if slices.Equal(before, after) { // nobody changed them meanwhile
			assert.ElementsMatch(t, after, own)
			return
		}
		before = after
	}
}

// manyAddrs sets up a network namespace: more addresses than the first room has, second ones, one of a pair, and one on an interface
// that is down.
const manyAddrs = `set -e
ip link set lo up
for i in $(seq 1 100); do ip addr add 192.0.2.$i/24 dev lo; done
ip addr add 198.51.100.1 peer 198.51.100.2 dev lo
ip -6 addr add 2001:db8::7/64 dev lo nodad
ip link add fenced-a type veth peer name fenced-b
ip addr add 203.0.113.9/24 dev fenced-a
ip link set fenced-b up
exec "$@"`

func TestOwnAddressesAreAll(t *testing.T) {
	if os.Getenv("FENCED_TEST_NET") != "" {
		own := ownAddrTexts(t)
		assert.ElementsMatch(t, netlinkAddrs(t), own)
		assert.Subset(t, own, []string{"127.0.0.1", "192.0.2.1", "192.0.2.100", "198.51.100.1"})
		return
	}
	asroot.Need(t, "make a network namespace")
	if text, err := exec.Command("unshare", "--net", "sh", "-c", manyAddrs, "sh", "true").CombinedOutput(); err != nil {
		t.Skipf("no such network can be made here: %s", text)
	}
	cmd := exec.Command("unshare", "--net", "sh", "-c", manyAddrs, "sh", os.Args[0], "-test.run", "^TestOwnAddressesAreAll$")
	cmd.Env = append(os.Environ(), "FENCED_TEST_NET=1")
	text, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", text)
}

func TestParseInet6(t *testing.T) {
	addrs, err := parseInet6("00000000000000000000000000000001 01 80 10 80       lo\nfe80000000000000021b21fffe000001 02 40 20 80     eth0\n")
	require.NoError(t, err)
	assert.Equal(t, []netip.Addr{netip.MustParseAddr("::1"), netip.MustParseAddr("fe80::21b:21ff:fe00:1")}, addrs)
	for _, bad := range []string{"\n", "7f000001 01\n", "xx\n", strings.Repeat("0", 34) + " 01\n"} {
		addrs, err = parseInet6("00000000000000000000000000000001 01 80 10 80 lo\n" + bad)
		require.Error(t, err, bad)
		assert.Len(t, addrs, 1, "the rest counts")
	}
}
