package bmc

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"syscall"
)

// Networks limits the addresses of a BMC that somebody other than the
// administrator configured, because fenced sends a password there. Nil means
// anywhere.
type Networks struct {
	// Listed are the only networks that may be used. If empty, all may be used
	// except those that no BMC of another host can have.
	Listed []netip.Prefix
	// Own are the addresses of this host.
	Own []netip.Addr
}

// broadcast is the limited broadcast address of IPv4.
var broadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// Refuse returns why nothing may be sent to an address; "" if it may. An address
// that no BMC of another host can have must be listed by itself or in a network
// of only such addresses: 10.0.0.0/8 does not allow this host's own 10.0.0.5, and
// 10.0.0.5/32 does.
func (n *Networks) Refuse(ip netip.Addr) string {
	if n == nil {
		return ""
	}
	ip = ip.Unmap().WithZone("")
	kind := n.specialKind(ip)
	switch {
	case slices.ContainsFunc(n.Listed, func(p netip.Prefix) bool {
		return p.Contains(ip) && (kind == "" || n.specialKind(p.Masked().Addr()) == kind)
	}):
		return ""
	case kind != "":
		return fmt.Sprintf("%s is %s", ip, kind)
	case len(n.Listed) > 0:
		return ip.String() + " is in none of bmcNetworks"
	}
	return ""
}

// RefuseHost is Refuse for the host of an Endpoint. The addresses of a DNS name
// are checked when it is dialed.
func (n *Networks) RefuseHost(host string) string {
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return ""
	}
	return n.Refuse(ip)
}

// specialKind names the kind of an address that no BMC of another host can have;
// "" for all others.
func (n *Networks) specialKind(ip netip.Addr) string {
	switch {
	case ip.IsLoopback():
		return "a loopback address"
	case ip.IsLinkLocalUnicast():
		return "a link-local address"
	case ip.IsMulticast(), ip == broadcast:
		return "an address of many"
	case ip.IsUnspecified():
		return "no address of a host"
	case slices.ContainsFunc(n.Own, func(own netip.Addr) bool { return own.Unmap().WithZone("") == ip }):
		return "an address of this host"
	}
	return ""
}

// Control is for net.Dialer. It checks the address of each connection, because a
// name may resolve to another address each time.
func (n *Networks) Control(_, address string, _ syscall.RawConn) error {
	if n == nil {
		return nil
	}
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("check the address of a BMC: %w", err)
	}
	if why := n.Refuse(at.Addr()); why != "" {
		return errors.New(why + ", where no BMC of a BareMetalHost may be: see bmcNetworks in fenced.yaml")
	}
	return nil
}
