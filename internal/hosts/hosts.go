package hosts

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/live"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/power"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
)

// Inventory is what an administrator wrote about hosts in hosts.d.
type Inventory interface {
	// List names what has an entry in a cluster: a Node by its name, a Machine by its
	// "namespace/name". No Node's name has a slash.
	List(cluster string) []string
	// Protected reports whether the entry of a Node or Machine forbids to fence it
	// automatically. It reads no file, because the deciding loop calls it.
	Protected(cluster, of string) bool
	// Refused says why nobody may use the entry of a Node or Machine, whatever it is for: something in it is wrong, and
	// what it should say is not known. It is "" if there is none, or if nothing is wrong. It reads no file either.
	Refused(cluster, of string) string
	// Unread says why entries may be missing: a file cannot be read, or does not tell whose its entries are; "" if none
	// can be missing.
	Unread() string
	// Bare returns the entry of a Node or Machine without its passwords, refused or not; nil if there is none. It reads no file, and nobody
	// changes what it returns.
	Bare(cluster, of string) *bmc.Host
	// Find returns the entry of a Node or Machine with its credentials. found is false if there
	// is none. An error means that the entry cannot be used; the host then only has those of its devices that could be read.
	Find(ctx context.Context, cluster, of string) (h bmc.Host, found bool, err error)
}

// View is the watched state of one cluster.
type View interface {
	// Seen reports whether the whole cluster was seen.
	Seen() bool
	Node(name string) *policy.Node
	Machines() []*policy.Machine
	BareMetalHost(namespace, name string) *policy.Host
	// HostOf finds the BareMetalHost of a Machine.
	HostOf(m *policy.Machine) (policy.Host, error)
	// TargetOn returns the objects of one Node as a run would name them. known is false if
	// neither a Node nor a Machine's node has that name.
	TargetOn(node string) (t remediate.Target, known bool)
	// TargetOf is TargetOn for a Machine, which may have no Node. machine is its
	// "namespace/name". known is false if no Machine, or more than one, has that name.
	TargetOf(machine string) (t remediate.Target, known bool)
	// MachineOf returns the Machine of a target; nil if it is gone or was replaced.
	MachineOf(t remediate.Target) *policy.Machine
	// OtherNodeWithUUID returns which other Node has the same system UUID, "" if none has. // I9
	OtherNodeWithUUID(node, systemUUID string) string
	// Healthy reports whether the Node of a target is Ready, and no run is open on its host.
	Healthy(t remediate.Target) bool
	// Alive reads, without any cache, whether the Node of a machine is Ready. lease is the
	// resourceVersion of its kubelet's Lease.
	Alive(ctx context.Context, t remediate.Target, systemUUID string) (lease string, alive bool)
	// Wake asks for a decision.
	Wake()
}

// Lead is this instance's right to write about a cluster.
type Lead interface {
	Leads() bool
	Store() state.Store
	// Refuse refuses an order that only the owner of the cluster can carry out; nil for the
	// owner.
	Refuse() error
}

// Secrets reads passwords from the cluster.
type Secrets interface {
	// Credentials reads user and password from a Secret, without any cache. The error is a
	// *reason.Refusal if the Secret is missing or lacks a key (SecretMissing), or if the API
	// server forbids to read it.
	Credentials(ctx context.Context, namespace, name string) (string, bmc.Secret, error)
}

// Options is what Hosts are made from.
type Options struct {
	Inventory Inventory
	Metal     MetalRules
	Own       Own
	Instance  string
	Open      bmc.Opener
	Timing    power.ReadTiming
	LockOut   *power.LockOut
	Emit      func(event.Event)
}

// Hosts knows the hosts of all clusters. The catalog, the freezes, the own host and the Secrets of
// each cluster are parts with a lock each. No part calls another one while it holds its lock.
type Hosts struct {
	Freezes *Freezes // what nothing may switch off until a person releases it

	opt            Options
	listed         atomic.Pointer[Inventory] // hosts.d: a reload replaces the whole of it at once
	catalog        *catalog
	contradictions *outletContradictions
	own            *ownHost
	clusters       live.Map[*Cluster]
}

// New loads what the store holds. An error means that the store could not be read.
func New(ctx context.Context, opt Options, s state.Store) (*Hosts, error) {
	known := &catalog{index: newIndex(), pins: newPins()}
	h := &Hosts{
		opt: opt, catalog: known, Freezes: newFreezes(known.class), contradictions: &outletContradictions{first: map[string]contradiction{}},
		own: &ownHost{Own: opt.Own, catalog: known, resolved: map[string]resolvedName{}, record: strings.TrimSpace(defaultOwnRecord + " " + opt.Instance)},
	}
	h.listed.Store(&opt.Inventory)
	return h, h.LoadPins(ctx, s)
}

// ClusterOptions describes one cluster.
type ClusterOptions struct {
	Name         string
	IdentityMode string
	View         View
	Lead         Lead
	Secrets      Secrets
}

// Cluster knows the hosts of one cluster.
type Cluster struct {
	hosts    *Hosts
	opt      ClusterOptions
	metal    *metalTrust
	nodeless *nodeless
	pins     *pinWriter
	secrets  *secretCache
}

// NewCluster returns the hosts of a cluster, which Attach adds.
func (h *Hosts) NewCluster(opt ClusterOptions) *Cluster {
	c := &Cluster{
		hosts: h, opt: opt, secrets: &secretCache{source: opt.Secrets, byKey: map[string]cachedCredentials{}},
		metal: &metalTrust{cluster: opt.Name, rules: h.opt.Metal, catalog: h.catalog, withAccounts: h.withAccounts},
	}
	c.pins = &pinWriter{cluster: opt.Name, lead: opt.Lead, view: opt.View, catalog: h.catalog, emit: c.emit}
	c.nodeless = &nodeless{cluster: opt.Name, view: opt.View, hosts: h, metal: c.metal}
	return c
}

// Attach adds a cluster, whose View can be used now. It indexes the administrator's hosts of it
// first: nobody can use a host that is not in the index. // I9
func (h *Hosts) Attach(ctx context.Context, c *Cluster) {
	h.putEntries(*h.listed.Load(), c.opt.Name)
	h.clusters.Put(c.opt.Name, c)
}

// Detach removes a cluster and its hosts from the index, when nothing uses them any more. What the
// store has about them stays: pins, enrolments and freezes.
func (h *Hosts) Detach(name string) {
	h.clusters.Delete(name)
	h.catalog.index.dropIf(inCluster(name))
	h.contradictions.dropCluster(name)
}

// Follow applies changes of the cluster's BareMetalHosts.
func (c *Cluster) Follow(changes []policy.Change) {
	index := c.hosts.catalog.index
	for i := range changes {
		id := changes[i].ID
		if id.Kind != "BareMetalHost" || changes[i].Err != nil { // an unreadable one stays as it was
			continue
		}
		name := c.opt.Name + "/" + id.Namespace + "/" + id.Name
		b, _ := changes[i].Value.(*policy.Host)
		if b == nil {
			index.drop(name)
			continue
		}
		h, err := c.hostOf(b)
		if err != nil { // its address cannot be used
			h = bmc.Host{Source: "BareMetalHost " + b.Key()}
		}
		index.put(hostEntry{name: name, uid: b.UID, macs: b.MACs, serial: b.Serial,
			host: &h, devices: places(&h)})
	}
}

func (c *Cluster) emit(e event.Event) {
	e.Cluster = c.opt.Name
	c.hosts.opt.Emit(e)
}

func (h *Hosts) cluster(name string) (*Cluster, error) {
	if c := h.clusters.Get(name); c != nil {
		return c, nil
	}
	return nil, &reason.Refusal{Reason: reason.NoSuchCluster, Message: fmt.Sprintf("no cluster %q is configured", name)}
}

func (h *Hosts) wakeAll() {
	for _, c := range h.clusters.All() {
		c.opt.View.Wake()
	}
}

// errNotSeen refuses what needs the whole cluster to be seen.
func errNotSeen() error {
	return &reason.Refusal{Reason: reason.NotSynced, Message: "the watch of the cluster is not complete yet; try again in a few seconds"}
}

// ReplaceInventory takes in another content of hosts.d. The index has a new entry before
// anybody can use it, and loses a removed one after that, so that two hosts on one machine are
// noticed. A run keeps the devices that it began with, and is refused others. // I9, I10
func (h *Hosts) ReplaceInventory(ctx context.Context, next Inventory) {
	for cluster := range h.clusters.All() {
		h.putEntries(next, cluster)
	}
	h.listed.Store(&next)
	h.catalog.index.dropIf(func(e *hostEntry) bool {
		cluster, of := bmc.EntryOf(e.name)
		return e.listed && next.Bare(cluster, of) == nil
	})
	h.wakeAll()
}

// putEntries indexes the administrator's hosts of one cluster. Most are there already when the files are read again.
func (h *Hosts) putEntries(from Inventory, cluster string) {
	for _, of := range from.List(cluster) {
		e := from.Bare(cluster, of)
		if e == nil { // one that cannot be used is refused when it is used, and shares its devices with nobody // I9
			continue
		}
		if old := h.catalog.index.get(e.Name); old == nil || old.host != e {
			h.catalog.index.put(hostEntry{name: e.Name, listed: true, host: e, devices: places(e)})
		}
	}
}

// FixTarget records in a target where its host is found, for the whole run. // I10
func (c *Cluster) FixTarget(t *remediate.Target, h bmc.Host) {
	t.Host, t.Address, t.Devices, t.Choice = h.Name, h.Address(), devicesOf(h), choiceOf(h)
	t.Secret, t.Unverified = strings.Join(secretsOf(c.opt.Name, &h), "\n"), false
	for _, l := range h.Levels {
		t.Unverified = t.Unverified || slices.ContainsFunc(l.Devices, func(d bmc.Device) bool { return d.TLS.InsecureSkipVerify })
	}
}

// Find returns a target's host with its credentials. It refuses a host that leads elsewhere than
// when the run began. It also finds out whether a name in it is that of this host's own BMC. The error is
// a *reason.Refusal.
func (c *Cluster) Find(ctx context.Context, t remediate.Target) (bmc.Host, error) {
	if t.Address == "" { // FixTarget was not called yet
		return c.FindNew(ctx, t)
	}
	h, err := c.FindBare(ctx, t)
	if err != nil {
		return h, err
	}
	c.hosts.own.resolveAll(ctx, h)
	return withSecrets(ctx, h, c.secrets.read), nil
}

// FindBare is Find without the credentials. // I10
func (c *Cluster) FindBare(ctx context.Context, t remediate.Target) (bmc.Host, error) {
	h, err := c.Entry(ctx, t)
	if err != nil {
		return h, err
	}
	if t.Address != "" && t.Address != h.Address() {
		return h, &reason.Refusal{Reason: reason.AddressChanged,
			Message: fmt.Sprintf("the BMC address of %s changed from %s to %s during the run", h.Source, t.Address, h.Address())}
	}
	if t.Choice != "" && t.Choice != choiceOf(h) {
		return h, &reason.Refusal{Reason: reason.AddressChanged,
			Message: fmt.Sprintf("what %s switches was changed in %s during the run", h.Address(), h.Source)}
	}
	if why := c.metal.otherSecret(h, t); why != "" {
		return h, &reason.Refusal{Reason: reason.InvalidHost, Message: why}
	}
	if t.Choice != "" { // bmcNetworks may be narrower since, but the host must come back
		for _, l := range h.Levels {
			for i, d := range l.Devices {
				if d.Networks.RefuseHost(d.Endpoint.Host) != "" {
					l.Devices[i].Networks = nil
				}
				if !t.Unverified && !c.hosts.opt.Metal.Unverified && c.metal.isMetal(h, t) { // whoever writes the object may ask for it now
					l.Devices[i].TLS.InsecureSkipVerify = false
				}
			}
		}
	}
	return h, nil
}

// FindNew is Find for a target to which nothing was done yet. It sends no password where an
// unknown BareMetalHost leads. // I10
func (c *Cluster) FindNew(ctx context.Context, t remediate.Target) (bmc.Host, error) {
	h, err := c.FindBare(ctx, t)
	if err != nil {
		return h, err
	}
	if r := c.metal.withheld(h, t); r != nil {
		return h, r
	}
	c.hosts.own.resolveAll(ctx, h)
	h = withSecrets(ctx, h, c.secrets.read)
	if r := c.metal.otherAccount(ctx, h, t); r != nil {
		return h, r
	}
	return h, nil
}

// Entry returns the administrator's entry for a target, or else the BareMetalHost of its Machine,
// as they are now.
func (c *Cluster) Entry(ctx context.Context, t remediate.Target) (bmc.Host, error) {
	entries := *c.hosts.listed.Load() // once: of two contents neither might say what both say together // I10
	h, found, err := c.listed(ctx, entries, t)
	if err != nil {
		return h, err
	}
	if found {
		return c.withEnrolled(h), nil
	}
	if why := entries.Unread(); why != "" && t.Host == "" { // a run keeps the host that it began with
		return bmc.Host{}, &reason.Refusal{Reason: reason.InvalidHost, Message: "hosts.d may have an entry for it that cannot be read: " + why}
	}
	b := bareMetalHost(c.opt.View, t)
	if b == nil {
		return bmc.Host{}, &reason.Refusal{Reason: reason.NoHost, Message: noHostText(t)}
	}
	if h, err = c.hostOf(b); err != nil {
		return h, err
	}
	return c.withEnrolled(h), nil
}

// listed returns the entry of hosts.d for a target's Node or its Machine. It refuses two entries:
// nothing says which of them is right. // I9
func (c *Cluster) listed(ctx context.Context, entries Inventory, t remediate.Target) (entry bmc.Host, found bool, err error) {
	for _, of := range t.Names() {
		h, ok, err := entries.Find(ctx, c.opt.Name, of)
		if ok && t.Choice != "" && t.Choice == choiceOf(h) && entries.Refused(c.opt.Name, of) != "" {
			return h, true, nil // a run brings its host back with the devices that it began with; OffLimits keeps it from anything else // I20
		}
		switch {
		case err != nil:
			return h, false, &reason.Refusal{Reason: RefusalReason(err, reason.InvalidHost), Message: reason.Sentence(err)}
		case ok && found:
			return h, false, &reason.Refusal{Reason: reason.DuplicateHost, Message: fmt.Sprintf(
				"%s is the entry of Node %s, and %s that of its Machine %s: keep one of them", entry.Source, t.Node, h.Source, t.MachineKey())}
		case ok:
			entry, found = h, true
		}
	}
	return entry, found, nil
}

// hostOf makes a host of a BareMetalHost, without its credentials.
func (c *Cluster) hostOf(b *policy.Host) (bmc.Host, error) {
	ep, err := bmc.ParseEndpoint(b.Address)
	if err != nil {
		return bmc.Host{}, &reason.Refusal{Reason: reason.InvalidHost, Message: "BareMetalHost " + b.Key() + ": " + err.Error()}
	}
	d := bmc.Device{
		Driver: bmc.Driver(ep.Protocol), Endpoint: ep, TLS: bmc.TLS{InsecureSkipVerify: b.DisableCertificateVerification},
		Secret: b.Namespace + "/" + b.CredentialsName, Networks: c.hosts.opt.Metal.Networks,
	}
	return bmc.Host{
		Name: c.opt.Name + "/" + b.Key(), IdentityMode: c.opt.IdentityMode, Source: "BareMetalHost " + b.Key(),
		Levels: []bmc.Level{{Devices: []bmc.Device{d}}},
	}, nil
}

// withAccounts returns an indexed host of any cluster with recent credentials. It returns false if
// the host's cluster is not configured.
func (h *Hosts) withAccounts(ctx context.Context, e *hostEntry) (bmc.Host, bool) {
	cluster, of := bmc.EntryOf(e.name)
	found := *e.host
	if e.listed {
		found, _, _ = (*h.listed.Load()).Find(ctx, cluster, of) // of an entry that is refused, those devices that could be read
	}
	c := h.clusters.Get(cluster)
	if c == nil {
		return bmc.Host{}, false
	}
	return withSecrets(ctx, found, c.secrets.recent), true
}

func noHostText(t remediate.Target) string {
	if t.Node == "" {
		return fmt.Sprintf("Machine %s has no Node, no entry in hosts.d, and names no BareMetalHost; add an entry with machine: %s", t.MachineKey(), t.MachineKey())
	}
	return fmt.Sprintf("no entry in hosts.d for Node %q and no BareMetalHost for Machine %q; add one", t.Node, t.Machine)
}

func bareMetalHost(v View, t remediate.Target) *policy.Host {
	if t.BareMetalHost == "" {
		return nil
	}
	ns, name, _ := strings.Cut(t.BareMetalHost, "/")
	return v.BareMetalHost(ns, name)
}

// names are the names under which the index has a host. A Node or a Machine may have an entry of
// hosts.d as well as a BareMetalHost.
func names(cluster string, t remediate.Target) []string {
	return (&Subject{Cluster: cluster, Node: t.Node, Machine: t.MachineKey(), BareMetalHost: t.BareMetalHost}).names()
}

func (s *Subject) names() []string {
	list := make([]string, 0, 3)
	if s.Node != "" {
		list = append(list, s.Cluster+"/"+s.Node)
	}
	if s.Machine != "" {
		list = append(list, bmc.EntryName(s.Cluster, s.Machine))
	}
	if s.BareMetalHost != "" {
		list = append(list, s.Cluster+"/"+s.BareMetalHost)
	}
	return list
}

// ReasonOf is the reason code of an error with a host.
func ReasonOf(err error) reason.Code {
	return RefusalReason(err, reason.OfBMC(string(bmc.KindOf(err))))
}

// RefusalReason is the reason code if fenced itself refuses a host or a power level, else fallback.
func RefusalReason(err error, fallback reason.Code) reason.Code {
	if r, ok := reason.AsRefusal(err); ok {
		return r.Reason
	}
	return fallback
}
