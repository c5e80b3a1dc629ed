package wire

import (
	"cmp"
	"maps"
	"slices"
)

// Nodes says of each Node, and of each Machine without one that a check covers or that has a host,
// which checks cover it and whether its power could be switched.
type Nodes struct {
	Nodes []Node `json:"nodes"`
	// States counts all of them by state if only the most urgent were asked for; More is how many are left out.
	States map[string]int `json:"states,omitempty"`
	More   int            `json:"more,omitempty"`
	// Unseen are the clusters of which fenced has not seen all since its start: their Nodes are not known.
	Unseen []string `json:"unseen,omitempty"`
}

// Whether a Node could be fenced.
const (
	FenceableYes      = "yes"
	FenceableNo       = "no"
	FenceableUnknown  = "unknown"   // its BMC is not known yet, or was not checked since the daemon started
	FenceableNotAsked = "not asked" // its checks do not ask for a power cycle
)

// The states of a Node, the most urgent first. One that is in several has the first of them.
const (
	NodeHeld        = "Held"        // its run needs a person
	NodeRemediating = "Remediating" // a run is open
	NodeWaiting     = "Waiting"     // its run waits
	NodeBlocked     = "Blocked"     // a check wants it remediated, and something forbids it
	NodeUnseen      = "Unseen"      // fenced does not see the cluster now, so it does not know whether the Node deviates
	NodeUnhealthy   = "Unhealthy"   // it deviates, and no check wants it remediated yet
	NodeOnHold      = "OnHold"      // a person holds it, or a quarantine
	NodeUnfenceable = "Unfenceable" // a check protects it in vain: its power could not be switched
	NodeHealthy     = "Healthy"
	NodeUncovered   = "Uncovered" // no check covers it
)

// NodesFilter says which Nodes are asked for: all, if it is empty.
type NodesFilter struct {
	Cluster string
	Of      string // a Node, or the "namespace/name" of a Machine
	Most    int    // above 0: at most so many, the most urgent
}

// Cut leaves those that are asked for of the Nodes of the cluster.
func (n Nodes) Cut(f NodesFilter) Nodes {
	if f.Of != "" {
		n.Nodes = slices.DeleteFunc(slices.Clone(n.Nodes), func(x Node) bool { return x.Node != f.Of && x.Machine != f.Of })
	}
	if f.Most > 0 && n.States == nil {
		return n.MostUrgent(f.Most)
	}
	return n
}

// NodeStates lists the states, the most urgent first.
var NodeStates = []string{NodeHeld, NodeRemediating, NodeWaiting, NodeBlocked, NodeUnseen, NodeUnhealthy, NodeOnHold, NodeUnfenceable, NodeHealthy, NodeUncovered}

// MostUrgent leaves at most so many.
func (n Nodes) MostUrgent(most int) Nodes {
	room := map[string]int{}
	for i := range n.Nodes {
		room[n.Nodes[i].State]++
	}
	out := Nodes{Unseen: n.Unseen, States: maps.Clone(room), More: max(0, len(n.Nodes)-most), Nodes: make([]Node, 0, min(len(n.Nodes), most))}
	order := slices.Clone(NodeStates)
	for _, state := range slices.Sorted(maps.Keys(room)) { // of another version
		if !slices.Contains(order, state) {
			order = append(order, state)
		}
	}
	for _, state := range order {
		room[state] = min(room[state], most)
		most -= room[state]
	}
	for i := range n.Nodes {
		if state := n.Nodes[i].State; room[state] > 0 {
			room[state]--
			out.Nodes = append(out.Nodes, n.Nodes[i])
		}
	}
	return out
}

// Node is one Node, or a Machine without a Node.
type Node struct {
	Cluster string   `json:"cluster"`
	Node    string   `json:"node"`
	Machine string   `json:"machine,omitempty"` // namespace/name; only of one without a Node
	Zone    string   `json:"zone,omitempty"`    // the value of the label that guards.zoneKey names
	Rack    string   `json:"rack,omitempty"`    // of guards.rackKey
	State   string   `json:"state,omitempty"`   // one of the Node* constants
	Run     string   `json:"run,omitempty"`     // the open run
	Checks  []string `json:"checks"`            // kind and name of those that cover it
	BMCs    []string `json:"bmcs"`              // the addresses of its devices, the first power level first
	// Fenceable is yes, no, unknown or "not asked". Reason, Message and Next are why it is no, and what
	// to do next.
	Fenceable string `json:"fenceable"`
	Reason    string `json:"reason,omitempty"`
	Message   string `json:"message,omitempty"`
	Next      string `json:"next,omitempty"`
}

// Name returns the name of the Node, or of a Machine without one.
func (n *Node) Name() string { return cmp.Or(n.Node, n.Machine) }

// IsGap reports whether a check protects the Node in vain: fenced would have to switch its power and
// could not. A daemon never fences the host that it runs on, nor one that hosts.d protects, so these are no gaps.
func (n *Node) IsGap() bool {
	return n.Fenceable == FenceableNo && len(n.Checks) > 0 && !isRefusedForGood(n.Reason)
}

// NodeCover counts the Nodes of a cluster that checks cover, and says which of them could not be
// fenced.
type NodeCover struct {
	Covered int `json:"covered"`
	// Unknown is how many of them have a BMC that was not checked since the start of the daemon.
	Unknown int       `json:"unknown,omitempty"`
	Gaps    []NodeGap `json:"gaps,omitempty"`
}

// NodeGap is how many Nodes are covered and could not be fenced for one reason, and the first of them.
type NodeGap struct {
	Reason  string `json:"reason"`
	Count   int    `json:"count"`
	Node    string `json:"node"`
	Message string `json:"message"`
	Next    string `json:"next"`
}

// Add counts a Node. The order does not matter.
func (c *NodeCover) Add(x *Node) {
	if len(x.Checks) == 0 {
		return
	}
	c.Covered++
	if x.Fenceable == FenceableUnknown {
		c.Unknown++
	}
	if !x.IsGap() {
		return
	}
	at := slices.IndexFunc(c.Gaps, func(g NodeGap) bool { return g.Reason == x.Reason })
	if at < 0 {
		at, c.Gaps = len(c.Gaps), append(c.Gaps, NodeGap{Reason: x.Reason, Node: x.Name(), Message: x.Message, Next: x.Next})
	}
	g := &c.Gaps[at]
	if g.Count++; x.Name() < g.Node {
		g.Node, g.Message, g.Next = x.Name(), x.Message, x.Next
	}
}
