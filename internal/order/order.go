// Package order holds what a person asks for, and what became of it.
package order

import (
	"cmp"
	"time"

	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
)

// Order is what a person asks for. Actor comes from the kernel, never from the
// request.
type Order struct {
	Cluster, Node string
	// Machine is the "namespace/name" of a Machine, in place of a Node.
	Machine       string
	Run           string // of an abort or a retry
	Actor, Reason string
	Admin         bool          // the Actor has the role admin
	Viewer        bool          // the Actor may only look: DryRun is set
	OffOnly       bool          // stop after step 2
	DryRun        bool          // show the gates and change nothing
	AsIs          bool          // abort: end a Held run and leave the host as it is
	Yes           bool          // abort: also while another remediator may be at work
	For           time.Duration // of a pause or a hold; 0 is until it is taken back
}

// Of is what the order is about: the name of a Node, or the "namespace/name" of a Machine.
// No Node's name has a slash.
func (o Order) Of() string { return cmp.Or(o.Machine, o.Node) }

// Ends is when what was ordered for some time is over; zero is never.
func (o Order) Ends(now time.Time) time.Time {
	if o.For <= 0 {
		return time.Time{}
	}
	return now.Add(o.For)
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

// Outcome is what became of an order.
type Outcome struct {
	Run    string
	Joined bool          // an equal run was open already
	Gates  []reason.Gate // all that were asked, also beside a *Refusal, which the control API gives alone
	// Target is what a dry run of a fence found about the target; nil for other orders.
	Target *Target
	// Asked is what a record of another remediator asks for, which an abort has given up; "" for a
	// run.
	Asked string
	// Unchanged says why the order had nothing to change, "" if it changed something.
	Unchanged string
	// Evidence is what is known about a host that a person is to vouch for.
	Evidence []string
	// Until is when a pause or a hold is over; zero is never.
	Until time.Time
	// Unsaved says that a pause or a hold binds, and that the store has not taken it.
	Unsaved string
	// Earlier is who gave the pause or the hold that ends no earlier, and so goes on in
	// the place of this one, and why.
	Earlier string
	// Quarantine: a quarantine was released, not a hold.
	Quarantine bool
	// Still says why a cluster is paused although it was resumed, or why a Node that was
	// released is not fenced.
	Still string
	// Unseen: no Node of the held name is seen now.
	Unseen bool
}

// Target is what is known about the target of a fence, for the person who orders it.
type Target struct {
	Cluster, Node, Machine string
	// Ready is the status of the Node's condition Ready, ReadySince when it became so. Ready is
	// "" if there is no Node, or if it has no such condition.
	Ready      string
	ReadySince time.Time
	// Pods are those on the Node; nil: they are not known, and PodsProblem may say why.
	Pods        *Pods
	PodsProblem string
	// BMC is the address of what switches the host's power; "" if it was not asked.
	BMC string
	// Identity is whether the BMC that answered is that of the machine, as the gate says it, and
	// UUID what it reported. Both are "" if no BMC was asked.
	Identity, UUID string
}

// Pods are the pods that are bound to a Node, as namespace/name.
type Pods struct {
	Names []string
	More  bool // there are others
}
