package hosts

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
)

// Own is what identifies the host that this daemon runs on. It is never fenced.
type Own struct {
	MachineID string
	Addrs     []netip.Addr // of this host's interfaces
	// UUIDs are the system UUID from the firmware of this host and the GUID of its BMC, in any
	// byte order.
	UUIDs    []string
	BMCAddrs []netip.Addr // of this host's BMC
	BMCMACs  []string
	// Lookup resolves names of BMCs; nil means the system's resolver.
	Lookup func(ctx context.Context, name string) ([]netip.Addr, error)
}

// Is returns why a Node is this host, "" if it is not. // I13
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
			continue // it is a host name
		}
		if contains(o.Addrs, ip) {
			return "the Node's address " + a + " is this host's"
		}
	}
	return ""
}

// HasUUID returns why a system UUID is this host's, "" if it is not. // I13
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
	lookupEvery   = 10 * time.Minute
	lookupTimeout = 2 * time.Second
)

// ownHost recognises this host among Nodes, hosts and devices. A BMC may be known only by a name:
// health checks resolve the names, so that no decision waits for DNS.
type ownHost struct {
	Own
	catalog *catalog
	record  string // the name of the pin that keeps this host's system UUID

	mu       sync.Mutex
	resolved map[string]resolvedName
	nodeUUID string // of this host's Node, once that was seen
}

type resolvedName struct {
	addrs []netip.Addr
	next  time.Time // the name is not resolved again before
}

func newOwnHost(own Own, instance string, c *catalog) *ownHost {
	return &ownHost{Own: own, catalog: c, record: ownRecord(instance), resolved: map[string]resolvedName{}}
}

// resolve looks up the name of a device, if its addresses can be compared with this host's.
func (o *ownHost) resolve(ctx context.Context, d bmc.Device) {
	name := d.Endpoint.Host
	if _, err := netip.ParseAddr(name); err == nil || name == "" || len(o.BMCAddrs)+len(o.Addrs) == 0 {
		return
	}
	now := time.Now()
	o.mu.Lock()
	r := o.resolved[name]
	due := !now.Before(r.next)
	o.mu.Unlock()
	if !due {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	lookup := o.Lookup
	if lookup == nil {
		lookup = func(ctx context.Context, name string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", name)
		}
	}
	if addrs, err := lookup(ctx, name); err == nil { // otherwise the former addresses stay
		r.addrs = addrs
	}
	r.next = now.Add(lookupEvery)
	o.mu.Lock()
	o.resolved[name] = r
	o.mu.Unlock()
}

// addrs returns the known addresses of a device.
func (o *ownHost) addrs(host string) []netip.Addr {
	if ip, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{ip}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.resolved[host].addrs
}

// isDevice returns why a device is the BMC of this host, "" if it is not. An address of the host
// itself counts as well, because a BMC may share the interface. Another port there is something
// else, like a simulator for virtual machines.
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

// defaultOwnRecord is the pin that keeps the system UUID of the host of an instance without a
// name. Instances that share a store have one each.
const defaultOwnRecord = "this host"

func ownRecord(instance string) string { return strings.TrimSpace(defaultOwnRecord + " " + instance) }

// isTarget returns why a target is this host, "" if it is not. n is its Node, or nil. The Node may
// be gone: then the system UUIDs that it showed identify it, and so does its BMC. // I13
func (o *ownHost) isTarget(n *policy.Node, t remediate.Target, uuids []string) string {
	if n != nil {
		if why := o.Is(n); why != "" {
			return why
		}
	}
	for _, uuid := range append(uuids, t.SystemUUID) {
		if why := o.isUUID(uuid); why != "" {
			return why
		}
	}
	for _, host := range names(t.Cluster, t) {
		if why := o.isEntry(host); why != "" {
			return why
		}
	}
	return ""
}

// isEntry returns why a host of the inventory is this host, "" if it is not.
func (o *ownHost) isEntry(host string) string {
	e := o.catalog.index.get(host)
	if e == nil {
		return ""
	}
	for _, d := range e.devices {
		if why := o.isDevice(d); why != "" {
			return why
		}
	}
	for _, uuid := range o.catalog.uuids(e) {
		if why := o.isUUID(uuid); why != "" {
			return why
		}
	}
	if match, _ := bmc.MACsMatch(o.BMCMACs, e.allMACs()); match {
		return "a MAC address of " + host + " is that of this host's own BMC"
	}
	return ""
}

// isUUID returns why a system UUID is that of this host, "" if it is not.
func (o *ownHost) isUUID(uuid string) string {
	if why := o.HasUUID(uuid); why != "" || !o.isNodeUUID(uuid) {
		return why
	}
	return "the system UUID is that of this host's own Node"
}

// isNodeUUID reports whether a system UUID is that of this host's own Node, as it was seen now or
// before.
func (o *ownHost) isNodeUUID(uuid string) bool {
	if bmc.UUIDsMatch(o.seenUUID(), uuid) {
		return true
	}
	for _, record := range []string{o.record, defaultOwnRecord} {
		if p, found, _ := o.catalog.pins.get(record); found && bmc.UUIDsMatch(p.SystemUUID, uuid) {
			return true
		}
	}
	return false
}

// see records the system UUID of a Node if it is this host's.
func (o *ownHost) see(n *policy.Node) {
	if !bmc.UsableUUID(n.SystemUUID) || o.Is(n) == "" {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.nodeUUID = n.SystemUUID
}

// seenUUID returns the system UUID of this host's Node, "" if it was not seen yet.
func (o *ownHost) seenUUID() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.nodeUUID
}
