// Package order holds what became of an order.
package order

import (
	"time"

	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/wire"
)

// Outcome is what became of an order.
type Outcome struct {
	Run    string
	Joined bool          // an equal run was open already
	Gates  []reason.Gate // all that were asked, also beside a *Refusal, which the control API gives alone
	// Target is what a dry run of a fence found about the target; nil for other orders.
	Target *wire.OrderTarget
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
	// Selector has the labels of an order about a wire.Group; "" for any other order. Nodes and Unlabelled are as in
	// wire.OrderResult.
	Selector   string
	Nodes      []wire.GroupNode
	Unlabelled []string
	// OldView says why the view may lack Nodes with these labels; "" if it is current.
	OldView string
}
