package admit

import (
	"context"
	"slices"
	"time"

	"github.com/fenced/fenced/internal/order"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
)

// Retry takes a run up again that is Held, or waits for its next attempt. What would
// keep the run where it is refuses the order: the run would drop it without a word.
func (c *Cluster) Retry(ctx context.Context, o order.Order, r remediate.Run) (order.Outcome, error) {
	if err := c.opt.Lead.Refuse(); err != nil {
		return order.Outcome{}, err
	}
	p := c.probes.lookForRivals(ctx, r)
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

// retryGates are those of all gates that keep a run from being taken up again. // I5, I22, I23
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
