package admit

import (
	"context"
	"slices"
	"time"

	"github.com/fenced/fenced/internal/order"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
)

// ConfirmOff accepts a manual confirmation, in place of a proof, that a Node's host is off
// and cannot come on: for the Held run on that Node, or for a new run. All gates must pass
// except those about the BMC. A dry run returns the evidence and the gates, and refuses
// nothing. // I26
func (c *Cluster) ConfirmOff(ctx context.Context, o order.Order) (order.Outcome, error) {
	if err := c.opt.Lead.Refuse(); err != nil { // a standby reads no BMC
		return order.Outcome{}, err
	}
	open, held := c.book.OpenOn(o.Node)
	a, err := c.book.candidateForOrder(o)
	switch {
	case held:
		if may, why := remediate.CanConfirm(open); !may {
			return order.Outcome{}, &reason.Refusal{Reason: reason.OrderRefused, Message: "run " + open.ID + ": " + why}
		}
		a.draft = open
		a.draft.Manual = o.ForRecord() // the gates for orders apply, whoever started the run
		a.draft.Manual.Admin = o.ByAdmin()
	case err != nil:
		return order.Outcome{}, err
	default: // in mode observe a confirmation begins no run: a fence asks the BMC first
		a.draft.Manual.Admin = false
	}
	p, evidence, against := c.probes.gatherEvidence(ctx, a.draft)
	out := order.Outcome{Run: open.ID, Evidence: evidence, Gates: append(uncertainMachineGates(a), c.confirmationGates(a, p, against, held)...)}
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
	draft := c.book.opt.Draft.complete(p, nil)
	draft.Confirmed = o.ForRecord()
	draft.Trigger = "confirmed off by " + o.Actor + ": " + o.Reason
	a.gates = out.Gates
	c.emit(o.Event("confirms that the host is off"))
	r, err := c.start(ctx, a, draft, nil)
	out.Run = r.ID
	return out, err
}

// confirmationGates are all gates except those that a manual confirmation replaces, and one
// for evidence against the confirmation. The gate "host" stays if the host has a BMC to which no
// password may be sent: that BMC could contradict the confirmation, once hosts.d or an enrolment
// allows fenced to read it. // I26
func (c *Cluster) confirmationGates(a candidate, p *probe, against string, held bool) []reason.Gate {
	confirmation := reason.Gate{Name: "confirmation", Pass: against == "", Value: against, Threshold: "none", Source: "BMCs and Node"}
	if !confirmation.Pass {
		confirmation.Reason = reason.ConfirmedOffContradicted
	} else {
		confirmation.Value = "nothing contradicts the confirmation"
	}
	now := time.Now()
	gates := c.gates(a, p, now)
	gates = slices.DeleteFunc(gates, func(g reason.Gate) bool {
		return g.Name == "host" && !p.passwordWithheld || g.Name == "identity" || held && g.Name == "openRun"
	})
	return append([]reason.Gate{confirmation}, gates...)
}
