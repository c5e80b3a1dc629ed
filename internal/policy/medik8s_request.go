package policy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/reason"
)

// rungs are the templates of the check in the order in which they are tried. A
// check with a single template has one step that never times out.
func (c *Check) rungs() []Escalation {
	if c.Template != nil {
		return []Escalation{{Template: *c.Template}}
	}
	return c.Escalation
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

// hasFailed reports whether the remediator gave up and asks for the next one.
func (r *Request) hasFailed() bool {
	return slices.ContainsFunc(r.Conditions, func(c Condition) bool { return c.Type == succeededCondition && c.Status == "False" })
}

// madeRequest reports whether the check made the request: it owns the request,
// and the request comes from one of its templates.
func (c *Check) madeRequest(r *Request) bool {
	return r.ownedBy(c) && slices.ContainsFunc(c.rungs(), func(e Escalation) bool {
		return e.Template.isSourceOf(r.APIVersion, r.Kind, r.TemplateName)
	})
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

// waitAtMost records that the result changes at due, unless it changes earlier.
func (t *TargetReport) waitAtMost(due, now time.Time) {
	if !due.IsZero() && (t.Due.IsZero() || due.Before(t.Due)) {
		t.waitUntil(due, now)
	}
}
