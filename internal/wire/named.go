package wire

import "strings"

// Named is what a name means: a Node, a Machine or a run, with its cluster where that is known.
type Named struct {
	Cluster string `json:"cluster,omitempty"`
	Node    string `json:"node,omitempty"`
	Machine string `json:"machine,omitempty"` // namespace/name, in place of Node
	Run     string `json:"run,omitempty"`
}

// Wanted is what a name must mean for a verb.
type Wanted uint8

// What a name can have to mean.
const (
	WantItself Wanted = iota // what it says
	WantAny                  // a run stays a run
	WantHost                 // a Node or a Machine
	WantNode
	WantRun
)

// Wants is what the verb needs the name in its order to mean.
func (r VerbRow) Wants() Wanted {
	switch {
	case r.Of == OfRun:
		return WantRun
	case strings.HasPrefix(string(r.Name), "bmc/"): // whoever enrolls or releases devices names their host
		return WantItself
	case r.Name == ConfirmOff: // it isolates a Node
		return WantNode
	}
	return WantHost
}

// Named is what the order is about.
func (o Order) Named() Named { return Named{o.Cluster, o.Node, o.Machine, o.Run} }

// About is the order about what its name means.
func (o Order) About(n Named) Order {
	o.Cluster, o.Node, o.Machine, o.Run = n.Cluster, n.Node, n.Machine, n.Run
	return o
}
