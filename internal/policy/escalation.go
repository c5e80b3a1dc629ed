package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/reason"
)

// IsOwn reports whether fenced itself carries out the requests that are made from
// the template.
func (p *Template) IsOwn() bool {
	return group(p.APIVersion) == group(FencedAPI) && p.Kind == FencedRemediationKind+"Template"
}

// MakesRequests reports whether fenced makes the remediation requests of the check,
// in place of a controller of its own. The check must be Active.
func (c *Check) MakesRequests() bool {
	return c.Strategy == CreateRequests && (c.family() == fenced || c.Evaluator != "" && (c.Paused || c.family() == medik8s))
}

// AsksOthers reports whether fenced makes requests of the check that another remediator carries
// out. For those from its own template it makes no object.
func (c *Check) AsksOthers() bool {
	return c.MakesRequests() && slices.ContainsFunc(c.rungs(), func(e Escalation) bool { return !e.Template.IsOwn() })
}

// HandsOver reports whether an action of the check is done by a request that fenced
// makes. fenced's own template needs no request: fenced fences at once.
func (c *Check) HandsOver(t *TargetReport) bool {
	next := cmp.Or(t.Template, c.Template)
	return t.Action == CreateRequest && next != nil && c.MakesRequests() && !next.IsOwn()
}

// rungs are the templates of the check in the order in which they are tried. A
// check with a single template has one step that never times out.
func (c *Check) rungs() []Escalation {
	if c.Template != nil {
		return []Escalation{{Template: *c.Template}}
	}
	return c.Escalation
}

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

// ownTemplateInFront returns the reason why an escalation that fenced carries out cannot begin with fenced's
// own template, or an empty string: after a Node was deleted, nobody can name it to the next remediator.
func ownTemplateInFront(c *Check) string {
	if i := goesOnAfter(c); i >= 0 && c.MakesRequests() {
		return fmt.Sprintf("the FencedRemediationTemplate must be the last of the escalation, not that of order %d", c.Escalation[i].Order)
	}
	return ""
}

// GoesOnAfterFenced reports whether another template of the check follows one of fenced's own.
func GoesOnAfterFenced(c *Check) bool { return goesOnAfter(c) >= 0 }

// goesOnAfter is the first template of fenced's own in the escalation that another one follows; -1: none.
func goesOnAfter(c *Check) int {
	return slices.IndexFunc(c.Escalation[:max(0, len(c.Escalation)-1)], func(e Escalation) bool { return e.Template.IsOwn() })
}

// escalate selects the template for the request of an unhealthy Node. It refuses
// if that request exists already, or if no template is left.
func (t *TargetReport) escalate(c *Check, a CheckContext, x *Subject, now time.Time) {
	if x.Node != nil && x.Node.Deleting {
		t.refuse(reason.Deleting)
	}
	if c.family().waitsForUpgrades() {
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
	if !made.TimedOut.IsZero() || made.hasFailed() {
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

// hasFailed reports whether the remediator gave up and asks for the next one.
func (r *Request) hasFailed() bool {
	return slices.ContainsFunc(r.Conditions, func(c Condition) bool { return c.Type == succeededCondition && c.Status == "False" })
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
	now = l.evaluateDue(now)
	if a.Node != "" && l.w.nodes[a.Node] == nil && !l.w.gone(a.Node) {
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
		if !c.MakesRequests() || c.Mark() != a.Check || c.family() != fenced && !fromCluster(c.Source) {
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
		if c.family() != fenced && !c.isEvaluatedBy(l.w.rules.Instance) {
			r.State = StateDisabled // it names another instance: its remediator goes on, and nobody else is asked
		}
		if found && r.State == StateActive {
			x.Run = ""
			r.Target = evaluate(c, e.context, &e.st, &x, now)
			r.Recovered = hasRecovered(c, &r.Target)
		}
	}
	return r
}

// askedSubject finds the target. A Machine of the same name is not the one that was meant.
func (l *Ledger) askedSubject(a Asked) (x Subject, found bool) {
	if a.Machine != "" {
		if m := l.MachineIn(a.MachineAPI, a.Namespace, a.Machine); m != nil && m.UID == a.MachineUID {
			return l.w.machineSubject(m), true
		}
	}
	return l.askedNode(a)
}

// askedNode finds the Node of the target.
func (l *Ledger) askedNode(a Asked) (x Subject, found bool) {
	if n := l.w.nodes[a.Node]; n != nil {
		return l.w.nodeSubject(n), true
	}
	return x, false
}

// hasRecovered reports whether only the requests of a check keep a target from being
// healthy. The Cluster API and OpenShift do not count them.
func hasRecovered(c *Check, t *TargetReport) bool {
	return t.Verdict == Healthy || c.family().escalates() && t.Verdict == Indeterminate && t.Reason == reason.UnderRemediation
}
