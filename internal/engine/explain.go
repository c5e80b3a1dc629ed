package engine

import (
	"context"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/hosts"
	"github.com/fenced/fenced/internal/order"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
)

// Explanation is why a Node is, or is not, fenced.
type Explanation struct {
	Cluster, Node string
	Verdict       policy.Verdict // Unhealthy if any check says so; "" when none covers the Node
	Gates         []reason.Gate
	Run           *remediate.Run // the open one, else the newest that ended
	Earliest      time.Time      // when the last failing gate could pass; zero when unknown
}

// Explain lists every gate of a Node in the order the daemon asks them, with
// the very functions that decide.
func (e *Engine) Explain(ctx context.Context, cluster, node string) (Explanation, error) {
	c, err := e.cluster(cluster)
	if err != nil {
		return Explanation{}, err
	}
	a, err := c.manual(order.Order{Node: node})
	if err != nil {
		return Explanation{}, err
	}
	a.draft.Manual, a.protected = nil, c.hosts.Protected(node)
	now := time.Now()
	c.mu.Lock()
	report := c.ledger.OnNode(node, now)
	c.mu.Unlock()
	x := Explanation{Cluster: c.opt.Name, Node: node, Verdict: verdictOn(&report, node), Gates: policy.Explain(report, node)}
	if check, t := c.askedFor(&report, node); t != nil {
		if b, ok := c.candidateOf(check, t); ok { // the very one that the deciding loop asks about
			a = b
		}
		x.Gates = append(x.Gates, executor(check, t)...)
	}
	x.Gates = append(x.Gates, claim(a)...)
	p := c.known(&x)
	if p == nil {
		p = c.unprobed(ctx, a.draft)
	}
	x.Gates = append(x.Gates, guard.Gates(e.opt.Guards, c.facts(a, p, now), now)...)
	x.Gates = append(x.Gates, c.backOff(a, now)...)
	x.Gates = append(x.Gates, c.auditGate(node)...)
	x.Earliest = whenOpen(x.Gates)
	return x, nil
}

// known notes the run that tells most about the Node and gives the last probe.
func (c *cluster) known(x *Explanation) (p *probe) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.runs {
		if r.Target.Node == x.Node && (x.Run == nil || r.Open() || !x.Run.Open() && r.ID > x.Run.ID) {
			x.Run = &r
		}
	}
	for k, each := range c.probes {
		if strings.HasSuffix(k, "|"+x.Node) && !each.at.IsZero() {
			p = each
		}
	}
	return p
}

// askedFor is the target of a check that asks for an action on the Node: one
// that nothing refuses, else the first.
func (c *cluster) askedFor(r *policy.Report, node string) (check *policy.Check, target *policy.TargetReport) {
	for i := range r.Checks {
		for j := range r.Checks[i].Targets {
			t := &r.Checks[i].Targets[j]
			if t.Node != node || t.Action == policy.None || target != nil && !t.Acts() {
				continue
			}
			if full := c.check(r.Checks[i].ID()); full != nil {
				check, target = full, t
			}
			if t.Acts() {
				return check, target
			}
		}
	}
	return check, target
}

// executor is a gate for what another controller is asked to do.
func executor(check *policy.Check, t *policy.TargetReport) []reason.Gate {
	if strategyOf(check, t) != "" {
		return nil
	}
	return []reason.Gate{{
		Name: "executor", Reason: reason.Delegated, Value: "the check's template leaves the remedy to another controller",
		Threshold: "a template of fenced.io, or none", Source: "check " + check.Key(),
	}}
}

func verdictOn(r *policy.Report, node string) (v policy.Verdict) {
	for i := range r.Checks {
		for j := range r.Checks[i].Targets {
			if t := &r.Checks[i].Targets[j]; t.Node == node && v != policy.Unhealthy {
				v = t.Verdict
			}
		}
	}
	return v
}

// unprobed is what can be said about a target without asking its BMC: whether
// there is one, whether its credentials can be had, and how etcd stands.
func (c *cluster) unprobed(ctx context.Context, draft remediate.Run) *probe {
	p := &probe{draft: draft}
	if draft.ControlPlane {
		p.quorum, p.quorumDetail = c.quorum(draft, c.opt.Kube.Look(ctx, draft, nil))
	}
	if draft.Strategy != remediate.PowerCycle {
		return p
	}
	h, err := c.hosts.FindNew(ctx, draft.Target)
	if err != nil {
		p.hostError, p.hostDetail = hosts.ReasonOf(err), reason.Sentence(err)
		return p
	}
	p.draft.Target.Host = h.Name
	p.identity = guard.IdentityFact{Mode: h.IdentityMode, Node: draft.Target.SystemUUID}
	return p
}

// whenOpen is when every failing gate could pass; zero when one does not say.
func whenOpen(gates []reason.Gate) time.Time {
	var t time.Time
	for _, g := range gates {
		switch {
		case g.Pass:
		case g.Until.IsZero():
			return time.Time{}
		default:
			t = later(t, g.Until)
		}
	}
	return t
}
