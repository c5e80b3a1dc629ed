package hosts

import (
	"context"
	"fmt"
	"sync"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/power"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
)

// Inventory is what an administrator wrote about hosts. found is false for a Node
// without an entry; an error means that the entry cannot be used.
type Inventory interface {
	// List names the Nodes of a cluster that have an entry.
	List(cluster string) []string
	// Protected says whether the entry of a Node forbids to fence it automatically. It
	// reads no file: the deciding loop asks it.
	Protected(cluster, node string) bool
	Find(ctx context.Context, cluster, node string) (h bmc.Host, found bool, err error)
}

// View is what Hosts ask of the watched state of one cluster.
type View interface {
	// Seen says whether the cluster was seen whole.
	Seen() bool
	Node(name string) *policy.Node
	Machines() []*policy.Machine
	BareMetalHost(namespace, name string) *policy.Host
	// HostOf finds the BareMetalHost of a Machine.
	HostOf(m *policy.Machine) (policy.Host, error)
	// TargetOn names the objects of one Node as a run would; false when neither a Node nor
	// a Machine's node is called so.
	TargetOn(node string) (remediate.Target, bool)
	// Twin says which other Node has a system UUID; "" when none has. // I9
	Twin(node, systemUUID string) string
	// Healthy says whether the Node of a target is Ready, and no run is open on its host.
	Healthy(t remediate.Target) bool
	// Alive looks past every cache whether the Node of a machine is Ready, and gives the
	// version of its kubelet's Lease.
	Alive(ctx context.Context, t remediate.Target, systemUUID string) (lease string, alive bool)
	// Wake asks for a decision.
	Wake()
}

// Lead is this instance's right to write about a cluster.
type Lead interface {
	Leads() bool
	Store() state.Store
	// Refuse refuses an order that only the owner of the cluster can carry out.
	Refuse() error
}

// Secrets reads passwords from the cluster.
type Secrets interface {
	// Credentials reads user and password from a Secret, past every cache. An error is a
	// *reason.Refusal where the Secret is missing or lacks a key (SecretMissing), or where
	// the API server forbids to read it.
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

// Hosts knows, of all clusters, which machine each host is, and why that is believed:
// what administrators wrote, what BareMetalHosts say, what the BMCs told, what was pinned
// and enrolled, and whose BMC has lied.
type Hosts struct {
	opt      Options
	index    *index
	pins     *pins
	freezes  *freezes
	own      *ownHost
	clusters map[string]*Cluster
}

// New loads what the store holds. An error means that it could not be asked.
func New(ctx context.Context, opt Options, s state.Store) (*Hosts, error) {
	h := &Hosts{
		opt: opt, index: newIndex(), pins: newPins(), freezes: newFreezes(), clusters: map[string]*Cluster{},
		own: &ownHost{Own: opt.Own, found: map[string]resolved{}, pinned: ownPin(opt.Instance)},
	}
	return h, h.pins.load(ctx, s)
}

// ClusterOptions is one cluster whose hosts are to be known.
type ClusterOptions struct {
	Name         string
	IdentityMode string
	View         View
	Lead         Lead
	Secrets      Secrets
}

// Cluster is the hosts of one cluster.
type Cluster struct {
	hosts *Hosts
	opt   ClusterOptions

	mu      sync.Mutex
	secrets map[string]remembered // by namespace/name
}

// Attach adds a cluster and indexes the administrator's hosts of it. It must not be called
// while anything else is.
func (h *Hosts) Attach(ctx context.Context, opt ClusterOptions) *Cluster {
	c := &Cluster{hosts: h, opt: opt, secrets: map[string]remembered{}}
	h.clusters[opt.Name] = c
	for _, node := range h.opt.Inventory.List(opt.Name) {
		if way, found, err := h.opt.Inventory.Find(ctx, opt.Name, node); found && err == nil { // else it is refused for that
			h.index.put(indexed{name: way.Name, source: way.Source, way: bare(way), listed: true, secrets: secretsOf(opt.Name, way), devices: places(way)})
		}
	}
	return c
}

// LoadFreezes takes in which hosts are frozen. Freezes that cannot be read are an error,
// and leave what was known.
func (h *Hosts) LoadFreezes(ctx context.Context, s state.Store) error { return h.freezes.load(ctx, s) }

// LoadPins takes in what was pinned and enrolled. An error means that the store could not
// be asked.
func (h *Hosts) LoadPins(ctx context.Context, s state.Store) error { return h.pins.load(ctx, s) }

// CompleteFreezes freezes the hosts of runs that are Held for a false Off, where a crash
// kept that from being stored. // I5
func (h *Hosts) CompleteFreezes(ctx context.Context, s state.Store, runs map[string]remediate.Run) error {
	return h.freezes.complete(ctx, s, runs, h.classOf)
}

// PruneFreezes forgets released freezes whose runs are forgotten, too.
func (h *Hosts) PruneFreezes(ctx context.Context, s state.Store, kept func(run string) bool) error {
	return h.freezes.prune(ctx, s, kept)
}

// Follow takes in which BareMetalHosts of the cluster changed.
func (c *Cluster) Follow(changes []policy.Change) {
	c.hosts.index.follow(c.opt.Name, changes, c.hostOf)
}

func (c *Cluster) emit(e event.Event) {
	e.Cluster = c.opt.Name
	c.hosts.opt.Emit(e)
}

func (h *Hosts) cluster(name string) (*Cluster, error) {
	if c := h.clusters[name]; c != nil {
		return c, nil
	}
	return nil, &reason.Refusal{Reason: reason.NoSuchCluster, Message: fmt.Sprintf("no cluster %q is configured", name)}
}

// errNotSeen refuses what needs the whole cluster to be seen.
func errNotSeen() error {
	return &reason.Refusal{Reason: reason.NotSynced, Message: "the cluster has not been seen whole yet"}
}
