package engine

import (
	"net/netip"

	"github.com/fenced/fenced/internal/policy"
)

// Own is what identifies the host this daemon runs on; it is never fenced.
type Own struct {
	MachineID string
	Addrs     []netip.Addr // of this host's interfaces
}

// Is says why a Node is this host, "" when it is not. // I13
func (o Own) Is(n *policy.Node) string {
	if o.MachineID != "" && n.MachineID == o.MachineID {
		return "the Node's machineID is this host's /etc/machine-id"
	}
	for _, a := range n.Addresses {
		ip, err := netip.ParseAddr(a)
		if err != nil {
			continue // a host name
		}
		for _, own := range o.Addrs {
			if own.Unmap() == ip.Unmap() {
				return "the Node's address " + a + " is this host's"
			}
		}
	}
	return ""
}
