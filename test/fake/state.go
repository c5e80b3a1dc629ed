// Package fake is a cluster of plain values in virtual time: an API server with
// its Nodes, Machines, Leases, pods, checks and BareMetalHosts, and the hosts
// with their kernels, kubelets, BMCs and outlets. The tests of the engine and the
// simulation (test/sim) use it.
//
// State is the model. A test reaches it only through Cluster.Do, which holds the
// lock, so that it cannot read or change it at the same time as the engine.
// Cluster implements the interfaces of the engine. Handle is one host with its
// Node, for tests. Tick lets one second pass.
package fake

import (
	"maps"
	"slices"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/request"
)

// Namespace is the namespace of Machines and BareMetalHosts.
const Namespace = "ns"

// State is the cluster, with everything that can be wrong with it.
type State struct {
	Name  string
	UID   string // of the Namespace kube-system
	Hosts []*Host

	// The API server's objects. A Node is never changed in place: PutNode stores a
	// copy.
	Nodes    map[string]*Node
	Machines map[string]*policy.Machine          // by Node
	Leases   map[string]Lease                    // by Node
	Pods     map[string]int                      // bound to a Node's name
	Metal    map[string]*policy.Host             // BareMetalHosts, by name
	Check    *policy.Check                       // the check that ChangeCheck changes
	Owner    *policy.Cluster                     // of the Cluster API's Machines; nil: none
	Asked    map[string]*policy.Request          // FencedRemediations, by name
	Told     map[string]request.Status           // what was written to them, by UID
	Others   map[policy.ObjectID]*policy.Request // requests for other remediators
	Secrets  map[string]Account                  // by name
	Entries  map[string]bmc.Host                 // of hosts.d, by Node
	// RefusedEntries says why an entry is refused, by Node, and UnreadEntries why entries may be missing.
	RefusedEntries map[string]string
	UnreadEntries  string
	History        []Change                // for watches
	latest         map[policy.ObjectID]any // what History comes to
	Fenced         FencedLease

	// Medik8s: its controllers are installed, so each remediator takes the Lease on a Node.
	Medik8s   bool
	NodeLocks map[string]NodeLock // by Node
	LocksAs   string              // fenced as a holder

	// How the control plane behaves.
	PodsOfANode int                   // number of pods that start on a Ready Node
	Lifecycle   bool                  // it sets Ready=Unknown for kubelets that send no heartbeat
	Plugin      bool                  // an operator sets NoNetwork on the Node of a host that does not run, and takes it off
	ReadyAfter  time.Duration         // after the registration
	Stamp       func(*Host) time.Time // transition time of a Node that becomes Unknown; nil: now

	// The faults of the API server.
	DownUntil       time.Time
	lost, back      time.Time
	DownAtIsolation bool          // the API server fails before it answers an isolation
	Unsynced        bool          // the caches of its watches
	Skew            time.Duration // the API server's clock minus ours
	MembersUnknown  bool          // of etcd
	Contested       remediate.Answer
	Contender       string
	PowerForbidden  string
	TemplateMissing string // why no request can be made
	// TemplateAttempts are the power cycles that fenced's own templates allow, by name; TemplateFails is the
	// error of reading one.
	TemplateAttempts map[string]int
	TemplateFails    error
	OthersFail       error // of reads of the requests for other remediators
	Prepared         int   // how often a request for another remediator was prepared
	FinalizerFails   error // the finalizer of a FencedRemediation cannot be set
	FinalizerTakes   time.Duration

	// These break rules of an API server, to test that a test notices it.
	IgnorePreconditions, RestoreNothing bool

	// OnDelete, if it is set, does what becomes of a deleted Machine of OpenShift. If nil, the
	// Machine, its Node and its host are gone at once.
	OnDelete func(m policy.Machine)
	// OnHandover is called before a request for another remediator is made.
	OnHandover func() error
	// OnIsolate is called before each isolation, Note for each event of a host.
	OnIsolate func(n *Node, r remediate.Run, b remediate.Backup)
	Note      func(host, format string, args ...any)

	SecretReads   int
	marked        int            // Machines handed over to their owners
	deprovisioned []string       // hosts whose Machines were deleted, in that order
	mostOff       map[string]int // hosts that were off at once, by zone; "all" is all
	version       uint64
	uids          int
	goneAt        map[string]time.Time // when a Node was deleted, for the pod garbage collector
	signals       []chan struct{}
}

// Account is the content of a Secret.
type Account struct {
	User     string
	Password bmc.Secret
}

// Lease is a kubelet's heartbeat.
type Lease struct {
	Version  uint64
	Renewed  time.Time
	Duration time.Duration
}

// Change is one entry of the API server's history, which watches follow.
type Change struct {
	At time.Time
	policy.Change
}

// NewState returns an empty cluster without a lock, for the simulation, which has
// a lock of its own. All others use New.
func NewState(name string) *State {
	return &State{Name: name, UID: "cluster-" + name, Nodes: map[string]*Node{}, Machines: map[string]*policy.Machine{}, Leases: map[string]Lease{},
		Pods: map[string]int{}, Metal: map[string]*policy.Host{}, Secrets: map[string]Account{}, Asked: map[string]*policy.Request{}, Told: map[string]request.Status{}, Others: map[policy.ObjectID]*policy.Request{}, Entries: map[string]bmc.Host{},
		Contested: remediate.No, NodeLocks: map[string]NodeLock{}, LocksAs: "fenced", latest: map[policy.ObjectID]any{}, mostOff: map[string]int{}, goneAt: map[string]time.Time{}, Note: func(string, string, ...any) {}}
}

// Host finds a host by its name; nil if there is none.
func (s *State) Host(name string) *Host {
	for _, h := range s.Hosts {
		if h.Name == name {
			return h
		}
	}
	return nil
}

// next returns the resourceVersion of the next write.
func (s *State) next() uint64 { s.version++; return s.version }

// show adds an object to the history and signals the watches; a nil value means
// that it was deleted.
func (s *State) show(id policy.ObjectID, value any) {
	s.History = append(s.History, Change{time.Now(), policy.Change{ID: id, Value: value}})
	if s.latest[id] = value; value == nil {
		delete(s.latest, id)
	}
	for _, each := range s.signals {
		select {
		case each <- struct{}{}:
		default:
		}
	}
}

// resync adds all objects to the history again, as after a watch that expired and
// lists again.
func (s *State) resync() {
	for id, value := range maps.Clone(s.latest) {
		s.show(id, value)
	}
}

// Tick simulates one second of each host and of the control plane's controllers.
func (s *State) Tick(now time.Time) {
	for _, h := range s.Hosts {
		h.tick(now)
	}
	for _, h := range s.Hosts {
		s.reconcile(h, now)
	}
}

const (
	leaseGrace = 50 * time.Second // longest time without a heartbeat
	podGrace   = 55 * time.Second // how long pods outlive their Node
)

// reconcile is the node lifecycle controller and the garbage collector of pods.
func (s *State) reconcile(h *Host, now time.Time) {
	n := s.Nodes[h.Name]
	if n == nil {
		if gone := s.goneAt[h.Name]; !gone.IsZero() && now.Sub(gone) > podGrace {
			s.Pods[h.Name] = 0
		}
		return
	}
	silent := s.Lifecycle && now.Sub(s.Leases[h.Name].Renewed) > leaseGrace
	if silent && (n.Ready == "True" || n.Ready == "False" && now.Sub(n.Since) > leaseGrace) {
		s.SetReady(h.Name, "Unknown")
	}
	if n.OutOfService() {
		s.Pods[h.Name] = 0
	}
	if runs := h.On && h.Kernel == Runs && n.BootID == h.BootID(); s.Plugin && slices.Contains(n.Taints, NoNetwork) == runs {
		s.ChangeNode(h.Name, func(n *Node) {
			if n.Taints = slices.DeleteFunc(n.Taints, func(t string) bool { return t == NoNetwork }); !runs {
				n.Taints = append(n.Taints, NoNetwork)
			}
		})
	}
}

// TakeDown makes the API server stop answering, until BringUp.
func (s *State) TakeDown() { s.lost, s.DownUntil = time.Now(), time.Now().Add(1000*time.Hour) }

// BringUp makes the API server answer again.
func (s *State) BringUp() { s.DownUntil, s.back, s.DownAtIsolation = time.Time{}, time.Now(), false }

// Down reports whether the API server does not answer.
func (s *State) Down() bool { return time.Now().Before(s.DownUntil) }
