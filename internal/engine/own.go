package engine

import (
	"context"
	"net/netip"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/state"
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

// ownPin is the record that keeps this host's system UUID.
const ownPin = "this host"

// ownHost says why a target is this host. Its Node may be gone: then the system
// UUID that the Node once showed still tells. // I13
func (c *cluster) ownHost(n *policy.Node, uuid string) string {
	if n != nil {
		if why := c.e.opt.Own.Is(n); why != "" {
			return why
		}
	}
	if p, err := state.LoadPin(context.Background(), c.e.opt.Store, ownPin); err == nil && bmc.UUIDsMatch(p.SystemUUID, uuid) {
		return "the system UUID is that of this host's own Node"
	}
	return ""
}

// rememberOwn keeps this host's system UUID as soon as its Node is seen.
func (c *cluster) rememberOwn(ctx context.Context, changes []policy.Change) {
	for i := range changes {
		n, ok := changes[i].Value.(*policy.Node)
		if !ok || n == nil || !bmc.UsableUUID(n.SystemUUID) || c.e.opt.Own.Is(n) == "" {
			continue
		}
		p, err := state.LoadPin(ctx, c.e.opt.Store, ownPin)
		if err == nil && p.SystemUUID == n.SystemUUID {
			continue
		}
		p.Host, p.SystemUUID = ownPin, n.SystemUUID
		if _, err := state.SavePin(ctx, c.e.opt.Store, p); err != nil {
			c.emit(Event{Type: EventFailed, Node: n.Name, Message: "remember this host's system UUID: " + err.Error()})
		}
	}
}

// twin names another Node with this system UUID, in any byte order: a host that
// registered under a second name. c.mu is held. // I9
func (c *cluster) twin(node, uuid string) string {
	for _, form := range bmc.UUIDForms(uuid) {
		if other := c.ledger.Twin(node, form); other != "" {
			return "Node " + other + " has the same system UUID"
		}
	}
	return ""
}
