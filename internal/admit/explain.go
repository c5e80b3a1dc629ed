package admit

import (
	"context"
	"slices"
	"time"

	"github.com/fenced/fenced/internal/cluster"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/times"
	"github.com/fenced/fenced/internal/wire"
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
func (c *Cluster) Explain(ctx context.Context, o wire.Order) (Explanation, error) {
	a, err := c.model.CandidateForOrder(o)
	if err != nil {
		return Explanation{}, err
	}
	a.Draft.Manual, a.Protected = nil, c.opt.Hosts.Protected(a.Draft.Target)
	now := time.Now()
	subject := cluster.SubjectOf(a.Draft.Target)
	report := c.model.Objects.NodeReport(subject, now)
	x := Explanation{Cluster: c.opt.Name, Node: a.Draft.Target.Node, Machine: o.Machine,
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
	x.Gates = slices.Concat(c.Escalation.Gates(a.Draft.Target, now), x.Gates) // first: it says what the others wait for
	x.Gates = append(x.Gates, uncertainMachineGates(a)...)
	x.Run = c.model.Runs.NewestOn(a.Draft.Target)
	p := c.probes.lastOn(subject)
	if p == nil {
		p = c.probes.unprobed(ctx, a.Draft)
	}
	x.Gates = append(x.Gates, c.gates(a, p, now)...)
	x.Gates = append(x.Gates, c.backOffGates(a, now)...)
	if failed := c.runs.recorder.gates(subject); failed != nil { // of this Node, though the log works for others
		x.Gates = append(slices.DeleteFunc(x.Gates, func(g reason.Gate) bool { return g.Name == failed[0].Name }), failed...)
	}
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
			if full := c.model.Objects.Check(r.Checks[i].ID()); full != nil {
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

// Plan is what fenced would do now in one cluster, in the order in which it would start.
type Plan struct {
	Cluster string
	Items   []Planned
}

// Planned is one target for which a check asks for an action.
type Planned struct {
	Check         policy.CheckID
	Machine, Node string
	Action        policy.Action
	Trigger       string // why the check asks for the action
	// Gate is the first failing gate; nil: the run would start now.
	Gate *reason.Gate
	// Earliest is when every gate can pass; zero: unknown.
	Earliest time.Time
}

// planLookups is the number of targets without a probe for which a plan looks up host,
// credentials and etcd. More than that would not start at once anyway.
const planLookups = 50

// Plan evaluates the gates of every target that a check wants remediated. It reads no BMC:
// results of a probe are included once the daemon has probed the target. With asArmed, the plan is
// that of a cluster in mode observe as soon as it is armed and the quiet period is over.
func (c *Cluster) Plan(ctx context.Context, asArmed bool) (Plan, error) {
	if !c.model.Objects.Seen() {
		return Plan{}, cluster.ErrNotSeen()
	}
	now := time.Now()
	plans := planner{c: c, now: now, asArmed: asArmed, lookups: planLookups}
	acting := c.model.Objects.ActingChecks(now)
	p := Plan{Cluster: c.opt.Name, Items: plans.requests(ctx)}
	for i := range acting {
		check := &acting[i]
		full := c.model.Objects.Check(check.ID())
		for j := range check.Targets {
			if full != nil {
				p.Items = append(p.Items, plans.target(ctx, full, check, &check.Targets[j])...)
			}
		}
	}
	return p, nil
}

// planner makes the items of a plan. It looks things up while lookups are left.
type planner struct {
	c       *Cluster
	now     time.Time
	asArmed bool // mode observe and the quiet period forbid nothing
	lookups int
}

// guards evaluates the guards of a candidate.
func (w *planner) guards(a cluster.Candidate, p *probe) []reason.Gate {
	return slices.DeleteFunc(w.c.gates(a, p, w.now), func(g reason.Gate) bool { return w.asArmed && (g.Name == "mode" || g.Name == "quietPeriod") })
}

// target evaluates the gates of one target; none if it has changed since the report. It
// looks things up only if the gates without I/O pass, and only while lookups are left.
func (w *planner) target(ctx context.Context, full *policy.Check, check *policy.CheckReport, t *policy.TargetReport) []Planned {
	a, ok := w.c.candidate(full, t)
	if !ok {
		return nil
	}
	return []Planned{w.candidate(ctx, a, t, policy.ExplainTarget(check, t))}
}

// requests plans the targets of the remediation requests.
func (w *planner) requests(ctx context.Context) (items []Planned) {
	asked := w.c.Requested
	if w.c.opt.Requests == nil {
		return nil
	}
	for _, q := range asked.model.Requested(w.now) {
		if a, ok := asked.candidate(&q.Requested); ok && q.Target.Action != policy.None && !q.IsCarriedOut() {
			_, gates := asked.gate(q.Target.Subject(), w.now)
			items = append(items, w.candidate(ctx, a, &q.Target, gates))
		}
	}
	return items
}

// candidate evaluates the gates of a candidate after those of its check or request.
func (w *planner) candidate(ctx context.Context, a cluster.Candidate, t *policy.TargetReport, gates []reason.Gate) Planned {
	c, now := w.c, w.now
	p := c.probes.last(a.Key)
	guards := w.guards(a, p)
	if _, refused := cluster.FirstFailing(slices.Concat(gates, guards)); p == nil && !refused && w.lookups > 0 {
		w.lookups--
		guards = w.guards(a, c.probes.unprobed(ctx, a.Draft))
	}
	gates = slices.Concat(gates, guards, c.Escalation.Gates(a.Draft.Target, now), c.backOffGates(a, now))
	item := Planned{Check: a.Check.ID(), Machine: t.Machine, Node: t.Node, Action: t.Action, Trigger: t.Trigger, Earliest: earliestPass(gates)}
	if g, refused := cluster.FirstFailing(gates); refused {
		item.Gate = &g
	}
	return item
}
