package main

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

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
