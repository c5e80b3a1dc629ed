package policy

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/fenced/fenced/internal/reason"
)

// requestTables finds the targets of requests in the tables of a ledger, and the checks that made them.
type requestTables struct {
	*tables
	l *Ledger
}

// refusal is why a request is not carried out.
type refusal struct {
	code    reason.Code
	message string
}

// requested evaluates the target of a request.
func (w requestTables) requested(p *place, now time.Time) Requested {
	var cluster *Cluster
	if m := p.x.Machine; m != nil {
		cluster = w.clusters[key(m.Namespace, m.ClusterName)]
	}
	r, refused := Requested{Request: p.Request, Check: RuleOf(p.Request), Target: EvaluateRequest(p.Request, p.x, cluster, now)}, p.refused
	if refused == (refusal{}) && !p.countsNowhere() {
		refused = w.fromChecks(&r.Target, &p.x)
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
func (w requestTables) fromChecks(t *TargetReport, x *Subject) (refused refusal) {
	for _, e := range w.covering(x) {
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
func (w requestTables) covering(x *Subject) (list []*checkEntry) {
	if m := x.Machine; m != nil {
		for _, e := range w.l.onMachine[m.Name] {
			if e.machine == m {
				list = append(list, e.check)
			}
		}
	}
	if n := x.Node; n != nil {
		for _, e := range w.l.onNode[n.Name] {
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
	w, p := requestTables{l.w, l}, place{Request: q}
	p.x, p.refused = w.requestSubject(q)
	return w.requested(&p, now).Target
}

// requestSubject finds the target of a request: the Machine that owns it, the
// Node that it names, or what has its name. A request that a Machine owns is for
// no other one. One on a separate management API is never for a Node by name:
// the Nodes there are those of another cluster.
func (w requestTables) requestSubject(q *Request) (x Subject, refused refusal) {
	x, named := w.findSubject(q)
	switch m := x.Machine; {
	case named && !w.mayName(q, &x):
		refused = refusal{reason.RequestNotTrusted, fmt.Sprintf("no NodeHealthCheck made the request for Node %s from a template in namespace %s; "+
			"let one do that, or add the namespace to clusters[].requestNamespaces", nameOf(q), q.Namespace)}
	case !named && m != nil && m.Suspended != "":
		refused = refusal{reason.Paused, m.Suspended}
	case !named && m != nil && q.NodeName != "" && q.NodeName != m.NodeName && !q.OnManagementAPI:
		refused = refusal{reason.NodeMismatch, fmt.Sprintf("the request names Node %s, and its Machine %s has Node %q", q.NodeName, m.Key(), m.NodeName)}
	}
	return x, refused
}

// findSubject finds the target of a request. named: only the name of its Node says so.
func (w requestTables) findSubject(q *Request) (x Subject, named bool) {
	switch m, owned := w.requestMachine(q); {
	case m != nil:
		return w.machineAlone(m), false
	case owned, q.OnManagementAPI:
		return Subject{}, false
	}
	if n := w.nodes[nameOf(q)]; n != nil {
		return w.nodeAlone(n), true
	}
	if owners := w.owners().of(nameOf(q), nil); len(owners) > 0 {
		x = w.machineAlone(owners[0])
	}
	return x, true
}

// nameOf is the Node that a request without a Machine is for.
func nameOf(q *Request) string { return cmp.Or(q.NodeName, q.Name) }

// mayName reports whether a request may be for a Node that it only names. Nodes are
// of no namespace, so anybody who may create an object in any namespace could name them. It
// may if the Machine of the Node is in its namespace, if a NodeHealthCheck that covers the
// Node made it in the namespace of one of its templates, or if the administrator lists its
// namespace. A NodeHealthCheck asks for no Node that is gone, and deletes what it has made for one;
// nobody could tell whether it covers that Node.
func (w requestTables) mayName(q *Request, x *Subject) bool {
	switch {
	case x.Machine != nil && w.isBeside(q, x.Machine) || slices.Contains(w.rules.RequestNamespaces, q.Namespace):
		return true
	case !slices.Contains(w.requests.spaces, q.Namespace): // no such template is there
		return false
	}
	for _, e := range w.l.checks {
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
		return e.Template.Namespace == q.Namespace && e.Template.isSourceOf(q.APIVersion, q.Kind, q.TemplateName)
	})
}

// isBeside reports whether a request is in the namespace of a Machine, on the same API.
func (w *tables) isBeside(q *Request, m *Machine) bool {
	elsewhere := w.rules.ManagementApart && q.OnManagementAPI != (m.Group() == group(ClusterAPIV1Beta2))
	return m.Namespace == q.Namespace && !elsewhere
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
		case q.Kind != MachineRequestKind && !w.isBeside(q, m):
		case found != nil:
			return nil, true // one of each API family
		default:
			found = m
		}
	}
	return found, owned
}
