package sim

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/request"
	"github.com/fenced/fenced/test/fake"
)

// handovers makes the requests for other remediators for one fenced; it implements escalate.Objects.
// A call may be lost, its answer too, and a creation may be carried out after its client has gone.
type handovers struct{ kube }

// lateAtMost is how long after a creation was sent it may be carried out.
const lateAtMost = 55 * time.Second

var errNotHandedOver = errors.New("the check is not handed over any more")

// Missing implements escalate.Objects.
func (h handovers) Missing(ctx context.Context, _ *policy.Check, _ policy.Template) (why string, err error) {
	err = h.exchange(ctx, "template", func(s *fake.State) error { why = s.TemplateMissing; return nil })
	return why, err
}

// handoverDraft is what a request.Draft is made from.
type handoverDraft struct {
	h      handovers
	target remediate.Target
	node   string
	owner  policy.Owner
	object request.Object
}

// Prepare implements escalate.Objects.
func (h handovers) Prepare(ctx context.Context, check *policy.Check, t remediate.Target, from policy.Template, _ bool) (request.Draft, error) {
	d := handoverDraft{h: h, target: t, owner: policy.Owner{Kind: "Machine", Name: t.Machine, UID: t.MachineUID}, object: request.Object{
		APIVersion: from.APIVersion, Kind: strings.TrimSuffix(from.Kind, "Template"), Namespace: fake.Namespace, Name: t.Machine, Template: from.Name}}
	if check.SelectsNodes {
		d.object.Name, d.node, d.owner = t.Node, t.Node, policy.Owner{Kind: check.Kind, Name: check.Name, UID: check.UID}
	}
	return request.Draft{Object: d.object, Create: d.create}, h.exchange(ctx, "prepare", func(s *fake.State) error {
		if h.inc.i.w.checkGone || s.TemplateMissing != "" {
			return errNotHandedOver
		}
		return nil
	})
}

func (d handoverDraft) create(ctx context.Context, o request.Object, check string) (uid string, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	w, node := d.h.inc.i.w, hostNode(d.target)
	w.do(func() {
		w.note(node, "%s: make %s from %s", d.h.inc, o, o.Template)
		w.auditAsking(d.h.inc, node, o)
	})
	if err := d.h.request(ctx, "make"); errors.Is(err, errForbidden) {
		return "", errors.Join(err, request.ErrNotMade)
	} else if err != nil {
		return "", err
	}
	var late time.Duration
	w.do(func() {
		if w.dice.Float64() < w.slow() {
			late = between(w.dice, time.Second, lateAtMost)
			w.fault("request-made-late", node, "after %s", late)
		}
	})
	if late > 0 {
		w.after(late, func() { w.do(func() { _, _ = w.makeRequest(d, o, check) }) })
		_ = sleep(ctx, requestTimeout)
		return "", errLost
	}
	w.do(func() { uid, err = w.makeRequest(d, o, check) })
	if lost := d.h.answer(ctx, "make"); lost != nil {
		return "", lost
	}
	return uid, err
}

// hostNode is the Node, or what the Node of a Machine is called.
func hostNode(t remediate.Target) string {
	if t.Node == "" {
		return strings.TrimPrefix(t.Machine, "m-")
	}
	return t.Node
}

func otherID(o request.Object) policy.ObjectID {
	return policy.ObjectID{APIVersion: o.APIVersion, Kind: o.Kind, Namespace: o.Namespace, Name: o.Name}
}

// makeRequest is the API server. w.mu is held.
func (w *World) makeRequest(d handoverDraft, o request.Object, check string) (uid string, err error) {
	if q := w.api.Others[otherID(o)]; q != nil {
		if q.MadeBy == o.Mark {
			return q.UID, nil
		}
		return "", fmt.Errorf("%s exists, and fenced did not make it: %w", o, request.ErrNotMade)
	}
	q := w.newOther(o, hostNode(d.target))
	q.NodeName, q.Owners, q.Check, q.MadeBy = d.node, []policy.Owner{d.owner}, check, o.Mark
	w.auditMade(d.h.inc, hostNode(d.target), q)
	w.others.made[q.UID] = made{by: d.h.inc, node: hostNode(d.target), mark: o.Mark, at: time.Now()}
	w.outcome.Actions["requests to others"]++
	w.note(hostNode(d.target), "%s is made for fenced, %s", o, q.UID)
	w.api.PutOther(q)
	return q.UID, nil
}

// newOther is a new request for another remediator, and that remediator. w.mu is held.
func (w *World) newOther(o request.Object, node string) *policy.Request {
	w.others.uids++
	q := &policy.Request{APIVersion: o.APIVersion, Kind: o.Kind, Namespace: o.Namespace, Name: o.Name, UID: fmt.Sprintf("other-%d", w.others.uids),
		Created: time.Now(), TemplateName: o.Template}
	w.others.remediators[q.UID] = w.newRemediator(q.UID, node)
	return q
}

// Read implements escalate.Objects.
func (h handovers) Read(ctx context.Context, o request.Object) (found *policy.Request, err error) {
	err = h.exchange(ctx, "read", func(*fake.State) error { found = h.object(o); return nil })
	return found, err
}

// object is the object of a record, as this fenced reads it. w.mu is held.
func (h handovers) object(o request.Object) *policy.Request {
	w := h.inc.i.w
	q := w.api.Others[otherID(o)]
	if q == nil || !w.defect.OwnsWhateverIsThere && !o.MayBe(q.UID, q.MadeBy) {
		return nil
	}
	c, _ := dated(q, h.inc.i.clock.skew).(*policy.Request)
	if w.defect.OwnsWhateverIsThere {
		c.MadeBy = o.Mark
	}
	return c
}

// TimeOut implements escalate.Objects.
func (h handovers) TimeOut(ctx context.Context, o request.Object) (wrote bool, err error) {
	return h.change(ctx, "give up", o, func(w *World, q *policy.Request) bool {
		if !q.TimedOut.IsZero() {
			return false
		}
		c := *q
		c.TimedOut = h.written()
		w.api.PutOther(&c)
		return true
	})
}

// Delay implements escalate.Objects.
func (h handovers) Delay(ctx context.Context, o request.Object) (wrote bool, err error) {
	return h.change(ctx, "delay", o, func(w *World, q *policy.Request) bool {
		if !q.HealthyDelaySince.IsZero() {
			return false
		}
		c := *q
		c.HealthyDelaySince = h.written()
		w.api.PutOther(&c)
		return true
	})
}

// written is the present time as this fenced writes it, by the API server's clock.
func (h handovers) written() time.Time { return time.Now().Add(-h.inc.i.clock.skew) }

// Delete implements escalate.Objects.
func (h handovers) Delete(ctx context.Context, o request.Object, live *policy.Request) (wrote bool, err error) {
	return h.change(ctx, "delete", o, func(w *World, q *policy.Request) bool {
		if q.Begun != live.Begun || !reflect.DeepEqual(q.Conditions, live.Conditions) {
			return false
		}
		w.auditDeleted(h.inc, q)
		w.deleteOther(q, h.inc.String())
		return true
	})
}

// change changes the object of a record. It returns false if nothing was written.
func (h handovers) change(ctx context.Context, what string, o request.Object, change func(*World, *policy.Request) bool) (wrote bool, err error) {
	w := h.inc.i.w
	w.do(func() {
		if q := w.api.Others[otherID(o)]; q != nil {
			w.note(w.nodeOf(q), "%s: %s %s", h.inc, what, o)
			w.auditStopped(h.inc, w.nodeOf(q), what)
		}
	})
	err = h.exchange(ctx, what, func(*fake.State) error {
		if found := h.object(o); found != nil && found.MadeBy == o.Mark {
			q := w.api.Others[otherID(o)]
			w.auditTouched(h.inc, q, what)
			wrote = change(w, q)
		}
		return nil
	})
	return wrote, err
}

// takeAway deletes a request for somebody other than fenced. w.mu is held.
func (w *World) takeAway(q *policy.Request, by string) {
	if m := w.others.remediators[q.UID]; m != nil {
		m.taken = true
	}
	w.deleteOther(q, by)
}

// deleteOther deletes a request: at once, or when its finalizer is gone. w.mu is held.
func (w *World) deleteOther(q *policy.Request, by string) {
	w.note(w.nodeOf(q), "%s %s is deleted by %s", q.Kind, q.UID, by)
	if m := w.others.remediators[q.UID]; m != nil && m.keeps && q.Begun {
		c := *q
		c.Deleting = true
		w.api.PutOther(&c)
		return
	}
	w.api.DropOther(q)
}

// checks is what one fenced asks and writes about checks; it implements engine.Checks.
type checks struct{ kube }

// ControllerAlive implements engine.Checks.
func (k checks) ControllerAlive(ctx context.Context, _ policy.CheckID) (alive remediate.Answer, err error) {
	w := k.inc.i.w
	err = k.exchange(ctx, "controller", func(*fake.State) error {
		alive = remediate.AnswerOf(!w.defect.SeesNoController && time.Now().Before(w.others.aliveTo))
		return nil
	})
	return alive, err
}

// WriteStatus implements engine.Checks.
func (k checks) WriteStatus(ctx context.Context, _ policy.CheckReport) error {
	return k.inc.call(ctx, "status")
}

// WriteVerdicts implements engine.Checks.
func (k checks) WriteVerdicts(ctx context.Context, _ policy.CheckReport, _ map[string]string) (bool, error) {
	return false, k.inc.call(ctx, "verdicts")
}
