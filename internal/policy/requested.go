package policy

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/fenced/fenced/internal/reason"
)

// MachineRequestKind is the kind of a request that is the annotation
// host.metal3.io/external-remediation of an OpenShift Machine.
const MachineRequestKind = "Machine"

// Requested is one remediation request that fenced itself carries out. Whoever
// made it has judged the target; fenced decides whether it may act now.
type Requested struct {
	Request *Request
	// Check has the identity of the request, and the rules for its run.
	Check Check
	// Target is what the request is for. Its Subject is empty if no such Machine or
	// Node is seen. Its action is PowerCycle while the request asks for one.
	Target TargetReport
}

// Requested lists the requests that fenced carries out, the oldest first:
// FencedRemediation objects and, if annotations is set, annotated OpenShift
// Machines.
func (l *Ledger) Requested(annotations bool, now time.Time) []Requested {
	now = l.evaluateDue(now)
	var asked []*Request
	for _, q := range l.requests {
		if q.Power != nil {
			asked = append(asked, q)
		}
	}
	if annotations {
		for _, m := range l.w.underRemediation {
			if m.ExternalRemediationRequested {
				asked = append(asked, AnnotatedRequest(m))
			}
		}
	}
	if len(asked) == 0 {
		return nil
	}
	slices.SortFunc(asked, func(a, b *Request) int { return cmp.Or(a.Created.Compare(b.Created), byRequest(a, b)) })
	r := Report{At: now}
	list := make([]Requested, len(asked))
	for i, q := range asked {
		list[i] = requestTables{l.w}.requested(q, now)
		r.Checks = append(r.Checks, CheckReport{Targets: []TargetReport{list[i].Target}})
	}
	l.applyShared(&r)
	for i := range list {
		list[i].Target = r.Checks[i].Targets[0]
	}
	return list
}

// applyShared applies what limits the targets of all requests together.
func (l *Ledger) applyShared(r *Report) {
	l.w.guardControlPlane(r)
	var budgets []DisruptionBudget
	for _, b := range l.budgetList() {
		budgets = append(budgets, *b.budget)
		r.Budgets = append(r.Budgets, b.n.report(b.budget, l.w.unseenNodes()))
	}
	l.w.refuseBudgets(r, budgets)
}

// AnnotatedRequest is the request that an annotation on a Machine makes. When it
// was made is not known.
func AnnotatedRequest(m *Machine) *Request {
	return &Request{APIVersion: m.APIVersion, Kind: MachineRequestKind, Namespace: m.Namespace, Name: m.Name, UID: m.UID, Power: &PowerRequest{}}
}

// RuleOf returns the check that stands for a request.
func RuleOf(q *Request) Check {
	return Check{
		Kind: q.Kind, APIVersion: q.APIVersion, Namespace: q.Namespace, Name: q.Name, UID: q.UID, Source: "cluster",
		Strategy: PowerCycleHosts, MaxAttempts: q.Power.Attempts,
	}
}

// requestTables finds the targets of requests in the tables.
type requestTables struct{ *tables }

// requested finds and evaluates the target of a request.
func (w requestTables) requested(q *Request, now time.Time) Requested {
	x, contradiction := w.requestSubject(q)
	var cluster *Cluster
	if m := x.Machine; m != nil {
		cluster = w.clusters[key(m.Namespace, m.ClusterName)]
	}
	r := Requested{Request: q, Check: RuleOf(q), Target: EvaluateRequest(q, x, cluster, now)}
	if contradiction != "" && r.Target.Action != None {
		r.Target.refuse(reason.NodeMismatch)
		r.Target.Message = contradiction
	}
	return r
}

// requestSubject finds the target of a request: the Machine that owns it, the
// Node that it names, or what has its name. A request that a Machine owns is for
// no other one. One on a separate management API is never for a Node by name:
// the Nodes there are those of another cluster.
func (w requestTables) requestSubject(q *Request) (x Subject, contradiction string) {
	if m, owned := w.requestMachine(q); owned || m != nil {
		if m == nil {
			return Subject{}, ""
		}
		x = w.machineSubject(m)
		if q.NodeName != "" && q.NodeName != m.NodeName && !q.OnManagementAPI {
			contradiction = fmt.Sprintf("the request names Node %s, and its Machine %s has Node %q", q.NodeName, m.Key(), m.NodeName)
		}
		return x, contradiction
	}
	if q.OnManagementAPI {
		return Subject{}, ""
	}
	name := cmp.Or(q.NodeName, q.Name)
	if n := w.nodes[name]; n != nil {
		return w.nodeSubject(n), ""
	}
	if list := w.byNode[name]; len(list) > 0 {
		return w.machineSubject(list[0]), ""
	}
	return Subject{}, ""
}

// requestMachine finds the Machine that owns a request, or, if the request names
// neither an owner nor a Node, the Machine of its name. owned: a Machine owns it.
func (w requestTables) requestMachine(q *Request) (found *Machine, owned bool) {
	name, uid := q.Name, q.UID
	if q.Kind != MachineRequestKind {
		at := slices.IndexFunc(q.Owners, func(o Owner) bool { return o.Kind == "Machine" })
		owned = at >= 0
		switch {
		case owned:
			name, uid = q.Owners[at].Name, q.Owners[at].UID
		case q.NodeName != "":
			return nil, false
		default:
			uid = ""
		}
	}
	for _, g := range machineGroups {
		m := w.machines[machineID{g, q.Namespace, name}]
		switch {
		case m == nil, uid != "" && m.UID != uid, q.Kind == MachineRequestKind && m.Group() != group(q.APIVersion):
		case found != nil:
			return nil, true // one of each API family
		default:
			found = m
		}
	}
	return found, owned
}

// EvaluateRequest evaluates the target of a request by itself. cluster is the
// Cluster of its Machine, or nil. It is asked again, with fresh objects, before
// fenced acts. // I4
func EvaluateRequest(q *Request, x Subject, cluster *Cluster, now time.Time) TargetReport {
	rule := RuleOf(q)
	t := newTarget(&rule, &x)
	what := q.Kind + " " + q.key()
	switch ends := deadline(q.Created, q.Power.Timeout); {
	case x.Machine == nil && x.Node == nil:
		t.set(Indeterminate, reason.NodeNotFound, what+": no such Machine or Node is seen")
		return t
	case q.Deleting:
		t.set(Indeterminate, reason.Deleting, what+" is being deleted")
		return t
	case !q.TimedOut.IsZero():
		t.set(Indeterminate, reason.RequestTimeout, "the check that made "+what+" has given up on it")
		return t
	case x.Node != nil && x.Node.Ready() && !q.Power.ReadyNodes: // I4
		t.set(Healthy, "", what+": the Node is Ready")
		return t
	case q.Power.Timeout > 0 && !q.Created.IsZero() && !now.Before(ends):
		t.set(Indeterminate, reason.RequestTimeout, what+": no run could begin within its timeoutSeconds")
		return t
	}
	t.set(Unhealthy, "", what)
	t.Trigger, t.Action = "requested by "+what, PowerCycle
	t.refuseRequest(&x, cluster)
	return t
}

// refuseRequest adds what forbids the power cycle of a requested target.
func (t *TargetReport) refuseRequest(x *Subject, cluster *Cluster) {
	m := x.Machine
	switch {
	case m == nil:
	case m.Deleting:
		t.refuse(reason.Deleting)
	case m.Paused, cluster != nil && cluster.Paused:
		t.refuse(reason.Paused)
	case m.SkipRemediation:
		t.refuse(reason.SkipRequested)
	}
	if d := x.doubt(); d != (Doubt{}) {
		t.refuse(d.Reason)
		t.Message = d.Message
	}
}
