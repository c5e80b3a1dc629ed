package admit

import (
	"context"
	"slices"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/cluster"
	"github.com/fenced/fenced/internal/order"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/power"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/run"
	"github.com/fenced/fenced/internal/wire"
)

// ConfirmOff accepts a manual confirmation, in place of a proof, that a Node's host is off
// and cannot come on: for the Held run on that Node, or for a new run. All gates must pass
// except those about the BMC. A dry run returns the evidence and the gates, and refuses
// nothing. // I26
func (c *Cluster) ConfirmOff(ctx context.Context, o wire.Order) (order.Outcome, error) {
	if err := c.opt.Lead.Refuse(); err != nil { // a standby reads no BMC
		return order.Outcome{}, err
	}
	open, held := c.model.Runs.OpenOn(o.Node)
	a, err := c.model.CandidateForOrder(o)
	switch {
	case held:
		if may, why := remediate.CanConfirm(open); !may {
			return order.Outcome{}, &reason.Refusal{Reason: reason.OrderRefused, Message: "run " + open.ID + ": " + why}
		}
		a.Draft = open
		a.Draft.Manual = o.ForRecord() // the gates for orders apply, whoever started the run
		a.Draft.Manual.Admin = o.ByAdmin()
	case err != nil:
		return order.Outcome{}, err
	default: // in mode observe a confirmation begins no run: a fence asks the BMC first
		a.Draft.Manual.Admin = false
	}
	p, evidence, against := c.probes.gatherEvidence(ctx, a.Draft)
	out := order.Outcome{Run: open.ID, Evidence: evidence, Gates: append(uncertainMachineGates(a), confirmationGates(c.gates(a, p, time.Now()), p, against, held)...)}
	g, refused := cluster.FirstFailing(out.Gates)
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
	draft := p.complete(c.model.Options.Draft, nil)
	draft.Confirmed = o.ForRecord()
	draft.Trigger = "confirmed off by " + o.Actor + ": " + o.Reason
	a.Gates = out.Gates
	c.emit(o.Event("confirms that the host is off"))
	r, err := c.start(ctx, a, draft, nil)
	out.Run = r.ID
	return out, err
}

// confirmationGates are all of the gates except those that a manual confirmation replaces, and one
// for evidence against the confirmation. The gate "host" stays if the host has a BMC to which no
// password may be sent: that BMC could contradict the confirmation, once hosts.d or an enrolment
// allows fenced to read it. // I26
func confirmationGates(gates []reason.Gate, p *probe, against string, held bool) []reason.Gate {
	confirmation := reason.Gate{Name: "confirmation", Pass: against == "", Value: against, Threshold: "none", Source: "BMCs and Node"}
	if !confirmation.Pass {
		confirmation.Reason = reason.ConfirmedOffContradicted
	} else {
		confirmation.Value = "nothing contradicts the confirmation"
	}
	gates = slices.DeleteFunc(gates, func(g reason.Gate) bool {
		return g.Name == "host" && !p.passwordWithheld || g.Name == "identity" || held && g.Name == "openRun"
	})
	return append([]reason.Gate{confirmation}, gates...)
}

// gatherEvidence reads every power level, and then the cluster, about a host that a person
// reports as off. against is the evidence that contradicts the report, "" for none.
func (ps *probes) gatherEvidence(ctx context.Context, draft remediate.Run) (p *probe, evidence []string, against string) {
	p = &probe{draft: draft}
	evidence, against = ps.readAllLevels(ctx, p)
	fresh := ps.probeCluster(ctx, p)
	p.at = time.Now()
	more, aliveBecause := describeNode(fresh, p.at)
	if p.nodeAlive && aliveBecause == "" {
		aliveBecause = "the Node's Lease was renewed after its Ready turned Unknown"
	}
	if against == "" {
		against = aliveBecause
	}
	return p, append(evidence, more...), against
}

// readAllLevels reads every power level once.
func (ps *probes) readAllLevels(ctx context.Context, p *probe) (evidence []string, against string) {
	h, err := ps.opt.Hosts.Find(ctx, p.draft.Target)
	if err != nil {
		if r, ok := reason.AsRefusal(err); ok && p.draft.Target.Address == "" {
			_, bareErr := ps.opt.Hosts.FindBare(ctx, p.draft.Target)
			p.hostError, p.hostDetail, p.passwordWithheld = r.Reason, r.Message, bareErr == nil
		}
		return []string{"power: no BMC can be read: " + reason.Sentence(err)}, ""
	}
	ps.opt.Hosts.FixTarget(&p.draft.Target, h)
	p.draft.Limits.Levels = len(h.Levels)
	for i := range h.Levels {
		name := power.LevelText(h, i)
		r, s, err := power.OpenAndRead(ctx, ps.opt.Open, h, i, ps.opt.Timing)
		if err != nil {
			evidence = append(evidence, "power: "+name+" cannot be read: "+reason.Sentence(err))
			continue
		}
		s.Close(ctx)
		evidence = append(evidence, "power: "+name+" reads "+r.State.String())
		if (r.State == bmc.On || r.Partial || r.Contradicted) && against == "" {
			against = name + " reads On"
		}
	}
	return evidence, against
}

// describeNode is what uncached reads of the cluster say about the host.
func describeNode(f run.Fresh, now time.Time) (evidence []string, against string) {
	switch n := f.Observation.Node; {
	case n.Exists == remediate.CannotTell:
		evidence = append(evidence, "node: it cannot be read")
	case n.Exists == remediate.No:
		evidence = append(evidence, "node: it does not exist")
	case n.Ready == remediate.Yes:
		evidence, against = append(evidence, "node: Ready"), "the Node is Ready"
	default:
		evidence = append(evidence, "node: not Ready"+notReadyFor(f.Node, now))
	}
	switch l := f.Observation.Lease; {
	case !l.Known:
		evidence = append(evidence, "lease: it cannot be read")
	case l.ResourceVersion == "":
		evidence = append(evidence, "lease: it does not exist")
	default:
		evidence = append(evidence, "lease: "+renewedText(now.Sub(l.RenewTime))+", by the Node's clock")
	}
	return evidence, against
}

// renewedText is how long ago a Lease says that it was renewed. Its time may be any.
func renewedText(ago time.Duration) string {
	if ago < 0 {
		return "renewed at a time that is still to come"
	}
	return "renewed " + ago.Round(time.Second).String() + " ago"
}

// notReadyFor is the status of a Node's Ready condition and how long it has had it, as text
// in parentheses; "" when unknown.
func notReadyFor(n *policy.Node, now time.Time) string {
	if n == nil {
		return ""
	}
	status, at := cluster.ReadyCondition(n)
	if at.IsZero() {
		return ""
	}
	return " (" + status + ") for " + now.Sub(at).Round(time.Second).String()
}
