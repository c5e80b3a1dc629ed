package hosts

import (
	"cmp"
	"context"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
)

// Forbidden lists what forbids fenced to switch a subject off by itself, whatever the state of its Node: it is
// protected, a rule about its host forbids it, it has the UUID of another Node, or the owner of its power forbids it.
func (h *Hosts) Forbidden(_ context.Context, s Subject) (list []reason.Refusal) {
	c, err := h.cluster(s.Cluster)
	if err != nil {
		return nil
	}
	t, listed := s.target(), *h.listed.Load()
	if s.Node != "" && listed.Protected(s.Cluster, s.Node) || s.Machine != "" && listed.Protected(s.Cluster, s.Machine) {
		list = append(list, reason.Refusal{Reason: reason.Protected, Message: "hosts.d says that it is protected: only a person fences it"})
	}
	list = append(list, h.forbidden(c, &s)...)
	if s.Node != "" {
		if why := c.opt.View.OtherNodeWithUUID(s.Node, s.SystemUUID); why != "" { // I9
			list = append(list, reason.Refusal{Reason: reason.DuplicateUUID, Message: why})
		}
	}
	b := bareMetalHost(c.opt.View, t)
	if b == nil {
		return list
	}
	if m := c.opt.View.MachineOf(c.targetNamed(cmp.Or(s.Node, s.Machine))); m != nil {
		if why := b.PowerForbidden(s.Machine, cmp.Or(m.Consumer(), b.ConsumerRef), s.Node != "", false); why != "" { // I22
			list = append(list, reason.Refusal{Reason: reason.PowerOwner, Message: why})
		}
	}
	return list
}

// forbidden lists the rules about its host for which a subject is not switched off: it
// cannot be used, leads elsewhere than before, is frozen, is a duplicate, was never enrolled, or
// is this daemon's own.
func (h *Hosts) forbidden(c *Cluster, s *Subject) (list []reason.Refusal) {
	add := func(code reason.Code, why string) {
		if why != "" {
			list = append(list, reason.Refusal{Reason: code, Message: why})
		}
	}
	if r, ok := reason.AsRefusal(s.Err); ok {
		list = append(list, *r)
	}
	t := s.target()
	all := s.names()
	withheld := c.metal.withheld(s.Host, t)
	if withheld != nil {
		list = append(list, *withheld)
	}
	code, why := c.Frozen(t)
	add(code, why)
	if withheld == nil || withheld.Reason != reason.DuplicateHost {
		add(reason.DuplicateHost, h.catalog.duplicate(all))
	}
	if s.Err == nil {
		add(reason.NotEnrolled, c.unenrolled(s))
	}
	add(reason.OwnHost, c.OwnHost(c.opt.View.Node(s.Node), t))
	return list
}

// unenrolled returns why a device of the subject that cannot prove its identity does not count as
// enrolled. It is "" if each such device is enrolled.
func (c *Cluster) unenrolled(s *Subject) string {
	for _, l := range s.Host.Levels {
		for i := range l.Devices {
			if l.Devices[i].Identifies() || s.Host.IdentityMode == identityOff {
				continue
			}
			if want := c.expected(s.Host, s.target(), false); enrolledVerdict(want) == guard.IdentityNotEnrolled {
				return cmp.Or(want.pin.Revoked, want.pin.Contradicted, "nobody has enrolled "+s.Host.Address()+" for this host")
			}
		}
	}
	return ""
}

// OwnHost returns why a target is the host that this daemon runs on, "" if it is not. n is its
// Node, or nil. The Node may be gone: then the system UUIDs that it showed identify it, and so does
// its BMC. If nothing identifies it, the name of its Node counts, if this host was last seen under it: another
// machine may have had the name meanwhile. // I13
func (c *Cluster) OwnHost(n *policy.Node, t remediate.Target, uuids ...string) string {
	why := c.hosts.own.isAny(n, names(t.Cluster, t), append(uuids, t.SystemUUID)...)
	if why == "" && n == nil && t.SystemUUID == "" {
		why = c.hosts.own.wasNamed(t)
	}
	return why
}

// OffLimits returns why this daemon must not switch off the host of an open run, and which gate
// the host would not pass: a daemon on another host may have begun the run, or hosts.d may have
// changed since. // I13
func (c *Cluster) OffLimits(r remediate.Run) (code reason.Code, why string) {
	t, entries := withNode(c.opt.View, r.Target), *c.hosts.listed.Load() // once: a reload must not come between the questions // I13, I18
	if why := c.OwnHost(c.opt.View.Node(t.Node), t, t.ReportedUUID); why != "" {
		return reason.OwnHost, "it is the host that this daemon runs on: " + why
	}
	if why := entryRefused(entries, c.opt.Name, t); why != "" {
		return reason.InvalidHost, "the entry of hosts.d is refused now: " + why
	}
	if r.Manual == nil && isProtected(entries, c.opt.Name, t) {
		return reason.Protected, "hosts.d says now that it is protected"
	}
	if why := entries.Unread(); why != "" && r.Manual == nil && !r.TouchedHost() {
		return reason.FilesRefused, "hosts.d may say now that it is protected: " + why // I13, I18
	}
	return "", ""
}

// withNode is a target with the Node that its Machine has got since the run began. // I23
func withNode(v View, t remediate.Target) remediate.Target {
	if m := v.MachineOf(t); m != nil && t.Node == "" {
		t.Node = m.NodeName
	}
	return t
}

// NoteNodes compares Nodes that have changed with what is stored about their hosts; the next health
// check stores what that contradicts. It records this host's system UUID as soon as its Node is
// seen, and stores it as soon as this instance owns the cluster.
func (c *Cluster) NoteNodes(ctx context.Context, changes []policy.Change) {
	for i := range changes {
		if n, ok := changes[i].Value.(*policy.Node); ok && n != nil {
			c.hosts.own.note(c.opt.Name+"/"+n.Name, n)
			c.pins.compareNode(n)
		}
	}
	c.hosts.own.save(ctx, c)
}

// save stores the system UUID of this host's Node, if that is of this cluster. What another Node says of itself takes its place only once
// the Node of the record shows that it is on another machine. Until then its name stays in the record: it is the last that this host had. // I13
func (o *ownHost) save(ctx context.Context, c *Cluster) {
	p, _, err := o.catalog.pins.get(o.record)
	before := p
	if name, here := strings.CutPrefix(p.Node, c.opt.Name+"/"); here {
		if n := c.opt.View.Node(name); n != nil && o.isAnother(n, p.SystemUUID) {
			p.SystemUUID = ""
		}
	}
	if node, uuid := o.seenAs(p.Node); uuid != "" && (node == p.Node || p.SystemUUID == "") {
		p.Node, p.SystemUUID = node, uuid
	}
	if p == before || !c.opt.Lead.Leads() {
		return
	}
	if err == nil {
		_, err = c.pins.save(ctx, p, false)
	}
	if err != nil {
		c.emit(event.Event{Type: event.Failed, Message: "remember this host's system UUID: " + err.Error()})
	}
}

// DuplicateOf returns why the host of a run exists twice: two entries lead to one device, or two
// Nodes have one UUID. It is "" if neither is so. used is the host as the run has opened it, nil if it has not: the run keeps its devices,
// which the entry may lack by now, and another one may have. A later attempt follows the host to the Node as
// which it came back, so the Node of the former name says nothing about it. // I9
func (c *Cluster) DuplicateOf(r remediate.Run, used *bmc.Host) string {
	t := r.Target
	entry := c.Duplicate(t)
	if entry == "" && used != nil {
		entry = c.hosts.catalog.duplicateAt(used, append(names(c.opt.Name, t), used.Name)) // the run may have gone on to another Node since
	}
	if entry != "" || r.Attempt > 1 {
		return entry
	}
	return c.opt.View.OtherNodeWithUUID(withNode(c.opt.View, t).Node, cmp.Or(t.SystemUUID, t.ReportedUUID))
}

// Duplicate returns which other host leads to the same machine as a target's. It is "" if none
// does that counts. // I9
func (c *Cluster) Duplicate(t remediate.Target) string {
	return c.hosts.catalog.duplicate(names(c.opt.Name, t))
}

// EntryRefused says why nobody may use the entry of a target; "" if there is none, or if nothing is wrong in it. It may
// say that the host is protected, so it binds also what switches no power.
func (c *Cluster) EntryRefused(t remediate.Target) string {
	return entryRefused(*c.hosts.listed.Load(), c.opt.Name, t)
}

func entryRefused(entries Inventory, cluster string, t remediate.Target) string {
	for _, of := range t.Names() {
		if why := entries.Refused(cluster, of); why != "" {
			return why
		}
	}
	return ""
}

// Protected reports whether an administrator forbids to fence a target automatically.
func (c *Cluster) Protected(t remediate.Target) bool {
	return isProtected(*c.hosts.listed.Load(), c.opt.Name, t)
}

func isProtected(entries Inventory, cluster string, t remediate.Target) bool {
	return slices.ContainsFunc(t.Names(), func(of string) bool { return entries.Protected(cluster, of) })
}

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
	lookupAgain   = 30 * time.Second // after one that failed
	lookupTimeout = 2 * time.Second
)

// ownHost recognises this host among Nodes, hosts and devices. A BMC may be known only by a name:
// health checks and whoever is about to use the BMC resolve it, so that no decision waits for DNS.
type ownHost struct {
	Own
	catalog *catalog
	record  string // the name of the pin that keeps this host's system UUID

	mu       sync.Mutex
	resolved map[string]resolvedName
	room     int // with more names than that, some may be of no host any more
	// nodes are the system UUIDs of this host's Node, by "cluster/name". A kubelet may write anything about its own Node, so that several
	// may say that they are this host: each counts, until it shows that it is on another machine. // I13
	nodes map[string]string
}

type resolvedName struct {
	addrs []netip.Addr
	next  time.Time // the name is not resolved again before
}

// isAny returns why one of these is this host: a Node, a system UUID, or a host of the inventory; "" if none is.
func (o *ownHost) isAny(n *policy.Node, hosts []string, uuids ...string) string {
	if n != nil {
		if why := o.Is(n); why != "" {
			return why
		}
	}
	for _, uuid := range uuids {
		if why := o.isUUID(uuid); why != "" {
			return why
		}
	}
	for _, host := range hosts {
		if why := o.isEntry(host); why != "" {
			return why
		}
	}
	return ""
}

// resolveAll looks up the names of all devices of a host. // I13
func (o *ownHost) resolveAll(ctx context.Context, h bmc.Host) {
	for _, l := range h.Levels {
		for _, d := range l.Devices {
			o.resolve(ctx, d)
		}
	}
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
	addrs, err := lookup(ctx, name)
	o.mu.Lock()
	r = o.resolved[name] // another lookup may have ended meanwhile
	r.next = now.Add(lookupAgain)
	if err == nil { // otherwise the former addresses stay
		r.addrs, r.next = addrs, now.Add(lookupEvery)
	}
	o.resolved[name] = r
	full := len(o.resolved) > o.room
	o.mu.Unlock()
	if full {
		o.forgetNames()
	}
}

// forgetNames forgets the names that no host of the inventory has any more: whoever writes BareMetalHosts may write any number.
func (o *ownHost) forgetNames() {
	used := o.catalog.index.endpoints()
	o.mu.Lock()
	defer o.mu.Unlock()
	maps.DeleteFunc(o.resolved, func(name string, _ resolvedName) bool { return !used[name] })
	o.room = roomFor(len(o.resolved))
}

// roomFor is how many entries a map may have before those that nobody needs are looked for again, so that this costs little for each.
func roomFor(kept int) int { return 2*kept + 1000 }

// isDevice returns why a device is the BMC of this host, "" if it is not. An address of the host
// itself counts as well, because a BMC may share the interface. Another port there is something
// else, like a simulator for virtual machines.
func (o *ownHost) isDevice(p *place) string {
	var addrs []netip.Addr // as far as they are known
	if ip, err := netip.ParseAddr(p.device.Endpoint.Host); err == nil {
		addrs = []netip.Addr{ip}
	} else {
		o.mu.Lock()
		addrs = o.resolved[p.device.Endpoint.Host].addrs
		o.mu.Unlock()
	}
	standardPort := !p.device.Driver.Descriptor().ByParameters && slices.Contains([]int{623, 443, 80}, p.device.Endpoint.Port)
	for _, ip := range addrs {
		switch {
		case contains(o.BMCAddrs, ip):
			return p.text() + " is this host's own BMC"
		case standardPort && !ip.IsLoopback() && contains(o.Addrs, ip):
			return p.text() + " is this host's own address"
		}
	}
	return ""
}

// defaultOwnRecord is the pin that keeps the system UUID of the host of an instance without a
// name. Instances that share a store have one each.
const defaultOwnRecord = "this host"

// isEntry returns why a host of the inventory is this host, "" if it is not. It has the system UUIDs that its devices reported, and
// those with which it was pinned: after a start no device has reported anything yet. A pin that is void proves nothing, and may
// still say which host this is. // I13
func (o *ownHost) isEntry(host string) string {
	e := o.catalog.index.get(host)
	if e == nil {
		return ""
	}
	for i := range e.devices {
		if why := o.isDevice(&e.devices[i]); why != "" {
			return why
		}
	}
	for _, r := range e.reports {
		if why := o.isUUID(r.uuid); why != "" {
			return why
		}
	}
	p, _, _ := o.catalog.pins.get(host)
	for _, uuid := range [...]string{p.SystemUUID, p.BMCUUID} {
		if why := o.isUUID(uuid); why != "" && o.catalog.isPinned(e) {
			return why
		}
	}
	if match, _ := bmc.MACsMatch(o.BMCMACs, e.allMACs()); match {
		return "a MAC address of " + host + " is that of this host's own BMC"
	}
	return ""
}

// isUUID returns why a system UUID is that of this host, as it was seen now or before; "" if it is
// not.
func (o *ownHost) isUUID(uuid string) string {
	if uuid == "" {
		return ""
	}
	if why := o.HasUUID(uuid); why != "" {
		return why
	}
	is := o.hasSeen(uuid)
	for _, record := range [...]string{o.record, defaultOwnRecord} {
		p, _, _ := o.catalog.pins.get(record)
		is = is || bmc.UUIDsMatch(p.SystemUUID, uuid)
	}
	if is {
		return "the system UUID is that of this host's own Node"
	}
	return ""
}

// wasNamed returns why a target whose Node is gone may be this host: the Node had the name under which this host was seen last. It is ""
// if it had another name. // I13
func (o *ownHost) wasNamed(t remediate.Target) string {
	for _, record := range [...]string{o.record, defaultOwnRecord} {
		if p, _, _ := o.catalog.pins.get(record); t.Node != "" && p.Node == t.Cluster+"/"+t.Node {
			return "this host was last seen as Node " + t.Node + ", which is gone"
		}
	}
	return ""
}

// maxOwnNodes is how many Nodes may say that they are this host: it has one, or a few after reinstallations. Those seen first stay.
const maxOwnNodes = 100

// note records what a Node says about this host.
func (o *ownHost) note(name string, n *policy.Node) {
	if !bmc.UsableUUID(n.SystemUUID) {
		return
	}
	is := o.Is(n) != ""
	o.mu.Lock()
	defer o.mu.Unlock()
	switch known, found := o.nodes[name]; {
	case is && o.nodes == nil:
		o.nodes = map[string]string{name: n.SystemUUID}
	case is && (found || len(o.nodes) < maxOwnNodes):
		o.nodes[name] = n.SystemUUID
	case found && o.isAnother(n, known):
		delete(o.nodes, name)
	}
}

// isAnother reports whether a Node shows that it is on another machine than this host, whose UUID it had.
func (o *ownHost) isAnother(n *policy.Node, uuid string) bool {
	return bmc.UsableUUID(n.SystemUUID) && o.Is(n) == "" && !bmc.UUIDsMatch(n.SystemUUID, uuid)
}

// seenAs returns a Node of this host that was seen, as "cluster/name", and its system UUID, "" if none was. It is the preferred one if that
// was seen.
func (o *ownHost) seenAs(preferred string) (node, uuid string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if uuid := o.nodes[preferred]; uuid != "" {
		return preferred, uuid
	}
	for _, node = range slices.Sorted(maps.Keys(o.nodes)) {
		return node, o.nodes[node]
	}
	return "", ""
}

// hasSeen reports whether a Node of this host was seen with a system UUID.
func (o *ownHost) hasSeen(uuid string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, seen := range o.nodes {
		if bmc.UUIDsMatch(seen, uuid) {
			return true
		}
	}
	return false
}
