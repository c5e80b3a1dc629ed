package policy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/reason"
)

// rungs are the templates of the check in the order in which they are tried. A
// check with one template has one rung that never times out.
func (c *Check) rungs() []Escalation {
	if c.Template != nil {
		return []Escalation{{Template: *c.Template}}
	}
	return c.Escalation
}

// escalate finds the template that an unhealthy Node's request is to be made
// from, and refuses when it has been made, or when none is left.
func (t *TargetReport) escalate(c *Check, x *Subject, now time.Time) {
	if x.Node.Deleting {
		t.refuse(reason.Deleting)
	}
	if x.Node.rolling() {
		t.refuse(reason.ClusterUpgrading)
	}
	if q := c.strangeRequest(x); q != nil {
		// Another check, a person or another controller remedies it already; what
		// is not ours is never touched, nor is a second remediator started.
		t.refuse(reason.AlreadyRequested)
		t.Message += fmt.Sprintf("; %s %s exists and is not this check's", q.Kind, q.key())
		return
	}
	own := c.ownRequests(x)
	for _, rung := range c.rungs() {
		made := latest(own, &rung.Template)
		ends, over := rung.over(made, c.Tried[x.Node.Name], now)
		if over {
			continue
		}
		t.Template = &rung.Template
		switch {
		case made != nil:
			t.refuse(reason.AlreadyRequested)
			t.Message += fmt.Sprintf("; %s %s has been made", made.Kind, made.key())
			t.waitAtMost(ends, now)
		case c.Template == nil:
			t.Message += fmt.Sprintf("; next is %s %s", rung.Template.Kind, key(rung.Template.Namespace, rung.Template.Name))
		}
		return
	}
	t.refuse(reason.NoTemplateLeft)
	t.Message += "; every template was tried"
}

// over says whether this rung was tried in vain: its request timed out or
// failed. Else ends is when the request will time out; zero is never.
func (e *Escalation) over(made *Request, tried []Attempt, now time.Time) (ends time.Time, over bool) {
	if e.Timeout == 0 {
		return time.Time{}, false
	}
	started := time.Time{}
	for _, a := range tried {
		if !e.Template.makes(a.APIVersion, a.Kind, a.TemplateName) {
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
	if !made.TimedOut.IsZero() || made.failed() {
		return time.Time{}, true
	}
	if !made.Created.IsZero() {
		started = made.Created
	}
	if started.IsZero() {
		return time.Time{}, false // without a clock it never times out
	}
	return deadline(started, e.Timeout), expired(started, e.Timeout, now)
}

// makes says whether requests of this kind come from the template. A request
// that does not name its template is any one's of its kind.
func (p *Template) makes(apiVersion, kind, template string) bool {
	return group(apiVersion) == group(p.APIVersion) && kind == strings.TrimSuffix(p.Kind, "Template") &&
		(template == "" || template == p.Name)
}

// failed: the remediator says that it could not help, and asks for the next.
func (r *Request) failed() bool {
	return slices.ContainsFunc(r.Conditions, func(c Condition) bool { return c.Type == succeededCondition && c.Status == "False" })
}

// madeRequest says whether the check made the request: it owns it, and the
// request comes from one of its templates.
func (c *Check) madeRequest(r *Request) bool {
	return r.ownedBy(c) && slices.ContainsFunc(c.rungs(), func(e Escalation) bool {
		return e.Template.makes(r.APIVersion, r.Kind, r.TemplateName)
	})
}

// ownedBy knows the owner by kind and name, as the lineage does. A UID that
// differs belongs to a check of the same name that was deleted.
func (r *Request) ownedBy(c *Check) bool {
	return slices.ContainsFunc(r.Owners, func(o Owner) bool {
		return o.Kind == c.Kind && o.Name == c.Name && (o.UID == c.UID || o.UID == "" || c.UID == "")
	})
}

// strangeRequest is the first request for the target that the check did not make.
func (c *Check) strangeRequest(x *Subject) *Request {
	var first *Request
	for _, q := range x.Requests {
		if !c.madeRequest(q) && (first == nil || byRequest(q, first) < 0) {
			first = q
		}
	}
	return first
}

// latest is the youngest of the requests that come from the template.
func latest(own []*Request, p *Template) *Request {
	var found *Request
	for _, q := range own {
		if p.makes(q.APIVersion, q.Kind, q.TemplateName) && (found == nil || q.Created.After(found.Created)) {
			found = q
		}
	}
	return found
}

// waitAtMost notes that something changes at due, unless something does before.
func (t *TargetReport) waitAtMost(due, now time.Time) {
	if !due.IsZero() && (t.Due.IsZero() || due.Before(t.Due)) {
		t.waitUntil(due, now)
	}
}
