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
		if g, refused := firstFailing(c.retryGates(r, p, time.Now())); refused {
			return r, reason.RefusalOf(g)
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
		case "owner", "pause", "hold", "frozen", "contested", "powerOwner":
			return false
		}
		return true
	})
}
