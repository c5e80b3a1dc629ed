package admit

import (
	"context"
	"slices"
	"time"

	"github.com/fenced/fenced/internal/order"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/times"
)

// Explanation is why a Node is, or is not, fenced.
type Explanation struct {
	Cluster, Node string
	Machine       string         // "namespace/name", if that was asked for
	Verdict       policy.Verdict // Unhealthy if any check says so; "" when none covers the Node
	Gates         []reason.Gate
	Run           *remediate.Run // the open one, else the newest that has ended
	Earliest      time.Time      // when the last failing gate can pass; zero: unknown
}

// Explain lists every gate of the Node or Machine of an order, in the order in which the
// daemon evaluates them. It calls the functions that decide.
func (c *Cluster) Explain(ctx context.Context, o order.Order) (Explanation, error) {
	a, err := c.book.candidateForOrder(o)
	if err != nil {
		return Explanation{}, err
	}
	a.draft.Manual, a.protected = nil, c.opt.Hosts.Protected(a.draft.Target)
	now := time.Now()
	subject := subjectOf(a.draft.Target)
	report := c.book.nodeReport(subject, now)
	x := Explanation{Cluster: c.opt.Name, Node: a.draft.Target.Node, Machine: o.Machine,
		Verdict: verdictOn(&report, subject), Gates: policy.Explain(report, subject)}
	if check, t := c.requestedTarget(&report, subject); t != nil {
		if b, ok := c.candidate(check, t); ok { // the candidate of the deciding loop
			a = b
		}
	}
	asked, gates := c.Requested.gate(subject, now)
	if asked != nil { // no check needs to ask as well
		a, x.Verdict, x.Gates = *asked, policy.Unhealthy, nil
	}
	x.Gates = append(x.Gates, gates...)
	x.Gates = slices.Concat(c.Handovers.gate(a.draft.Target, now), x.Gates) // first: it says what the others wait for
	x.Gates = append(x.Gates, uncertainMachineGates(a)...)
	x.Run = c.book.newestOn(a.draft.Target)
	p := c.probes.lastOn(subject)
	if p == nil {
		p = c.probes.unprobed(ctx, a.draft)
	}
	x.Gates = append(x.Gates, c.gates(a, p, now)...)
	x.Gates = append(x.Gates, c.backOffGates(a, now)...)
	x.Gates = append(x.Gates, c.runs.recorder.gates(subject)...)
	x.Earliest = earliestPass(x.Gates)
	return x, nil
}

// requestedTarget finds a check that asks for an action on the subject, and its target: the
// first one that nothing refuses, else the first.
func (c *Cluster) requestedTarget(r *policy.Report, subject string) (check *policy.Check, target *policy.TargetReport) {
	for i := range r.Checks {
		for j := range r.Checks[i].Targets {
			t := &r.Checks[i].Targets[j]
			if t.Subject() != subject || t.Action == policy.None || target != nil && !t.Acts() {
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

// verdictOn returns Unhealthy if any check has that verdict about the subject, else the verdict
// of the last check that covers it, "" when none does.
func verdictOn(r *policy.Report, subject string) (v policy.Verdict) {
	for i := range r.Checks {
		for j := range r.Checks[i].Targets {
			if t := &r.Checks[i].Targets[j]; t.Subject() == subject && v != policy.Unhealthy {
				v = t.Verdict
			}
		}
	}
	return v
}

// earliestPass is when every failing gate can pass; zero if one of them has no known end.
func earliestPass(gates []reason.Gate) time.Time {
	var t time.Time
	for _, g := range gates {
		switch {
		case g.Pass:
		case g.Until.IsZero():
			return time.Time{}
		default:
			t = times.Later(t, g.Until)
		}
	}
	return t
}
