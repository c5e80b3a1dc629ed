package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/fenced/fenced/internal/escalate"
	"github.com/fenced/fenced/internal/order"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/wire"
)

// named finds the record of another remediator that an order names in place of a run, and its
// cluster; nil if there is none.
func (a *askedRecords) named(o wire.Order) (*clusterParts, escalate.Record) {
	for _, c := range a.e.clusters.All() {
		for _, r := range c.admit.Handovers.Records() {
			if r.ID == o.Run && (o.Cluster == "" || o.Cluster == c.opt.Name) {
				return c, r
			}
		}
	}
	return nil, escalate.Record{}
}

// giveUp ends a record by order of a person. While another remediator may be at work, that takes
// an order that says so. // I22
func (c *clusterParts) giveUp(ctx context.Context, o wire.Order, r escalate.Record) (order.Outcome, error) {
	if !o.AsIs {
		return order.Outcome{}, &reason.Refusal{Reason: reason.OrderRefused, Message: "record " + r.ID + " is about another remediator, which fenced cannot stop; to give the record up: fencectl abort " + r.ID + " --as-is"}
	}
	if !o.Yes {
		if why := c.whyNotGiveUp(ctx, r); why != "" {
			return order.Outcome{}, &reason.Refusal{Reason: reason.OrderRefused,
				Message: why + "; make sure that no other remediator switches the host, and add --yes"}
		}
	}
	asks := r.Asks()
	if err := c.admit.Handovers.GiveUp(ctx, r.ID, o); err != nil {
		return order.Outcome{}, err
	}
	return order.Outcome{Asked: asks}, nil
}

// whyNotGiveUp returns the reason why another remediator may be at work on the target of a record, or an empty string. Of a record
// that cannot be read nobody knows it.
func (c *clusterParts) whyNotGiveUp(ctx context.Context, r escalate.Record) string {
	object := r.Newest()
	switch {
	case r.Unreadable != "":
		return "which object was made cannot be read: " + r.Unreadable
	case !r.Blocking():
		return ""
	case object.MayAppear(time.Now()):
		return object.String() + " may just be being made"
	case c.opt.Handovers == nil:
		return "whether " + object.String() + " exists cannot be read"
	}
	live, err := c.opt.Handovers.Read(ctx, object)
	switch {
	case err != nil:
		return fmt.Sprintf("whether %s exists is not known: %v", object, err)
	case live != nil:
		return object.String() + " exists, so its remediator may be at work; delete it when that is done"
	}
	return ""
}
