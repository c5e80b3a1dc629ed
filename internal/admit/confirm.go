package admit

import (
	"context"
	"slices"
	"time"

	"github.com/fenced/fenced/internal/order"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
)

// ConfirmOff takes a person's word, in the place of a proof, that a Node's host is
// off and cannot come on: for the run that is Held there, or for a new one. Only the
// gates about the BMC are not asked. A dry run gives what is known and asks no gate. // I26
func (c *Cluster) ConfirmOff(ctx context.Context, o order.Order) (order.Outcome, error) {
	if err := c.opt.Lead.Refuse(); err != nil { // a standby asks no BMC
		return order.Outcome{}, err
	}
	open, held := c.book.OpenOn(o.Node)
	a, err := c.book.ordered(o)
	switch {
	case held:
		if may, why := remediate.CanConfirm(open); !may {
			return order.Outcome{}, &reason.Refusal{Reason: reason.OrderRefused, Message: "run " + open.ID + ": " + why}
		}
		a.draft = open
		a.draft.Manual = o.ForRecord() // a person asks, whoever began the run
	case err != nil:
		return order.Outcome{}, err
	}
	p, evidence, against := c.probes.gatherEvidence(ctx, a.draft)
	out := order.Outcome{Run: open.ID, Evidence: evidence, Gates: append(claim(a), c.wordGates(a, p, against, held)...)}
	g, refused := firstFailing(out.Gates)
	switch {
	case o.DryRun:
		return out, nil
	case refused:
		return out, reason.RefusalOf(g)
	case held:
		done, err := c.Order(ctx, open.ID, o, "confirms that the host is off", func(r remediate.Run) (remediate.Run, error) {
			if may, why := remediate.CanConfirm(r); !may {
				return r, &reason.Refusal{Reason: reason.OrderRefused, Message: why}
			}
			r.Confirmed = o.ForRecord()
			return r, nil
		})
		out.Run = done.Run
		return out, err
	}
	draft := c.book.opt.Draft.completed(p, nil)
	draft.Confirmed = o.ForRecord()
	draft.Trigger = "confirmed off by " + o.Actor + ": " + o.Reason
	a.gates = out.Gates
	c.emit(o.Event("confirms that the host is off"))
	r, err := c.start(ctx, a, draft, nil)
	out.Run = r.ID
	return out, err
}

// wordGates are all gates but those that a person's word takes the place of, and one
// for what speaks against it. A BMC that is there and may not be asked could speak against
// it, too: hosts.d or an enrolment lets it. // I26
func (c *Cluster) wordGates(a candidate, p *probe, against string, held bool) []reason.Gate {
	word := reason.Gate{Name: "word", Pass: against == "", Value: against, Threshold: "none", Source: "BMCs and Node"}
	if !word.Pass {
		word.Reason = reason.ConfirmedOffContradicted
	} else {
		word.Value = "nothing speaks against it"
	}
	now := time.Now()
	gates := c.gates(a, p, now)
	gates = slices.DeleteFunc(gates, func(g reason.Gate) bool {
		return g.Name == "host" && !p.withheld || g.Name == "identity" || held && g.Name == "openRun"
	})
	return append([]reason.Gate{word}, gates...)
}
