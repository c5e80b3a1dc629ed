package hosts

import (
	"context"
	"fmt"
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
	// Find returns the entry of a Node or Machine with its credentials. found is false if there
	// is none. An error means that the entry cannot be used.
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
	opt            Options
	listed         listed
	catalog        *catalog
	freezes        *freezes
	contradictions *outletContradictions
	own            *ownHost
	clusters       live.Map[*Cluster]
}

// New loads what the store holds. An error means that the store could not be read.
func New(ctx context.Context, opt Options, s state.Store) (*Hosts, error) {
	known := &catalog{index: newIndex(), pins: newPins()}
	h := &Hosts{
		opt: opt, catalog: known, freezes: newFreezes(), contradictions: &outletContradictions{first: map[string]contradiction{}},
		own: newOwnHost(opt.Own, opt.Instance, known),
	}
	h.listed.now.Store(&opt.Inventory)
	return h, known.pins.load(ctx, s)
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
		hosts: h, opt: opt, secrets: newSecretCache(opt.Secrets),
		metal: &metalTrust{cluster: opt.Name, rules: h.opt.Metal, catalog: h.catalog, withAccounts: h.withAccounts},
	}
	c.pins = &pinWriter{cluster: opt.Name, lead: opt.Lead, view: opt.View, catalog: h.catalog, emit: c.emit}
	c.nodeless = &nodeless{cluster: opt.Name, view: opt.View, hosts: h, metal: c.metal}
	return c
}

// Attach adds a cluster, whose View can be used now. It indexes the administrator's hosts of it
// first: nobody can use a host that is not in the index. // I9
func (h *Hosts) Attach(ctx context.Context, c *Cluster) {
	h.putEntries(ctx, h.listed.inventory(), c.opt.Name)
	h.clusters.Put(c.opt.Name, c)
}

// Detach removes a cluster and its hosts from the index, when nothing uses them any more. What the
// store has about them stays: pins, enrolments and freezes.
func (h *Hosts) Detach(name string) {
	h.clusters.Delete(name)
	h.catalog.index.dropCluster(name)
	h.contradictions.dropCluster(name)
}

// LoadFreezes reads which hosts are frozen. After an error, Hosts keeps what was known.
func (h *Hosts) LoadFreezes(ctx context.Context, s state.Store) error { return h.freezes.load(ctx, s) }

// LoadPins reads what was pinned and enrolled. An error means that the store could not be read.
func (h *Hosts) LoadPins(ctx context.Context, s state.Store) error {
	return h.catalog.pins.load(ctx, s)
}

// CompleteFreezes freezes the hosts of runs that are Held for a false Off, if a crash kept the
// freeze from being stored. // I5
func (h *Hosts) CompleteFreezes(ctx context.Context, s state.Store, runs []remediate.Run) error {
	return h.freezes.complete(ctx, s, runs, h.catalog.class)
}

// PruneFreezes deletes released freezes whose runs are deleted.
func (h *Hosts) PruneFreezes(ctx context.Context, s state.Store, kept func(run string) bool) error {
	return h.freezes.prune(ctx, s, kept)
}

// Follow applies changes of the cluster's BareMetalHosts.
func (c *Cluster) Follow(changes []policy.Change) {
	c.hosts.catalog.index.follow(c.opt.Name, changes, c.hostOf)
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

// listed is the present content of hosts.d: a reload replaces the whole of it at once.
type listed struct{ now atomic.Pointer[Inventory] }

func (l *listed) inventory() Inventory { return *l.now.Load() }

// ReplaceInventory takes in another content of hosts.d. The index has a new entry before
// anybody can use it, and loses a removed one after that, so that two hosts on one machine are
// noticed. A run keeps the devices that it began with, and is refused others. // I9, I10
func (h *Hosts) ReplaceInventory(ctx context.Context, next Inventory) {
	gone := h.catalog.index.listed()
	for cluster := range h.clusters.All() {
		for _, name := range h.putEntries(ctx, next, cluster) {
			delete(gone, name)
		}
	}
	h.listed.now.Store(&next)
	for name := range gone {
		h.catalog.index.drop(name)
	}
	h.wakeAll()
}

// putEntries indexes the administrator's hosts of one cluster, and returns their names there.
func (h *Hosts) putEntries(ctx context.Context, from Inventory, cluster string) (names []string) {
	for _, of := range from.List(cluster) {
		if entry, found, err := from.Find(ctx, cluster, of); found && err == nil { // another entry is refused when it is used
			h.catalog.index.put(newEntry(cluster, withoutAccounts(entry), hostEntry{name: entry.Name, source: entry.Source, listed: true}))
			names = append(names, entry.Name)
		}
	}
	return names
}
