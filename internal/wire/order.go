// Package wire holds what people and programs read from fenced, and the orders that they give: the
// types with their JSON. The engine and the control API, the daemon and fencectl share them.
package wire

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
)

// Role is how far a caller is trusted; a higher one includes the lower.
type Role uint8

// The roles.
const (
	Nobody Role = iota
	Viewer
	Operator
	Admin
)

// String gives the word of the configuration.
func (r Role) String() string {
	switch r {
	case Viewer:
		return "viewer"
	case Operator:
		return "operator"
	case Admin:
		return "admin"
	}
	return "nobody"
}

// Order is what a person asks of the daemon. The fields without a JSON name
// come from the route and from the socket's peer, never from the body.
type Order struct {
	Verb    Verb   `json:"-"`
	Cluster string `json:"-"` // "" = the only one, or all for pause and arm
	Node    string `json:"-"`
	Machine string `json:"-"` // "namespace/name", in place of Node
	Run     string `json:"-"` // abort, retry
	Actor   string `json:"-"`
	Role    Role   `json:"-"` // of the Actor

	Reason  string `json:"reason"`
	OffOnly bool   `json:"offOnly,omitempty"` // fence: stay Off and Held
	Yes     bool   `json:"yes,omitempty"`     // fence, confirm-off: nobody typed the node's name; abort: although another remediator may be at work
	DryRun  bool   `json:"dryRun,omitempty"`  // fence, arm, enroll, confirm-off, hold of a Group: only say what would be done
	For     Span   `json:"for,omitzero"`      // pause, hold: it ends by itself
	AsIs    bool   `json:"asIs,omitempty"`    // abort: end a Held run and leave the host as it is
	Level   string `json:"level,omitempty"`   // log-level: one of LogLevels
	Typed   string `json:"typed,omitempty"`   // confirm-off: the node's name once more
	Shown   string `json:"shown,omitempty"`   // enroll: that of the dry run; it is refused if it would enroll anything else
	Group          // hold, release: in place of Node
}

// OrderOn is an order about a Node, or about a Machine that has none.
func OrderOn(cluster, node, machine string) Order {
	if node != "" {
		machine = ""
	}
	return Order{Cluster: cluster, Node: node, Machine: machine}
}

// Of is what the order is about: the name of a Node, or the "namespace/name" of a Machine.
// No Node's name has a slash.
func (o Order) Of() string { return cmp.Or(o.Machine, o.Node) }

// Command is a command line of fencectl about what the order is about; the verb may have flags.
func (o Order) Command(verb string) string {
	of := ""
	switch {
	case o.Machine != "":
		of = " --machine " + o.Machine
	case o.Node != "":
		of = " " + o.Node
	}
	if o.Cluster != "" {
		of += " --cluster " + o.Cluster
	}
	return "fencectl " + verb + of
}

// InClusters says where an order to pause or resume applies.
func (o Order) InClusters() string {
	if o.Cluster == "" {
		return " in all clusters"
	}
	return " in cluster " + o.Cluster
}

// TestBMC is the command that shows what the BMCs of what the order is about answer. Those of a Machine cannot be asked by its name.
func (o Order) TestBMC() string {
	if o.Machine == "" {
		return o.Command("bmc test")
	}
	return Order{Cluster: o.Cluster}.Command("bmc list")
}

// ByAdmin reports whether the Actor has the role admin.
func (o Order) ByAdmin() bool { return o.Role == Admin }

// ByViewer reports whether the Actor may only look: it is a dry run.
func (o Order) ByViewer() bool { return o.Role == Viewer }

// Ends is when what was ordered for some time is over; zero is never.
func (o Order) Ends(now time.Time) time.Time {
	if o.For <= 0 {
		return time.Time{}
	}
	return now.Add(time.Duration(o.For))
}

// ForRecord is an order as it is kept in a run's record.
func (o Order) ForRecord() *remediate.Order {
	return &remediate.Order{Actor: o.Actor, Reason: o.Reason, At: time.Now().UTC(), AsIs: o.AsIs}
}

// Event tells that an order was carried out; did is the verb, as a sentence wants it.
func (o Order) Event(did string) event.Event {
	return event.Event{
		Type: event.Ordered, Cluster: o.Cluster, Node: o.Node, Machine: o.Machine, Run: o.Run, Actor: o.Actor, Why: o.Reason,
		Message: o.Actor + " " + did + ": " + o.Reason,
	}
}

// Span is a duration that is written like 4h30m.
type Span time.Duration

// MarshalText writes it as Go does.
func (s Span) MarshalText() ([]byte, error) { return []byte(time.Duration(s).String()), nil }

// UnmarshalText reads what is longer than nothing.
func (s *Span) UnmarshalText(text []byte) error {
	d, err := time.ParseDuration(string(text))
	if err == nil && d <= 0 {
		err = fmt.Errorf("%q is no time to wait", text)
	}
	*s = Span(d)
	return err
}

// OrderResult is an order that was accepted, or what a dry run found.
type OrderResult struct {
	Run     string `json:"run,omitempty"`
	Joined  bool   `json:"joined,omitempty"` // an equal run was already going
	Message string `json:"message"`          // the outcome as a sentence
	// Effect is what the order does to the world, one sentence each.
	Effect []string `json:"effect,omitempty"`
	// Evidence is what is known about a host that a person confirms to be off.
	Evidence []string `json:"evidence,omitempty"`
	// Shown names the devices, and the machines behind them, that a dry run of enroll showed.
	Shown string `json:"shown,omitempty"`
	// Target is what a dry run of a fence found about its target.
	Target *OrderTarget `json:"target,omitempty"`
	// Plan is what would be fenced after a dry run of arm, as soon as the quiet period is over.
	Plan *ClusterPlan `json:"plan,omitempty"`
	// Named is what the name in the order means, if that is not what the name says: the Node of a run,
	// or the run on a Node or a Machine.
	Named *Named `json:"named,omitempty"`
	// Nodes are those of a Group, by name.
	Nodes []GroupNode `json:"nodes,omitempty"`
	// Unlabelled are Machines and runs without a Node, whose labels nobody knows. They may belong to the Group, and it
	// does not hold them.
	Unlabelled []string `json:"unlabelled,omitempty"`
	// Unchanged: there was nothing to change, and nothing was changed.
	Unchanged bool `json:"unchanged,omitempty"`
	// Until is when a pause or a hold ends by itself, or the quiet period after arm.
	Until time.Time `json:"until,omitzero"`
	// Gates are those that were asked; in a dry run they may not all pass.
	Gates []reason.Gate `json:"gates,omitempty"`
}

// OrderTarget is what a person should know about a target before ordering to fence it.
type OrderTarget struct {
	Cluster string `json:"cluster"`
	Node    string `json:"node"`
	Machine string `json:"machine,omitempty"` // namespace/name
	// Ready is the status of the Node's condition Ready; "" if there is no Node, or if it has no
	// such condition.
	Ready      string    `json:"ready"`
	ReadySince time.Time `json:"readySince,omitzero"`
	// Pods are those on the Node; nil: they are not known, and PodsProblem may say why.
	*Pods
	PodsProblem string `json:"podsProblem,omitempty"`
	// BMC is the address of what switches the power; "" if it was not asked.
	BMC      string `json:"bmc,omitempty"`
	Identity string `json:"identity,omitempty"` // match, mismatch, unknown, not enrolled
	UUID     string `json:"uuid,omitempty"`     // that the BMC reported
}

// Pods are the pods that are bound to a Node.
type Pods struct {
	Names []string `json:"pods,omitempty"` // namespace/name, the first of them
	Count int      `json:"podCount"`
	More  bool     `json:"podsMore,omitempty"` // there are more than Count
}

// maxPods bounds how many pods an answer names.
const maxPods = 20

// PodsOf counts pods, and names the first of them. more: there are others.
func PodsOf(names []string, more bool) Pods {
	return Pods{Names: names[:min(len(names), maxPods)], Count: len(names), More: more}
}

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
