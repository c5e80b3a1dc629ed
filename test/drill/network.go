package main

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// The parties of a drill. Each has a network namespace of its own.
const (
	one = "one" // the bastions
	two = "two"
	api = "api" // the API server
	bmc = "bmc" // the network of the BMCs
)

var (
	bastions = []string{one, two}
	members  = []string{"etcd1", "etcd2", "etcd3"}
	parties  = append(append([]string{one, two}, members...), api, bmc)
)

func addressOf(party string) netip.Addr {
	host := byte(1)
	for i, p := range parties {
		if p == party {
			host = byte(11 + i)
		}
	}
	return netip.AddrFrom4([4]byte{10, 77, 0, host})
}

// space is a network namespace. It has no name: it ends with the processes, sockets and files that are in it.
type space struct{ home, there *os.File }

const ownSpace = "/proc/thread-self/ns/net"

// newSpace makes a namespace.
func newSpace(home *os.File) (s space, err error) {
	s.home = home
	runtime.LockOSThread()
	if err = unix.Unshare(unix.CLONE_NEWNET); err == nil {
		s.there, err = os.Open(ownSpace)
		err = errors.Join(err, s.back())
	}
	runtime.UnlockOSThread()
	return s, err
}

// back brings this thread home. If it cannot, nothing that this process does later is where it should be.
func (s space) back() error {
	if err := unix.Setns(int(s.home.Fd()), unix.CLONE_NEWNET); err != nil {
		panic(fmt.Sprintf("drill: a thread cannot leave a network namespace: %v", err))
	}
	return nil
}

// enter does something in the namespace: sockets that do opens itself, and processes that it starts, are in there for good.
func (s space) enter(do func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Setns(int(s.there.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter a network namespace: %w", err)
	}
	return errors.Join(do(), s.back())
}

// network is a switch with one port for each party. The process is in the namespace of the switch, and reaches all parties whatever is cut.
type network struct {
	spaces map[string]space

	mu   sync.Mutex
	bad  map[string]map[link]int // by set of the rules: how many faults want the link there
	slow map[string]int          // by party
}

// link is one direction between two parties.
type link struct{ from, to string }

// rules are those of the switch. Sets hold the links on which something is wrong.
const rules = `table bridge drill {
	set cut { type ifname . ifname; }
	set mute { type ifname . ifname; }
	set lossy { type ifname . ifname; }
	chain forward {
		type filter hook forward priority 0; policy accept;
		iifname . oifname @cut drop
		ether type ip iifname . oifname @mute drop
		iifname . oifname @lossy numgen random mod 100 < 40 drop
	}
}
`

// The sets of the rules.
const (
	cut   = "cut"   // nothing passes, ARP neither: after some seconds the sender knows that there is no route
	mute  = "mute"  // no IP passes, and ARP does: the sender never knows
	lossy = "lossy" // 40 of 100 frames are lost
)

// newNetwork makes the switch in the namespace of this process, and connects all parties to it.
func newNetwork() (*network, error) {
	n := &network{spaces: map[string]space{}, bad: map[string]map[link]int{cut: {}, mute: {}, lossy: {}}, slow: map[string]int{}}
	home, err := os.Open(ownSpace)
	if err != nil {
		return nil, err
	}
	if err := run("link set lo up\nlink add sw type bridge\naddr add "+addressOf("").String()+"/24 dev sw\nlink set sw up\n", "ip", "-batch", "-"); err != nil {
		return nil, err
	}
	for _, p := range parties {
		s, err := newSpace(home)
		if err != nil {
			return nil, fmt.Errorf("make a network namespace: %w", err)
		}
		n.spaces[p] = s
		wire := fmt.Sprintf("link add %[1]s type veth peer name eth0 netns /proc/%[2]d/fd/%[3]d\nlink set %[1]s master sw up\n", p, os.Getpid(), s.there.Fd())
		if err := run(wire, "ip", "-batch", "-"); err != nil {
			return nil, err
		}
		if err := s.enter(func() error {
			return run("link set lo up\naddr add "+addressOf(p).String()+"/24 dev eth0\nlink set eth0 up\n", "ip", "-batch", "-")
		}); err != nil {
			return nil, err
		}
	}
	return n, run(rules, "nft", "-f", "-")
}

func run(input, program string, args ...string) error {
	cmd := exec.Command(program, args...)
	cmd.Stdin = strings.NewReader(input)
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err, strings.TrimSpace(string(text)))
	}
	return nil
}

// change puts links into a set of the rules (by 1), or takes them out (by -1). Faults may overlap.
func (n *network) change(set string, links []link, by int) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	var changed []string
	for _, l := range links {
		was := n.bad[set][l]
		n.bad[set][l] += by
		if (was == 0) != (n.bad[set][l] == 0) {
			changed = append(changed, fmt.Sprintf("%q . %q", l.from, l.to))
		}
	}
	if len(changed) == 0 {
		return nil
	}
	verb := "add"
	if by < 0 {
		verb = "delete"
	}
	return run(fmt.Sprintf("%s element bridge drill %s { %s }\n", verb, set, strings.Join(changed, ", ")), "nft", "-f", "-")
}

// delay makes a party's cable slow in both directions, or fast again: 64 kbit/s with a queue of up to 700 ms. tbf is in every kernel
// that fenced runs on; netem, which would add the same time to each packet, is not in all.
func (n *network) delay(party string, by int) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	was := n.slow[party]
	n.slow[party] += by
	if (was == 0) == (n.slow[party] == 0) {
		return nil
	}
	qdisc := func(dev string) error {
		if by < 0 {
			return run("", "tc", "qdisc", "del", "dev", dev, "root")
		}
		return run("", "tc", "qdisc", "add", "dev", dev, "root", "tbf", "rate", "64kbit", "burst", "1600", "latency", "700ms")
	}
	return errors.Join(qdisc(party), n.spaces[party].enter(func() error { return qdisc("eth0") }))
}

// between are the links of one party to the parties of another name, which may be "etcd" or "all"; oneWay leaves out the way back.
func between(from, to string, oneWay bool) (links []link) {
	for _, p := range parties {
		if p == from || p != to && to != "all" && !(to == "etcd" && strings.HasPrefix(p, "etcd")) {
			continue
		}
		links = append(links, link{from, p})
		if !oneWay {
			links = append(links, link{p, from})
		}
	}
	return links
}
