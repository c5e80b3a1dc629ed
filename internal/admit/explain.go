package admit

import (
	"context"
	"time"

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
func (c *Cluster) Explain(ctx context.Context, node string) (Explanation, error) {
	a, err := c.book.ordered(order.Order{Node: node})
	if err != nil {
		return Explanation{}, err
	}
	a.draft.Manual, a.protected = nil, c.opt.Hosts.Protected(node)
	now := time.Now()
	report := c.book.onNode(node, now)
	x := Explanation{Cluster: c.opt.Name, Node: node, Verdict: verdictOn(&report, node), Gates: policy.Explain(report, node)}
	if check, t := c.askedFor(&report, node); t != nil {
		if b, ok := c.candidate(check, t); ok { // the very one that the deciding loop asks about
			a = b
		}
		x.Gates = append(x.Gates, executor(check, t)...)
	}
	x.Gates = append(x.Gates, claim(a)...)
	x.Run = c.book.newestOn(node)
	p := c.probes.lastOn(node)
	if p == nil {
		p = c.probes.unprobed(ctx, a.draft)
	}
	x.Gates = append(x.Gates, c.gates(a, p, now)...)
	x.Gates = append(x.Gates, c.backOff(a, now)...)
	x.Gates = append(x.Gates, c.runs.recorder.gate(node)...)
	x.Earliest = whenOpen(x.Gates)
	return x, nil
}

// askedFor is the target of a check that asks for an action on the Node: one
// that nothing refuses, else the first.
func (c *Cluster) askedFor(r *policy.Report, node string) (check *policy.Check, target *policy.TargetReport) {
	for i := range r.Checks {
		for j := range r.Checks[i].Targets {
			t := &r.Checks[i].Targets[j]
			if t.Node != node || t.Action == policy.None || target != nil && !t.Acts() {
				continue
			}
			if full := c.book.Check(r.Checks[i].ID()); full != nil {
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
