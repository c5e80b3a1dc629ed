package wire

import (
	"time"

	"github.com/fenced/fenced/internal/reason"
)

// Plan is what fenced would do now, in the order in which it would.
type Plan struct {
	Clusters []ClusterPlan `json:"clusters"`
}

// ClusterPlan is the plan of one cluster.
type ClusterPlan struct {
	Cluster string `json:"cluster"`
	// Problem is why nothing can be said about the cluster now.
	Problem string `json:"problem,omitempty"`
	// Warnings name the checks that can never ask for anything, because their limit rounds to 0.
	Warnings []string `json:"warnings,omitempty"`
	// Actions are cut, if they are too many, to equal shares of the namespaces. ActionsMore is how many more there are.
	Actions     []PlannedAction `json:"actions"`
	ActionsMore int             `json:"actionsMore,omitempty"`
}

// PlannedAction is what a check asks for about one target.
type PlannedAction struct {
	Order   int    `json:"order"` // from 1
	Check   string `json:"check"` // kind and name
	Machine string `json:"machine"`
	Node    string `json:"node"`
	Action  string `json:"action"`
	Message string `json:"message"` // what the check saw
	// Refused is the reason code of the gate that limits; empty means that it
	// would be done.
	Refused string       `json:"refused"`
	Gate    *reason.Gate `json:"gate,omitempty"`
	// Earliest is when it could be done if nothing else changes.
	Earliest time.Time `json:"earliest,omitzero"`
}

// Problems counts the clusters about which nothing can be said.
func (p Plan) Problems() (n int) {
	for _, c := range p.Clusters {
		if c.Problem != "" {
			n++
		}
	}
	return n
}

// Acts says whether anything would be done now, or may be.
func (p Plan) Acts() bool {
	for _, c := range p.Clusters {
		if c.ActionsMore > 0 {
			return true
		}
		for _, a := range c.Actions {
			if a.Refused == "" {
				return true
			}
		}
	}
	return false
}

// Coverage is what each check covers on the live clusters, and what is odd
// about it.
type Coverage struct {
	Clusters []ClusterCoverage `json:"clusters"`
}

// ClusterCoverage is the coverage of one cluster.
type ClusterCoverage struct {
	Cluster string `json:"cluster"`
	// Problem is why the cluster cannot be read well enough to tell.
	Problem string `json:"problem,omitempty"`
	// Checks are cut as Actions are.
	Checks     []CheckCoverage `json:"checks"`
	ChecksMore int             `json:"checksMore,omitempty"`
}

// CheckCoverage is one check.
type CheckCoverage struct {
	Kind         string    `json:"kind"`
	Namespace    string    `json:"namespace"`
	Name         string    `json:"name"`
	Source       string    `json:"source"` // "cluster", or file:line
	State        string    `json:"state"`
	Targets      int       `json:"targets"`
	Limit        string    `json:"limit"`
	MaxUnhealthy int       `json:"maxUnhealthy"`
	Message      string    `json:"message,omitempty"`
	Overlaps     []Overlap `json:"overlaps"`
	Findings     []Finding `json:"findings"`
}

// Overlap is how many targets another check covers, too.
type Overlap struct {
	Check   string `json:"check"` // kind and name
	Targets int    `json:"targets"`
}

// Finding is something about a check that its author may not have meant.
type Finding struct {
	// Warning: the check, or a rule of it, has no effect.
	Warning bool   `json:"warning"`
	Code    string `json:"code"`
	Message string `json:"message"`
}

// Warnings counts the findings that need a hand, and the clusters that could not
// be read.
func (c Coverage) Warnings() (n int) {
	for _, cl := range c.Clusters {
		if cl.Problem != "" {
			n++
		}
		for _, k := range cl.Checks {
			for _, f := range k.Findings {
				if f.Warning {
					n++
				}
			}
		}
	}
	return n
}

// Explanation is why a node is, or is not, fenced now: the gates in the order
// in which they are asked.
type Explanation struct {
	Cluster string `json:"cluster"`
	Node    string `json:"node"`              // empty if the Machine has none
	Machine string `json:"machine,omitempty"` // namespace/name, if it was asked for
	Verdict string `json:"verdict"`
	// Refused is the reason code of the first gate that does not pass.
	Refused string `json:"refused"`
	Class   string `json:"class,omitempty"` // of Refused: transient, mended or person
	Message string `json:"message"`
	// Earliest is when it could be fenced if nothing else changes.
	Earliest time.Time  `json:"earliest,omitzero"`
	Run      *RunRecord `json:"run,omitempty"` // the open run, if there is one
	// Next is the command that brings the host back, while a run keeps it off.
	Next  string        `json:"next,omitempty"`
	Gates []reason.Gate `json:"gates"`
}

// MaxNames bounds each list of a Names.
const MaxNames = 500

// Names is what can be named on a command line, for the completion of a shell. Each list is
// sorted and holds at most MaxNames names.
type Names struct {
	Clusters []string `json:"clusters"`
	Nodes    []string `json:"nodes"`
	Machines []string `json:"machines"` // namespace/name
	Checks   []string `json:"checks"`   // namespace/name, or name
	Runs     []string `json:"runs"`     // newest first
	OpenRuns []string `json:"openRuns"`
}
