package admit

import (
	"context"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/power"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/run"
)

// gatherEvidence asks every power level, and then the cluster, what they know about a
// host of which a person says that it is off. against is what contradicts that.
func (ps *probes) gatherEvidence(ctx context.Context, draft remediate.Run) (p *probe, evidence []string, against string) {
	p = &probe{draft: draft}
	evidence, against = ps.askPower(ctx, p)
	fresh := ps.probeCluster(ctx, p, remediate.Lease{})
	p.at = time.Now()
	more, living := describeNode(fresh, p.at)
	if p.nodeAlive && living == "" {
		living = "the Node's Lease was renewed after its Ready turned Unknown"
	}
	if against == "" {
		against = living
	}
	return p, append(evidence, more...), against
}

// askPower reads every power level once.
func (ps *probes) askPower(ctx context.Context, p *probe) (evidence []string, against string) {
	h, err := ps.opt.Hosts.Find(ctx, p.draft.Target)
	if err != nil {
		if r, ok := reason.AsRefusal(err); ok && p.draft.Target.Address == "" {
			_, lost := ps.opt.Hosts.FindBare(ctx, p.draft.Target)
			p.hostError, p.hostDetail, p.withheld = r.Reason, r.Message, lost == nil
		}
		return []string{"power: nothing can be asked: " + reason.Sentence(err)}, ""
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

// describeNode is what the cluster shows of the host, by an uncached look.
func describeNode(f run.Fresh, now time.Time) (evidence []string, against string) {
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
