package engine

import (
	"context"
	"slices"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/order"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/power"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/run"
)

// ConfirmOff takes a person's word, in the place of a proof, that a Node's host is
// off and cannot come on: for the run that is Held there, or for a new one. Only the
// gates about the BMC are not asked. A dry run gives what is known and asks no gate. // I26
func (e *Engine) ConfirmOff(ctx context.Context, o order.Order) (order.Outcome, error) {
	c, err := e.cluster(o.Cluster)
	if err == nil {
		err = c.lead.Refuse() // a standby asks no BMC
	}
	if err != nil {
		return order.Outcome{}, err
	}
	open, held := c.openOn(o.Node)
	a, err := c.manual(o)
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
	p, evidence, against := c.gatherEvidence(ctx, a.draft)
	out := order.Outcome{Run: open.ID, Evidence: evidence, Gates: append(claim(a), c.wordGates(a, p, against, held)...)}
	g, refused := firstFailing(out.Gates)
	switch {
	case o.DryRun:
		return out, nil
	case refused:
		return out, reason.RefusalOf(g)
	case held:
		done, err := c.order(ctx, open.ID, o, "confirms that the host is off", func(r remediate.Run) (remediate.Run, error) {
			if may, why := remediate.CanConfirm(r); !may {
				return r, &reason.Refusal{Reason: reason.OrderRefused, Message: why}
			}
			r.Confirmed = o.ForRecord()
			return r, nil
		})
		out.Run = done.Run
		return out, err
	}
	draft := c.completed(p, nil)
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
func (c *cluster) wordGates(a candidate, p *probe, against string, held bool) []reason.Gate {
	word := reason.Gate{Name: "word", Pass: against == "", Value: against, Threshold: "none", Source: "BMCs and Node"}
	if !word.Pass {
		word.Reason = reason.ConfirmedOffContradicted
	} else {
		word.Value = "nothing speaks against it"
	}
	now := time.Now()
	gates := guard.Gates(c.e.opt.Guards, c.facts(a, p, now), now)
	gates = slices.DeleteFunc(gates, func(g reason.Gate) bool {
		return g.Name == "host" && !p.withheld || g.Name == "identity" || held && g.Name == "openRun"
	})
	return append([]reason.Gate{word}, gates...)
}

// gatherEvidence asks every power level, and then the cluster, what they know about a
// host of which a person says that it is off. against is what contradicts that.
func (c *cluster) gatherEvidence(ctx context.Context, draft remediate.Run) (p *probe, evidence []string, against string) {
	p = &probe{draft: draft}
	evidence, against = c.powerTestimony(ctx, p)
	fresh := c.probeCluster(ctx, p, remediate.Lease{})
	p.at = time.Now()
	more, living := nodeTestimony(fresh, p.at)
	if p.nodeAlive && living == "" {
		living = "the Node's Lease was renewed after its Ready turned Unknown"
	}
	if against == "" {
		against = living
	}
	return p, append(evidence, more...), against
}

// powerTestimony reads every power level once.
func (c *cluster) powerTestimony(ctx context.Context, p *probe) (evidence []string, against string) {
	h, err := c.hosts.Find(ctx, p.draft.Target)
	if err != nil {
		if r, ok := reason.AsRefusal(err); ok && p.draft.Target.Address == "" {
			_, lost := c.hosts.FindBare(ctx, p.draft.Target)
			p.hostError, p.hostDetail, p.withheld = r.Reason, r.Message, lost == nil
		}
		return []string{"power: nothing can be asked: " + reason.Sentence(err)}, ""
	}
	c.hosts.FixTarget(&p.draft.Target, h)
	p.draft.Limits.Levels = len(h.Levels)
	for i := range h.Levels {
		name := power.LevelText(h, i)
		r, s, err := power.OpenAndRead(ctx, c.e.opt.Open, h, i, c.e.opt.Power)
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

// nodeTestimony is what the cluster shows of the host, by an uncached look.
func nodeTestimony(f run.Fresh, now time.Time) (evidence []string, against string) {
	switch n := f.Observation.Node; {
	case n.Exists == remediate.CannotTell:
		evidence = append(evidence, "node: it cannot be read")
	case n.Exists == remediate.No:
		evidence = append(evidence, "node: there is none")
	case n.Ready == remediate.Yes:
		evidence, against = append(evidence, "node: Ready"), "the Node is Ready"
	default:
		evidence = append(evidence, "node: not Ready"+since(f.Node, now))
	}
	switch l := f.Observation.Lease; {
	case !l.Known:
		evidence = append(evidence, "lease: it cannot be read")
	case l.ResourceVersion == "":
		evidence = append(evidence, "lease: there is none")
	default:
		evidence = append(evidence, "lease: renewed "+now.Sub(l.RenewTime).Round(time.Second).String()+" ago, by the Node's clock")
	}
	return evidence, against
}

// since is how long a Node has not been Ready, where that is known.
func since(n *policy.Node, now time.Time) string {
	if n == nil {
		return ""
	}
	status, at := turned(n)
	if at.IsZero() {
		return ""
	}
	return " (" + status + ") for " + now.Sub(at).Round(time.Second).String()
}
