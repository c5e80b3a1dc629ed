// Package fake is one cluster as plain values in virtual time: an API server with its
// Nodes, Machines, Leases, pods, checks and BareMetalHosts, and below it the hosts with
// their kernels, kubelets, BMCs and outlets. The tests of the engine and the simulation
// (test/sim) stand on it.
//
// State is the model. A test reaches it only through Cluster.Do, which holds the lock:
// it cannot read or change it while the engine or the passing time does. Cluster
// implements what the engine asks for, and Handle is one host with its Node as a test
// looks at it. Time passes by Tick, once a second.
package fake

import (
	"maps"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
)

// Namespace is that of Machines and BareMetalHosts.
const Namespace = "ns"

// State is the cluster, and all that can be wrong with it.
type State struct {
	Name  string
	Hosts []*Host

	// The API server's objects. A Node is never changed in place: Put stores another.
	Nodes    map[string]*Node
	Machines map[string]*policy.Machine // by Node
	Leases   map[string]Lease           // by Node
	Pods     map[string]int             // bound to a Node's name
	Metal    map[string]*policy.Host    // BareMetalHosts, by name
	Check    *policy.Check              // the one that ChangeCheck changes
	Owner    *policy.Cluster            // of the Cluster API's Machines; nil: none
	Secrets  map[string]Account         // by name
	Entries  map[string]bmc.Host        // of hosts.d, by Node
	History  []Change                   // for watches
	latest   map[policy.ObjectID]any    // what History comes to
	Fenced   FencedLease

	// How the control plane works here.
	PodsOfANode int                   // how many start on a Node that is Ready
	Lifecycle   bool                  // it turns Nodes Unknown whose kubelets are silent
	ReadyAfter  time.Duration         // after the registration
	Stamp       func(*Host) time.Time // of a Node that turns Unknown; nil: now

	// What is wrong with the API server.
	DownUntil       time.Time
	lost, back      time.Time
	DownAtIsolation bool          // its answer is lost with the API server
	Unsynced        bool          // the caches of its watches
	Skew            time.Duration // of its clock, minus ours
	MembersUnknown  bool          // of etcd
	Contested       remediate.Answer
	Contender       string
	PowerForbidden  string

	// What breaks the rules of an API server, to see that this is noticed.
	IgnorePreconditions, RestoreNothing bool

	// OnIsolate hears of an isolation before it is done, Note of what happens to a host.
	OnIsolate func(n *Node, r remediate.Run, b remediate.Backup)
	Note      func(host, format string, args ...any)

	SecretReads   int
	marked        int            // Machines handed over to their owners
	deprovisioned []string       // hosts whose Machines were deleted, in that order
	mostOff       map[string]int // hosts that were off at once, by zone; "all" is all
	version       uint64
	uids          int
	goneAt        map[string]time.Time // when a Node went, for the pod garbage collector
	signals       []chan struct{}
}

// Account is what a Secret holds.
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

// NewState is an empty cluster that its user guards: the simulation does, together with
// all that surrounds it. Everybody else has New.
func NewState(name string) *State {
	return &State{Name: name, Nodes: map[string]*Node{}, Machines: map[string]*policy.Machine{}, Leases: map[string]Lease{},
		Pods: map[string]int{}, Metal: map[string]*policy.Host{}, Secrets: map[string]Account{}, Entries: map[string]bmc.Host{},
		Contested: remediate.No, latest: map[policy.ObjectID]any{}, mostOff: map[string]int{}, goneAt: map[string]time.Time{}, Note: func(string, string, ...any) {}}
}

// Host finds a host by its name; nil: there is none.
func (s *State) Host(name string) *Host {
	for _, h := range s.Hosts {
		if h.Name == name {
			return h
		}
	}
	return nil
}

// next is the resourceVersion of the next write.
func (s *State) next() uint64 { s.version++; return s.version }

// show writes an object into the history, and tells the watches; a nil value is its
// deletion.
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

// resync shows all objects once more, as to a watch that has expired and lists again.
func (s *State) resync() {
	for id, value := range maps.Clone(s.latest) {
		s.show(id, value)
	}
}

// Tick is one second: of each host, and of the control plane's controllers.
func (s *State) Tick(now time.Time) {
	for _, h := range s.Hosts {
		h.tick(now)
	}
	for _, h := range s.Hosts {
		s.reconcile(h, now)
	}
}

const (
	leaseGrace = 50 * time.Second // a kubelet may be silent for
	podGrace   = 55 * time.Second // pods outlive their Node by
)

// reconcile is the node lifecycle and the garbage collector of pods.
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
}

// TakeDown takes the API server away, until BringUp.
func (s *State) TakeDown() { s.lost, s.DownUntil = time.Now(), time.Now().Add(1000*time.Hour) }

// BringUp gives it back.
func (s *State) BringUp() { s.DownUntil, s.back, s.DownAtIsolation = time.Time{}, time.Now(), false }

// Down says whether the API server answers nobody.
func (s *State) Down() bool { return time.Now().Before(s.DownUntil) }
