package engine

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
)

// Own is what identifies the host this daemon runs on; it is never fenced.
type Own struct {
	MachineID string
	Addrs     []netip.Addr // of this host's interfaces
	// UUIDs are the system UUID that firmware shows and the GUID of the BMC of
	// this host, in whatever byte order.
	UUIDs    []string
	BMCAddrs []netip.Addr // of this host's BMC
	BMCMACs  []string
	// Lookup resolves names of BMCs; nil asks the system's resolver.
	Lookup func(ctx context.Context, name string) ([]netip.Addr, error)
}

// Is says why a Node is this host, "" when it is not. // I13
func (o Own) Is(n *policy.Node) string {
	if o.MachineID != "" && n.MachineID == o.MachineID {
		return "the Node's machineID is this host's /etc/machine-id"
	}
	if why := o.HasUUID(n.SystemUUID); why != "" {
		return why
	}
	for _, a := range n.Addresses {
		ip, err := netip.ParseAddr(a)
		if err != nil {
			continue // a host name
		}
		if contains(o.Addrs, ip) {
			return "the Node's address " + a + " is this host's"
		}
	}
	return ""
}

// HasUUID says why a system UUID is this host's, "" when it is not. // I13
func (o Own) HasUUID(uuid string) string {
	for _, own := range o.UUIDs {
		if bmc.UUIDsMatch(own, uuid) {
			return "the system UUID " + uuid + " is this host's"
		}
	}
	return ""
}

func contains(list []netip.Addr, ip netip.Addr) bool {
	return slices.ContainsFunc(list, func(o netip.Addr) bool { return o.Unmap().WithZone("") == ip.Unmap().WithZone("") })
}

const (
	lookupEvery = 10 * time.Minute
	lookupTime  = 2 * time.Second
)

// ownHost is Own with the addresses that BMCs' names were found to have. Names are
// resolved by health checks and never while something is decided.
type ownHost struct {
	Own
	pinned string // the record that keeps this host's system UUID
	mu     sync.Mutex
	found  map[string]resolved
	uuid   string // of this host's Node, once that was seen
}

type resolved struct {
	addrs []netip.Addr
	next  time.Time // not asked again before
}

// resolve looks up the name of a device, where that may tell something.
func (o *ownHost) resolve(ctx context.Context, d bmc.Device) {
	name := d.Endpoint.Host
	if _, err := netip.ParseAddr(name); err == nil || name == "" || len(o.BMCAddrs)+len(o.Addrs) == 0 {
		return
	}
	now := time.Now()
	o.mu.Lock()
	r := o.found[name]
	due := !now.Before(r.next)
	o.mu.Unlock()
	if !due {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTime)
	defer cancel()
	lookup := o.Lookup
	if lookup == nil {
		lookup = func(ctx context.Context, name string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", name)
		}
	}
	if addrs, err := lookup(ctx, name); err == nil { // what was found before stands
		r.addrs = addrs
	}
	r.next = now.Add(lookupEvery)
	o.mu.Lock()
	o.found[name] = r
	o.mu.Unlock()
}

// addrs are those of a device, as far as they are known.
func (o *ownHost) addrs(host string) []netip.Addr {
	if ip, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{ip}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.found[host].addrs
}

// isDevice says why a device is the BMC of this host. An address of the host
// itself tells that, too, for a BMC that shares the interface; another port there
// is another thing, like a simulator for virtual machines.
func (o *ownHost) isDevice(p place) string {
	for _, ip := range o.addrs(p.host) {
		switch {
		case contains(o.BMCAddrs, ip):
			return p.text + " is this host's own BMC"
		case p.standard && !ip.IsLoopback() && contains(o.Addrs, ip):
			return p.text + " is this host's own address"
		}
	}
	return ""
}

// firstOwnPin is the record that keeps the system UUID of the host of an instance
// without a name. Instances that share a store have one each.
const firstOwnPin = "this host"

func ownPin(instance string) string { return strings.TrimSpace(firstOwnPin + " " + instance) }

// ownHost says why a target is this host. Its Node may be gone: then the system
// UUID that the Node once showed still tells, and so does its BMC. // I13
func (c *cluster) ownHost(n *policy.Node, t remediate.Target, uuids ...string) string {
	own := c.e.own
	if n != nil {
		if why := own.Is(n); why != "" {
			return why
		}
	}
	for _, uuid := range append(uuids, t.SystemUUID) {
		if why := own.HasUUID(uuid); why != "" {
			return why
		}
		if c.e.ownNode(uuid) {
			return "the system UUID is that of this host's own Node"
		}
	}
	for _, host := range names(t.Cluster, t.Node, t.BareMetalHost) {
		devices, told, macs := c.e.index.of(host)
		for _, d := range devices {
			if why := own.isDevice(d); why != "" {
				return why
			}
		}
		for _, uuid := range told {
			if why := own.HasUUID(uuid); why != "" {
				return why
			}
		}
		if match, _ := bmc.MACsMatch(own.BMCMACs, macs); match {
			return "a MAC address of " + host + " is that of this host's own BMC"
		}
	}
	return ""
}

// offLimits says why the host of an open run is none that this daemon switches off, and
// which gate it would not pass: the run may have been begun by a daemon on another host,
// or before hosts.d said what it says now. // I13
func (c *cluster) offLimits(r remediate.Run) (code, why string) {
	c.mu.Lock()
	n := c.ledger.Node(r.Target.Node)
	c.mu.Unlock()
	if why := c.ownHost(n, r.Target); why != "" {
		return string(reason.OwnHost), "it is the host that this daemon runs on: " + why
	}
	if r.Manual == nil && c.protected(r.Target.Node) {
		return string(reason.Protected), "hosts.d says by now that it is protected"
	}
	return "", ""
}

// ownNode says whether a system UUID is that of this host's own Node, as it was seen
// now or before.
func (e *Engine) ownNode(uuid string) bool {
	e.own.mu.Lock()
	seen := e.own.uuid
	e.own.mu.Unlock()
	if bmc.UUIDsMatch(seen, uuid) {
		return true
	}
	for _, record := range []string{e.own.pinned, firstOwnPin} {
		if p, found, _ := e.pins.get(record); found && bmc.UUIDsMatch(p.SystemUUID, uuid) {
			return true
		}
	}
	return false
}

// rememberOwn keeps this host's system UUID as soon as its Node is seen, and stores
// it as soon as this instance may write.
func (c *cluster) rememberOwn(ctx context.Context, changes []policy.Change) {
	own := c.e.own
	for i := range changes {
		if n, ok := changes[i].Value.(*policy.Node); ok && n != nil && bmc.UsableUUID(n.SystemUUID) && own.Is(n) != "" {
			own.mu.Lock()
			own.uuid = n.SystemUUID
			own.mu.Unlock()
		}
	}
	own.mu.Lock()
	uuid := own.uuid
	own.mu.Unlock()
	p, _, err := c.e.pins.get(own.pinned)
	if uuid == "" || p.SystemUUID == uuid || c.leadership.Load() == nil {
		return
	}
	if p.SystemUUID = uuid; err == nil {
		_, err = c.putPin(ctx, p)
	}
	if err != nil {
		c.emit(event.Event{Type: event.Failed, Message: "remember this host's system UUID: " + err.Error()})
	}
}

// duplicateHost says what the host of a run is there twice by: two entries lead to one device,
// or two Nodes tell one UUID. A later attempt goes by where its host came back: a Node
// that was left behind by a renaming says nothing of it, see elsewhere. // I9
func (c *cluster) duplicateHost(r remediate.Run) string {
	t := r.Target
	entry := c.e.twin(names(t.Cluster, t.Node, t.BareMetalHost))
	if entry != "" || r.Attempt > 1 {
		return entry
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.twin(t.Node, t.SystemUUID)
}

// twin names another Node with this system UUID, in any byte order: a host that
// registered under a second name. c.mu is held. // I9
func (c *cluster) twin(node, uuid string) string {
	for _, form := range bmc.UUIDForms(uuid) {
		if other := c.ledger.OtherNodeWithUUID(node, form); other != "" {
			return "Node " + other + " has the same system UUID"
		}
	}
	return ""
}
