package policy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/reason"
)

// Templates lists the templates of the check, in the order in which they are tried.
func (c *Check) Templates() []Template {
	var list []Template
	for _, e := range c.rungs() {
		list = append(list, e.Template)
	}
	return list
}

// IsHandledByFenced reports whether fenced carries out all requests of the check.
func (c *Check) IsHandledByFenced() bool {
	all := c.Templates()
	return len(all) > 0 && !slices.ContainsFunc(all, func(t Template) bool { return !t.IsOwn() })
}

// firstIsOwn reports whether fenced carries out the first request of the check.
func (c *Check) firstIsOwn() bool {
	all := c.rungs()
	return c.Strategy == CreateRequests && len(all) > 0 && all[0].Template.IsOwn()
}

// IsSourceOf reports whether the request comes from the template of this step.
func (e *Escalation) IsSourceOf(q *Request) bool {
	return e.Template.isSourceOf(q.APIVersion, q.Kind, q.TemplateName)
}

// isSourceOf reports whether requests of this kind come from the template. A
// request that does not name its template may come from any template of its kind.
func (p *Template) isSourceOf(apiVersion, kind, template string) bool {
	return group(apiVersion) == group(p.APIVersion) && kind == strings.TrimSuffix(p.Kind, "Template") &&
		(template == "" || template == p.Name)
}

// escalate selects the template for the request of an unhealthy Node. It refuses
// if that request exists already, or if no template is left.
func (t *TargetReport) escalate(c *Check, a CheckContext, x *Subject, now time.Time) {
	if x.Node != nil && x.Node.Deleting {
		t.refuse(reason.Deleting)
	}
	if c.family() == medik8s {
		t.refuseRollingConfig(x)
	}
	if q := c.foreignRequest(x); q != nil {
		// Another check, a person or another controller already remediates the Node.
		// fenced never touches requests that it did not create, and starts no second
		// remediator.
		t.refuse(reason.AlreadyRequested)
		t.Message += fmt.Sprintf("; %s %s exists, and this check did not create it", q.Kind, q.key())
		return
	}
	own, tried := c.ownRequests(x), a.Tried[x.nodeName()]
	if tried == nil {
		tried = a.Tried[x.machineKey()]
	}
	tried = slices.Concat(c.Attempts[x.nodeName()], tried)
	for _, rung := range c.rungs() {
		made := latest(own, &rung.Template)
		ends, over := rung.isExhausted(made, tried, now)
		if over {
			continue
		}
		t.Template = &rung.Template
		switch {
		case made != nil:
			t.refuse(reason.AlreadyRequested)
			t.Message += fmt.Sprintf("; %s %s has been made", made.Kind, made.key())
			t.waitAtMost(ends, now)
		case len(own) > 0 && c.MakesRequests(): // another remediator begins only when it is gone
			t.refuse(reason.AlreadyRequested)
			t.Message += fmt.Sprintf("; %s %s still exists", own[0].Kind, own[0].key())
		case c.Template == nil:
			t.Message += fmt.Sprintf("; next is %s %s", rung.Template.Kind, key(rung.Template.Namespace, rung.Template.Name))
		}
		return
	}
	t.refuse(reason.NoTemplateLeft)
	t.Message += "; every template was tried"
}

// isExhausted reports whether the request of this step timed out or failed. If
// not, ends is when it will time out; zero means never.
func (e *Escalation) isExhausted(made *Request, tried []Attempt, now time.Time) (ends time.Time, over bool) {
	if e.Timeout == 0 {
		return time.Time{}, false
	}
	started := time.Time{}
	for _, a := range tried {
		if !e.Template.isSourceOf(a.APIVersion, a.Kind, a.TemplateName) {
			continue
		}
		if !a.TimedOut.IsZero() {
			return time.Time{}, true
		}
		started = a.Started
	}
	if made == nil {
		return time.Time{}, false
	}
	failed := func(c Condition) bool { return c.Type == succeededCondition && c.Status == "False" } // its remediator gave up
	if !made.TimedOut.IsZero() || slices.ContainsFunc(made.Conditions, failed) {
		return time.Time{}, true
	}
	if !made.Created.IsZero() {
		started = made.Created
	}
	if started.IsZero() {
		return time.Time{}, false // without a start time it never times out
	}
	return deadline(started, e.Timeout), expired(started, e.Timeout, now)
}

// latest returns the newest of the requests that come from the template.
func latest(own []*Request, p *Template) *Request {
	var found *Request
	for _, q := range own {
		if p.isSourceOf(q.APIVersion, q.Kind, q.TemplateName) && (found == nil || q.Created.After(found.Created)) {
			found = q
		}
	}
	return found
}

// madeRequest reports whether the check made the request: it owns the request,
// and the request comes from one of its templates.
func (c *Check) madeRequest(r *Request) bool {
	return r.ownedBy(c) && slices.ContainsFunc(c.rungs(), func(e Escalation) bool { return e.IsSourceOf(r) })
}

// ownedBy compares kind and name, as medik8s does. A different UID is that of a
// deleted check with the same name. A FencePolicy is no object, so its requests
// carry its mark.
func (r *Request) ownedBy(c *Check) bool {
	if c.family() == fenced {
		return r.Check == c.Mark()
	}
	return slices.ContainsFunc(r.Owners, func(o Owner) bool {
		return o.Kind == c.Kind && o.Name == c.Name && (o.UID == c.UID || o.UID == "" || c.UID == "")
	})
}

// ownRequests returns the check's own requests for the target, by name.
func (c *Check) ownRequests(x *Subject) []*Request {
	var own []*Request
	for _, q := range x.Requests {
		if c.madeRequest(q) {
			own = append(own, q)
		}
	}
	slices.SortFunc(own, byRequest)
	return own
}

// foreignRequest returns the first request for the target that the check did not
// make.
func (c *Check) foreignRequest(x *Subject) *Request {
	var first *Request
	for _, q := range x.Requests {
		if !c.madeRequest(q) && (first == nil || byRequest(q, first) < 0) {
			first = q
		}
	}
	return first
}

func (r *Request) key() string { return key(r.Namespace, r.Name) }

// Asked is one target for which fenced has asked another remediator, as it was then.
type Asked struct {
	// Check is the mark of the check.
	Check string
	// Node is the name of the Node; empty if there was none.
	Node string
	// The Machine, by its API group; empty if the target is a Node alone.
	MachineAPI, Namespace, Machine, MachineUID string
}

// AskedTarget is what is known now about a target for which fenced has asked another
// remediator.
type AskedTarget struct {
	// Check is nil if it is gone, if it does not cover the target any more, or if fenced does
	// not make its requests any more.
	Check *Check
	State State
	// Target is its evaluation, as if nobody had been asked; only an Active check that
	// covers the target has one.
	Target TargetReport
	// Recovered: the check finds nothing wrong with the target any more.
	Recovered bool
	// Gone: what the check evaluates does not exist: neither the Machine nor the Node, and for a
	// check of Nodes the Node. Unknown: the Node could not be decoded. NodeReady: the Node is Ready.
	Gone, Unknown, NodeReady bool
	// Confirmed: a person has confirmed on the Node that it is well.
	Confirmed bool
}

// AskedTarget evaluates a target for which fenced has asked another remediator.
func (l *Ledger) AskedTarget(a Asked, now time.Time) AskedTarget {
	now = l.Advance(now)
	if a.Node != "" && l.tables.nodes[a.Node] == nil && !l.tables.gone(a.Node) {
		return AskedTarget{Unknown: true}
	}
	x, found := l.askedSubject(a)
	r := AskedTarget{Gone: !found}
	if x.Node != nil {
		_, r.Confirmed = x.Node.Annotations[confirmAnnotation]
		r.NodeReady = x.Node.Ready()
	}
	for _, e := range l.checks {
		c := e.check
		if !c.MakesRequests() || c.Mark() != a.Check || c.family() != fenced && !FromCluster(c.Source) {
			continue
		}
		x, found := x, found
		if c.SelectsNodes { // a Machine whose Node was deleted says nothing to it
			x, found = l.askedNode(a)
		}
		if found && e.st.state == StateActive && !c.Covers(x.Machine, x.Node) {
			continue
		}
		r.Check, r.State, r.Gone = c, e.st.state, !found
		if c.family() != fenced && !c.isEvaluatedBy(l.tables.rules.Instance) {
			r.State = StateDisabled // it names another instance: its remediator goes on, and nobody else is asked
		}
		if found && r.State == StateActive {
			x.Run = ""
			r.Target = evaluate(c, e.context, &e.st, &x, now)
			// Only its requests keep a target from being healthy; the Cluster API and OpenShift do not count them.
			r.Recovered = r.Target.Verdict == Healthy || c.family().escalates() && r.Target.Verdict == Indeterminate && r.Target.Reason == reason.UnderRemediation
		}
	}
	return r
}

// askedSubject finds the target. A Machine of the same name is not the one that was meant.
func (l *Ledger) askedSubject(a Asked) (x Subject, found bool) {
	if a.Machine != "" {
		if m := l.MachineIn(a.MachineAPI, a.Namespace, a.Machine); m != nil && m.UID == a.MachineUID {
			return l.withRequests(l.machineSubject(m)), true
		}
	}
	return l.askedNode(a)
}

// askedNode finds the Node of the target.
func (l *Ledger) askedNode(a Asked) (x Subject, found bool) {
	if n := l.tables.nodes[a.Node]; n != nil {
		return l.withRequests(l.nodeSubject(n)), true
	}
	return x, false
}
