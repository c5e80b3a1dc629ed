package escalate

import (
	"context"
	"fmt"
	"time"

	"github.com/fenced/fenced/internal/order"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/wire"
)

// Abort implements engine.Escalation: it gives up the record that an order names in place of a run.
func (e *Escalation) Abort(ctx context.Context, o wire.Order) (out order.Outcome, known bool, err error) {
	for _, c := range e.clusters.All() {
		if o.Cluster != "" && o.Cluster != c.opt.Name {
			continue
		}
		if r, known := c.records.Get(o.Run); known {
			out, err = c.abort(ctx, o, r)
			return out, true, err
		}
	}
	return out, false, nil
}

// abort ends a record by order of a person. While another remediator may be at work, that takes
// an order that says so. // I22
func (c *Cluster) abort(ctx context.Context, o wire.Order, r Record) (order.Outcome, error) {
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
	if err := c.giveUp(ctx, r.ID, o); err != nil {
		return order.Outcome{}, err
	}
	return order.Outcome{Asked: asks}, nil
}

// whyNotGiveUp returns the reason why another remediator may be at work on the target of a record, or an empty string. Of a record
// that cannot be read nobody knows it.
func (c *Cluster) whyNotGiveUp(ctx context.Context, r Record) string {
	object, objects := r.Newest(), c.objects()
	switch {
	case r.Unreadable != "":
		return "which object was made cannot be read: " + r.Unreadable
	case !r.Blocking():
		return ""
	case object.MayAppear(time.Now()):
		return object.String() + " may just be being made"
	case objects == nil:
		return "whether " + object.String() + " exists cannot be read"
	}
	live, err := objects.Read(ctx, object)
	switch {
	case err != nil:
		return fmt.Sprintf("whether %s exists is not known: %v", object, err)
	case live != nil:
		return object.String() + " exists, so its remediator may be at work; delete it when that is done"
	}
	return ""
}
