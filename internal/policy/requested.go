package policy

import (
	"cmp"
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
	w := requestTables{l.w, l}
	places := w.places(asked)
	for i := range places {
		p := &places[i]
		if p.over != "" {
			list[i] = p.overLimit()
		} else {
			list[i] = w.requested(p, now)
		}
		if r.Checks = append(r.Checks, CheckReport{}); p.seated { // only these share anything with others
			r.Checks[i].Targets = []TargetReport{list[i].Target}
		}
	}
	l.applyShared(&r)
	for i := range list {
		if places[i].seated {
			list[i].Target = r.Checks[i].Targets[0]
		}
	}
	return list
}

// applyShared applies what limits the targets of all requests together.
func (l *Ledger) applyShared(r *Report) {
	l.w.refuseBudgets(r, l.reportBudgets(r))
	l.w.guardControlPlane(r)
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
