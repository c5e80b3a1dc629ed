package bmc

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"syscall"
)

// Networks says where a BMC may be that somebody else than the administrator has
// written down: a password is sent there. Nil is anywhere.
type Networks struct {
	// Listed are the only networks that may be used; none: all, but what no BMC of
	// another host has.
	Listed []netip.Prefix
	// Own are the addresses of this host.
	Own []netip.Addr
}

// broadcast is the one address of IPv4 that reaches everybody.
var broadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// Refuse says why nothing may be sent to an address; "" when it may. An address that
// no BMC of another host has needs a listed network of such addresses alone: 10.0.0.0/8
// does not open this host's own 10.0.0.5, and 10.0.0.5/32 does.
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

// RefuseHost is Refuse for the host of an Endpoint. What a name stands for is asked
// when it is dialed.
func (n *Networks) RefuseHost(host string) string {
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return ""
	}
	return n.Refuse(ip)
}

// specialKind says what kind of address no BMC of another host has; "" for all others.
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

// Control refuses a connection as it is made, for net.Dialer: a name may stand for
// another address each time.
func (n *Networks) Control(_, address string, _ syscall.RawConn) error {
	if n == nil {
		return nil
	}
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("where a BMC is: %w", err)
	}
	if why := n.Refuse(at.Addr()); why != "" {
		return errors.New(why + ", where no BMC of a BareMetalHost may be: see bmcNetworks in fenced.yaml")
	}
	return nil
}
