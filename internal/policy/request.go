package policy

import (
	"cmp"
	"fmt"
	"maps"
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
	now = l.Advance(now)
	var asked []*Request
	for _, q := range l.requests {
		if q.Power != nil {
			asked = append(asked, q)
		}
	}
	if annotations {
		for _, m := range l.tables.underRemediation {
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
	places := l.places(asked)
	for i := range places {
		p := &places[i]
		if p.over != "" {
			list[i] = Requested{Request: p.Request, Check: RuleOf(p.Request)}
			list[i].Target = newTarget(&list[i].Check, &p.x)
			list[i].Target.set(Indeterminate, reason.RequestLimit, p.over)
		} else {
			list[i] = l.requested(p, now)
		}
		if r.Checks = append(r.Checks, CheckReport{}); p.seated { // only these share anything with others
			r.Checks[i].Targets = []TargetReport{list[i].Target}
		}
	}
	l.tables.refuseBudgets(&r, l.reportBudgets(&r)) // what limits the targets of all requests together
	l.tables.guardControlPlane(&r)
	for i := range list {
		if places[i].seated {
			list[i].Target = r.Checks[i].Targets[0]
		}
	}
	return list
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
	case x.Node != nil && x.Node.Ready() && !q.Power.ReadyNodes: // I4
		t.set(Healthy, "", what+": the Node is Ready")
		return t
	case q.Deleting:
		t.set(Indeterminate, reason.Deleting, what+" is being deleted")
		return t
	case !q.TimedOut.IsZero():
		t.set(Indeterminate, reason.RequestTimeout, "the check that made "+what+" has given up on it")
		return t
	case q.Power.Answered():
		t.set(Indeterminate, reason.NotUnhealthy, what+" was answered ("+q.Power.Phase+"): whoever wants another power cycle deletes it and makes a new one")
		return t
	case q.Power.Timeout > 0 && !q.Created.IsZero() && !now.Before(ends):
		t.set(Indeterminate, reason.RequestTimeout, what+": no run could begin within its timeoutSeconds")
		return t
	}
	t.set(Unhealthy, "", what)
	t.Trigger, t.Action = "requested by "+what, PowerCycle
	t.refuseRequest(q, &x, cluster)
	t.refuseWhileRenewed(&x, now) // I4
	return t
}

// refuseRequest adds what forbids the power cycle of a requested target.
func (t *TargetReport) refuseRequest(q *Request, x *Subject, cluster *Cluster) {
	m := x.Machine
	if q.Power.FinalizerElsewhere {
		t.refuse(reason.RequestNotHeld)
		t.Message = "another installation of fenced holds " + q.Kind + " " + q.key() + "; if that one is gone, see that the host is on, then remove the finalizer fenced.io/power"
	}
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
	t.refuseNotOwned(x)
}

// refusal says why a request is not carried out.
type refusal struct {
	code    reason.Code
	message string
}

// requested evaluates the target of a request.
func (l *Ledger) requested(p *place, now time.Time) Requested {
	var cluster *Cluster
	if m := p.x.Machine; m != nil {
		cluster = l.clusters[key(m.Namespace, m.ClusterName)]
	}
	r, refused := Requested{Request: p.Request, Check: RuleOf(p.Request), Target: EvaluateRequest(p.Request, p.x, cluster, now)}, p.refused
	if refused == (refusal{}) && !p.countsNowhere() {
		refused = l.fromChecks(&r.Target, &p.x)
	}
	if refused != (refusal{}) && r.Target.Action != None {
		r.Target.refuse(refused.code)
		r.Target.Message = refused.message
	}
	return r
}

// fromChecks applies the checks that cover the target of a request: the longest of their start-up
// timeouts is how long its Node may take to register, and one that only counts forbids every
// action.
func (l *Ledger) fromChecks(t *TargetReport, x *Subject) (refused refusal) {
	for _, e := range l.covering(x) {
		if e.st.state != StateActive {
			continue
		}
		t.StartupTimeout = max(t.StartupTimeout, e.check.StartupTimeout)
		if e.check.Strategy == CountOnly {
			refused = refusal{reason.Overlap, fmt.Sprintf("%s %s covers the target and only counts (strategy None)", e.check.Kind, e.check.Key())}
		}
	}
	return refused
}

// covering lists the checks that cover a target. To ask every check about each of many requests takes long.
func (l *Ledger) covering(x *Subject) (list []*checkEntry) {
	if m := x.Machine; m != nil {
		for e := range l.onMachine.of(m.Name) {
			if e.machine == m {
				list = append(list, e.check)
			}
		}
	}
	if n := x.Node; n != nil {
		for e := range l.onNode.of(n.Name) {
			if e.machine == nil && e.check.check.Covers(nil, n) { // not only because a run is open
				list = append(list, e.check)
			}
		}
	}
	return list
}

// RequestTarget finds and evaluates the target of a request as it was just read, by the objects of
// the ledger. Budgets and the control plane are left out.
func (l *Ledger) RequestTarget(q *Request, now time.Time) TargetReport {
	p := place{Request: q}
	p.x, p.refused = l.requestSubject(q)
	return l.requested(&p, now).Target
}

// requestSubject finds the target of a request: the Machine that owns it, the
// Node that it names, or what has its name. A request that a Machine owns is for
// no other one. One on a separate management API is never for a Node by name:
// the Nodes there are those of another cluster.
func (l *Ledger) requestSubject(q *Request) (x Subject, refused refusal) {
	x, named := l.findSubject(q)
	switch m := x.Machine; {
	case named && !l.mayName(q, &x):
		refused = refusal{reason.RequestNotTrusted, fmt.Sprintf("no NodeHealthCheck made the request for Node %s from a template in namespace %s; "+
			"let one do that, or add the namespace to clusters[].requestNamespaces", q.targetName(), q.Namespace)}
	case isForFormer(q, &x):
		refused = refusal{reason.TargetChanged, fmt.Sprintf("the request is older than the Node or Machine that has the name %s now, so it was for the one before; "+
			"if this one needs a power cycle, delete the request and make a new one", q.targetName())}
	case !named && m != nil && m.Suspended != "":
		refused = refusal{reason.Paused, m.Suspended}
	case !named && m != nil && q.NodeName != "" && q.NodeName != m.NodeName && !q.OnManagementAPI:
		refused = refusal{reason.NodeMismatch, fmt.Sprintf("the request names Node %s, and its Machine %s has Node %q", q.NodeName, m.Key(), m.NodeName)}
	}
	return x, refused
}

// isForFormer reports whether a request that only names its target was made before that was: it is for the one that
// had the name before. The new one may be a host that joins, and is not Ready yet. Where the request has the
// finalizer, its run has begun, and may itself have let the Node register anew. // I2, I4
func isForFormer(q *Request, x *Subject) bool {
	_, owned := q.machineOwner()
	switch {
	case q.Kind == MachineRequestKind || owned || q.Power.HasFinalizer || q.Created.IsZero():
		return false
	case x.Node != nil:
		return x.Node.Created.After(q.Created)
	}
	return x.Machine != nil && x.Machine.Created.After(q.Created)
}

// machineOwner is the Machine that owns a request; false if none does.
func (r *Request) machineOwner() (Owner, bool) {
	at := slices.IndexFunc(r.Owners, func(o Owner) bool { return o.Kind == "Machine" })
	if at < 0 {
		return Owner{}, false
	}
	return r.Owners[at], true
}

// findSubject finds the target of a request. named: only the name of its Node says so.
func (l *Ledger) findSubject(q *Request) (x Subject, named bool) {
	switch m, owned := l.requestMachine(q); {
	case m != nil:
		return l.machineSubject(m), false
	case owned, q.OnManagementAPI:
		return Subject{}, false
	}
	if n := l.nodes[q.targetName()]; n != nil {
		return l.nodeSubject(n), true
	}
	if owners := l.ownersOf(q.targetName(), nil); len(owners) > 0 {
		x = l.machineSubject(owners[0])
	}
	return x, true
}

// mayName reports whether a request may be for a Node that it only names. Nodes are
// of no namespace, so anybody who may create an object in any namespace could name them. It
// may if the Machine of the Node is in its namespace, if a NodeHealthCheck that covers the
// Node made it in the namespace of one of its templates, or if the administrator lists its
// namespace. A NodeHealthCheck asks for no Node that is gone, and deletes what it has made for one;
// nobody could tell whether it covers that Node.
func (l *Ledger) mayName(q *Request, x *Subject) bool {
	switch {
	case x.Machine != nil && l.isBeside(q, x.Machine) || slices.Contains(l.rules.RequestNamespaces, q.Namespace):
		return true
	case !slices.Contains(l.tables.requests.spaces, q.Namespace): // no such template is there
		return false
	}
	for _, e := range l.checks {
		if e.check.madeRequestIn(q) && x.Node != nil && e.check.Covers(nil, x.Node) {
			return true
		}
	}
	return false
}

// madeRequestIn reports whether the check made the request in the namespace of the template
// that it comes from. Anybody can write an owner into an object, but only in a namespace
// where they may create it.
func (c *Check) madeRequestIn(q *Request) bool {
	return c.family() == medik8s && q.ownedBy(c) && slices.ContainsFunc(c.rungs(), func(e Escalation) bool {
		return e.Template.Namespace == q.Namespace && e.IsSourceOf(q)
	})
}

// isBeside reports whether a request is in the namespace of a Machine, on the same API.
func (w *tables) isBeside(q *Request, m *Machine) bool {
	elsewhere := w.rules.ManagementApart && q.OnManagementAPI != (m.Group() == group(ClusterAPIV1Beta2))
	return m.Namespace == q.Namespace && !elsewhere
}

// requestMachine finds the Machine that owns a request, or, if the request names
// neither an owner nor a Node, the Machine of its name. owned: a Machine owns it.
func (l *Ledger) requestMachine(q *Request) (found *Machine, owned bool) {
	name, uid := q.Name, q.UID
	if q.Kind != MachineRequestKind {
		var o Owner
		switch o, owned = q.machineOwner(); {
		case owned:
			name, uid = o.Name, o.UID
		case q.NodeName != "":
			return nil, false
		default:
			uid = ""
		}
	}
	for _, g := range machineGroups {
		m := l.machines[machineID{g, q.Namespace, name}]
		switch {
		case m == nil, uid != "" && m.UID != uid, q.Kind == MachineRequestKind && m.Group() != group(q.APIVersion):
		case q.Kind != MachineRequestKind && !l.isBeside(q, m):
		case found != nil:
			return nil, true // one of each API family
		default:
			found = m
		}
	}
	return found, owned
}

// How many requests fenced looks at, so that whoever may create them cannot make each decision
// take long: in one namespace, and in all. A request that may not be for its target takes no
// seat, and needs none: it is refused without a look at the checks.
const (
	maxRequestsIn = 1000
	maxRequests   = 5000
)

// place is a request with its target, and whether it has a seat.
type place struct {
	*Request
	x       Subject
	refused refusal
	seated  bool
	// over says that others of its namespace have the seats; "" if that is not so.
	over string
}

// places finds the targets of requests, and gives out the seats; asked is sorted by age.
func (l *Ledger) places(asked []*Request) []place {
	list, in := make([]place, len(asked)), map[space][]*place{}
	for i, q := range asked {
		p := &list[i]
		p.Request = q
		p.x, p.refused = l.requestSubject(q)
		switch {
		case p.countsNowhere():
		case q.Kind == MachineRequestKind: // there are no more than Machines
			p.seated = true
		default:
			from := space{q.OnManagementAPI, q.Namespace}
			in[from] = append(in[from], p)
		}
	}
	giveSeats(in, func(from space) bool {
		return l.rules.TrustNames || slices.Contains(l.rules.withTarget(l.tables.requests.spaces, from.apart, nil, nil), from.namespace) || l.machineSpaces[from].nodes > 0
	})
	return list
}

// countsNowhere: whoever wrote the request may not decide about its target, or it has none.
func (p *place) countsNowhere() bool {
	return p.x.Machine == nil && p.x.Node == nil || p.refused.code == reason.RequestNotTrusted || p.x.NotOwned.Why != ""
}

// giveSeats lets the namespaces take a seat in turns, first those of the
// administrator and of the Machines that Nodes name. So a namespace that wants no more than its share gets all of it,
// whatever the others want. Within one, what fenced holds goes first, also where no seat is left, because its
// host may be off; then what waits, the oldest first; then what was answered. Whoever may write a request can
// write that fenced holds it, so no namespace has more seats for that.
func giveSeats(in map[space][]*place, isFirst func(space) bool) {
	free, seats := maxRequests, map[space]int{}
	for _, first := range []bool{true, false} {
		var turns []space
		for _, from := range slices.SortedFunc(maps.Keys(in), space.compare) {
			if isFirst(from) == first {
				turns = append(turns, from)
				slices.SortStableFunc(in[from], func(a, b *place) int { return cmp.Compare(a.rank(), b.rank()) })
			}
		}
		for at := 0; len(turns) > 0; at++ {
			turns = slices.DeleteFunc(turns, func(from space) bool { return at == len(in[from]) })
			for _, from := range turns {
				p := in[from][at]
				if p.seated = at < maxRequestsIn && (free > 0 || p.rank() == 0); p.seated {
					free--
					seats[from]++
				} else {
					p.over = fmt.Sprintf("fenced looks at %d requests of %s: this one has its turn when others there are answered or deleted",
						seats[from], from.text())
				}
			}
		}
	}
}

// rank says how early a request is looked at.
func (p *place) rank() int {
	switch {
	case p.Power.HasFinalizer:
		return 0
	case p.Power.Answered():
		return 2
	}
	return 1
}
