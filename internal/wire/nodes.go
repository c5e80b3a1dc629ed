package wire

import (
	"cmp"
)

// Nodes says of each Node, and of each Machine without one that a check covers or that has a host,
// which checks cover it and whether its power could be switched.
type Nodes struct {
	Nodes []Node `json:"nodes"`
}

// Whether a Node could be fenced.
const (
	FenceableYes      = "yes"
	FenceableNo       = "no"
	FenceableUnknown  = "unknown"   // its BMC is not known yet, or was not checked since the daemon started
	FenceableNotAsked = "not asked" // its checks ask for something else than its power
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

// Cover counts the Nodes.
func (n Nodes) Cover() (c NodeCover) {
	at := map[string]int{} // in Gaps, by reason
	for i := range n.Nodes {
		x := &n.Nodes[i]
		if len(x.Checks) == 0 {
			continue
		}
		c.Covered++
		if x.Fenceable == FenceableUnknown {
			c.Unknown++
		}
		if !x.IsGap() {
			continue
		}
		g, seen := at[x.Reason]
		if !seen {
			g, at[x.Reason] = len(c.Gaps), len(c.Gaps)
			c.Gaps = append(c.Gaps, NodeGap{Reason: x.Reason, Node: x.Name(), Message: x.Message, Next: x.Next})
		}
		c.Gaps[g].Count++
	}
	return c
}
