package engine

import (
	"context"
	"slices"
	"time"

	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/order"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/run"
)

// Retry takes a run up again that is Held, or waits for its next attempt. What would
// keep the run where it is refuses the order: the run would drop it without a word.
func (e *Engine) Retry(ctx context.Context, o order.Order) (order.Outcome, error) {
	c, r, err := e.withRun(o)
	if err == nil {
		err = c.lead.Refuse()
	}
	if err != nil {
		return order.Outcome{}, err
	}
	p := c.lookForRivals(ctx, r)
	return c.order(ctx, o.Run, o, "retries", func(r remediate.Run) (remediate.Run, error) {
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

// lookForRivals asks the cluster, past every cache, who else is at work on a run's
// target. Whom nobody can tell of the run asks for itself.
func (c *cluster) lookForRivals(ctx context.Context, r remediate.Run) *probe {
	ctx, cancel := context.WithTimeout(ctx, run.LookTimeout)
	defer cancel()
	p := &probe{draft: r}
	if f := c.probeCluster(ctx, p, remediate.Lease{}); f.Observation.Contested != remediate.Yes {
		p.contested = ""
	}
	return p
}

// retryGates are those of all gates that keep a run from being taken up again. // I5, I22, I23
func (c *cluster) retryGates(r remediate.Run, p *probe, now time.Time) []reason.Gate {
	gates := guard.Gates(c.e.opt.Guards, c.facts(candidate{draft: r}, p, now), now)
	return slices.DeleteFunc(gates, func(g reason.Gate) bool {
		switch g.Name {
		case "owner", "pause", "hold", "frozen", "contested", "powerOwner":
			return false
		}
		return true
	})
}
