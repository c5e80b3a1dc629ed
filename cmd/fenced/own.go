package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/config"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/hosts"
	"github.com/fenced/fenced/internal/localbmc"
	"github.com/fenced/fenced/internal/remediate"
)

// factsTime is how long the start of the daemon waits for the BMC of its own host.
const factsTime = 10 * time.Second

// openOwnBMC opens the BMC of this host; nil if there is none, or if it cannot be used.
func openOwnBMC(n int, log *zap.Logger) *localbmc.BMC {
	b, err := localbmc.Open(n)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		log.Info("this host shows no BMC; its machine-id, addresses and system UUID protect it from being fenced", zap.Error(err))
		return nil
	case err != nil:
		log.Warn("this host's BMC cannot be used; its machine-id, addresses and system UUID protect it from being fenced", zap.Error(err))
		return nil
	}
	return b
}

// ownHost is what identifies this machine, so that it is never fenced. It logs what it cannot
// read. // I13
func ownHost(ctx context.Context, b *localbmc.BMC, log *zap.Logger) hosts.Own {
	var own hosts.Own
	id, err := os.ReadFile("/etc/machine-id")
	if err != nil {
		log.Warn("this host's machine-id cannot be read", zap.Error(err))
	}
	own.MachineID = strings.TrimSpace(string(id))
	if own.Addrs, err = ownAddrs(); err != nil {
		log.Warn("this host's addresses cannot all be read", zap.Error(err))
	}
	log.Info("this host's addresses", zap.Stringers("addresses", own.Addrs))
	uuid, err := localbmc.SystemUUID(os.DirFS("/"))
	if err == nil {
		own.UUIDs = append(own.UUIDs, uuid)
	} else {
		// Only root may read it. The BMC and the Node report it, too.
		log.Info("this host's firmware tells no system UUID", zap.Error(err))
	}
	if b != nil {
		own = withOwnBMC(ctx, own, b, log)
	}
	return own
}

func withOwnBMC(ctx context.Context, own hosts.Own, b *localbmc.BMC, log *zap.Logger) hosts.Own {
	ctx, cancel := context.WithTimeout(ctx, factsTime)
	defer cancel()
	f, err := b.Facts(ctx)
	if err != nil {
		log.Warn("this host's BMC does not tell all about itself", zap.Error(err))
	}
	if f.GUID != "" {
		own.UUIDs = append(own.UUIDs, f.GUID)
	}
	own.BMCAddrs, own.BMCMACs = f.Addrs, f.MACs
	log.Info("this host's BMC", zap.String("guid", f.GUID), zap.String("firmware", f.Firmware),
		zap.Stringers("addresses", f.Addrs), zap.Strings("macs", f.MACs))
	return own
}

// metalRules says which addresses and options of BareMetalHosts are accepted. // I10
func metalRules(c config.Config, own []netip.Addr) hosts.MetalRules {
	n := &bmc.Networks{Own: own}
	for _, text := range c.BMCNetworks {
		n.Listed = append(n.Listed, netip.MustParsePrefix(text)) // config has checked it
	}
	return hosts.MetalRules{Networks: n, PlainHTTP: c.BareMetalHosts.PlainHTTP, Unverified: c.BareMetalHosts.Unverified}
}

// closeTime bounds the commands to this host's BMC that no loop repeats.
const closeTime = 5 * time.Second

// pulse counts the beats of the deciding loops. A beat means that all of them made progress.
type pulse struct{ beats, seen atomic.Int64 }

func (p *pulse) beat() { p.beats.Add(1) }

// alive returns whether there was a beat since the last call.
func (p *pulse) alive() bool {
	n := p.beats.Load()
	return p.seen.Swap(n) != n
}

// ownBMC is this host's BMC with its watchdog; nil without one.
type ownBMC struct {
	*localbmc.BMC
	cfg   config.Watchdog
	pulse *pulse
	log   *zap.Logger
}

// keep holds the watchdog until ctx ends. If no watchdog is configured, it stops the one that a
// killed daemon may have left running.
func (o ownBMC) keep(ctx context.Context, status func() []engine.ClusterStatus) error {
	if o.BMC == nil {
		if o.cfg.Enabled {
			o.log.Error("watchdog.enabled is set, but this host's BMC cannot be used: no watchdog is armed", zap.Int("device", o.cfg.Device))
		}
		return nil
	}
	defer o.close(ctx)
	w := o.Watchdog(o.cfg.Timeout)
	if !o.cfg.Enabled {
		once, cancel := context.WithTimeout(ctx, closeTime)
		defer cancel()
		if err := w.Release(once); err != nil {
			o.log.Info("this host's watchdog cannot be looked at", zap.Error(err))
		}
		<-ctx.Done()
		return nil
	}
	k := localbmc.Keeper{
		Watchdog: w, Every: o.cfg.Timeout / 4, Root: os.DirFS("/"), Alive: o.pulse.alive,
		Active: func() bool { return mayFence(status()) }, OnChange: o.logChange,
	}
	return k.Run(ctx)
}

// close closes the device. The end of the process closes it as well, so an error is only logged.
func (o ownBMC) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
	defer cancel()
	if err := o.Close(ctx); err != nil {
		o.log.Info("this host's BMC is left as it is", zap.Error(err))
	}
}

// logChange logs a change of the watchdog's state.
func (o ownBMC) logChange(held bool, err error) {
	switch {
	case err != nil:
		o.log.Error("this host's watchdog", zap.Error(err))
	case held:
		o.log.Warn("this host's watchdog is armed: this host is powered down when the daemon hangs or is killed",
			zap.Duration("timeout", o.cfg.Timeout))
	default:
		o.log.Info("this host's watchdog is not armed: this daemon may fence nothing")
	}
}

// mayFence returns whether fenced acts by itself in some cluster, or has a run that acts.
func mayFence(clusters []engine.ClusterStatus) bool {
	for _, c := range clusters {
		if c.Armed {
			return true
		}
		for _, r := range c.Runs {
			if r.Step != remediate.Held {
				return true
			}
		}
	}
	return false
}

// inet6File lists the IPv6 addresses of this network namespace. The sandbox shows nothing of /proc but processes.
const inet6File = "/proc/self/net/if_inet6"

// ownAddrs lists the addresses of this host's interfaces, those that are down included. It needs no netlink, which is a large part
// of the kernel that the sandbox keeps closed, as net.InterfaceAddrs does. // I13
func ownAddrs() ([]netip.Addr, error) {
	v4, err4 := inet4Addrs()
	v6, err6 := inet6Addrs()
	return append(v4, v6...), errors.Join(err4, err6)
}

// ifreq is what SIOCGIFCONF fills in for each address, on 64-bit Linux: struct ifreq with a sockaddr_in.
type ifreq struct {
	name   [unix.IFNAMSIZ]byte
	family uint16
	port   uint16
	addr   [4]byte
	_      [16]byte
}

// ifconf is struct ifconf.
type ifconf struct {
	size int32 // bytes of buf; then those that are filled
	buf  unsafe.Pointer
}

func inet4Addrs() ([]netip.Addr, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if errors.Is(err, unix.EAFNOSUPPORT) {
		return nil, nil // this kernel has no IPv4
	}
	if err != nil {
		return nil, fmt.Errorf("list the IPv4 addresses: %w", err)
	}
	defer unix.Close(fd)
	for room := 64; ; room *= 2 {
		list := make([]ifreq, room)
		size := int(unsafe.Sizeof(ifreq{}))
		c := ifconf{int32(room * size), unsafe.Pointer(&list[0])}
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCGIFCONF, uintptr(unsafe.Pointer(&c))); errno != 0 {
			return nil, fmt.Errorf("list the IPv4 addresses: %w", errno)
		}
		if n := int(c.size) / size; n < room { // full means that there may be more
			return inet4Of(list[:n]), nil
		}
	}
}

func inet4Of(list []ifreq) (addrs []netip.Addr) {
	for i := range list {
		if list[i].family == unix.AF_INET {
			addrs = append(addrs, netip.AddrFrom4(list[i].addr))
		}
	}
	return addrs
}

func inet6Addrs() ([]netip.Addr, error) {
	text, err := os.ReadFile(inet6File)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat("/proc/self/net"); err == nil {
			return nil, nil // IPv6 is off
		}
	}
	if err != nil {
		return nil, fmt.Errorf("list the IPv6 addresses: %w", err)
	}
	return parseInet6(string(text))
}

// parseInet6 reads lines of an address in 32 hexadecimal digits, and more. What it cannot read is an error beside the rest.
func parseInet6(text string) (addrs []netip.Addr, err error) {
	for line := range strings.Lines(text) {
		word, _, _ := strings.Cut(line, " ")
		b, bad := hex.DecodeString(word)
		a, ok := netip.AddrFromSlice(b)
		if bad != nil || !ok || !a.Is6() {
			err = fmt.Errorf("read %s: the line %.80q has no address", inet6File, line)
			continue
		}
		addrs = append(addrs, a)
	}
	return addrs, err
}
