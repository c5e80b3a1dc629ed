package main

import (
	"context"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/fenced/fenced/internal/config"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/remediate"
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

// TestPulse: one beat is worth one kick, however many there were.
func TestPulse(t *testing.T) {
	var p pulse
	require.False(t, p.alive(), "nothing was decided yet")
	p.beat()
	p.beat()
	require.True(t, p.alive())
	require.False(t, p.alive())
	p.beat()
	require.True(t, p.alive())
}

func TestMayFence(t *testing.T) {
	run := func(s remediate.Step) []remediate.Run { return []remediate.Run{{Step: s}} }
	require.False(t, mayFence(nil))
	require.False(t, mayFence([]engine.ClusterStatus{{Name: "a"}, {Name: "b", Runs: run(remediate.Held)}}))
	require.True(t, mayFence([]engine.ClusterStatus{{Name: "a"}, {Name: "b", Armed: true}}))
	require.True(t, mayFence([]engine.ClusterStatus{{Name: "a", Runs: run(remediate.PowerOff)}}), "a person's order")
}

// TestWatchdogWithoutBMC: what was asked for and cannot be had is said, and the
// daemon fences on.
func TestWatchdogWithoutBMC(t *testing.T) {
	core, logged := observer.New(zap.InfoLevel)
	log := zap.New(core)
	b := openOwnBMC(4711, log)
	require.Nil(t, b)
	require.Equal(t, 1, logged.Len(), "one line")

	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	o := ownBMC{BMC: b, cfg: config.Watchdog{Enabled: true, Timeout: time.Minute, Device: 4711}, pulse: new(pulse), log: log}
	require.NoError(t, o.keep(ctx, func() []engine.ClusterStatus { return nil }))
	require.Equal(t, 1, logged.FilterMessageSnippet("no watchdog is armed").Len())
	require.Zero(t, ownHost(ctx, b, log).BMCAddrs)
}
