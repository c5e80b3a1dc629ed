package admit

import (
	"context"
	"slices"
	"time"

	"github.com/fenced/fenced/internal/order"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
)

// Retry continues a run that is Waiting or Held, or that rests before its next attempt. It refuses the order if
// a gate would keep the run where it is: otherwise the run would drop the order silently.
func (c *Cluster) Retry(ctx context.Context, o order.Order, r remediate.Run) (order.Outcome, error) {
	if err := c.opt.Lead.Refuse(); err != nil {
		return order.Outcome{}, err
	}
	p := c.probes.lookForContenders(ctx, r)
	return c.Order(ctx, r.ID, o, "retries", func(r remediate.Run) (remediate.Run, error) {
		if may, why := remediate.CanRetry(r); !may {
			return r, &reason.Refusal{Reason: reason.OrderRefused, Message: why}
		}
		now := time.Now()
		if g, refused := firstFailing(c.retryGates(r, p, now)); refused {
			return r, reason.RefusalOf(g)
		}
		if why := c.runs.whyNotAsked(r, p, now); why != "" {
			return r, &reason.Refusal{Reason: reason.Withdrawn, Message: "another power cycle was not ordered: " + why + "; to fence the host all the same, run fencectl abort, then fencectl fence"}
		}
		r.Retry = o.ForRecord()
		return r, nil
	})
}

// retryGates are the gates that prevent a run from continuing. // I5, I22, I23
func (c *Cluster) retryGates(r remediate.Run, p *probe, now time.Time) []reason.Gate {
	gates := c.gates(candidate{draft: r}, p, now)
	return slices.DeleteFunc(gates, func(g reason.Gate) bool {
		switch g.Name {
		case "owner", "pause", "hold", "frozen", "target", "contested", "powerOwner", "nodeLease":
			return false
		}
		return true
	})
}

// whyNotAsked says why nobody asks any more for a run that a retry would let power-cycle its host: it
// would rest again at once. "": somebody does, or the retry only brings the host back. // I4
func (rc *runCluster) whyNotAsked(r remediate.Run, p *probe, now time.Time) string {
	if r.Manual != nil { // the retry renews the order
		renewed := *r.Manual
		renewed.At, r.Manual = now, &renewed
	}
	if withdrawn, why := rc.Withdrawn(r, p.look.Fresh, now); withdrawn == remediate.Yes && remediate.RetryCutsPower(r) {
		return why
	}
	return ""
}
