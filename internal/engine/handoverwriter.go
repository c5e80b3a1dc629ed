package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/fenced/fenced/internal/admit"
	"github.com/fenced/fenced/internal/escalate"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
)

// Handovers makes the requests for other remediators in one cluster. Each write concerns only an
// object that fenced made; one that is gone is no error.
type Handovers interface {
	// Missing says why nobody can carry out requests from a template; "" if somebody may. An error
	// means that this is not known.
	Missing(ctx context.Context, check *policy.Check, t policy.Template) (why string, err error)
	// Create makes the request for a target. An error is a *reason.Refusal where a rule forbids it.
	// order is its place in an escalation, nil if there is none.
	Create(ctx context.Context, check *policy.Check, t remediate.Target, template policy.Template, order *int, controlPlane bool) error
	// TimeOut tells the remediator of a request to stop.
	TimeOut(ctx context.Context, q *policy.Request) error
	// Delay notes on a request that its target has recovered now.
	Delay(ctx context.Context, q *policy.Request) error
	// Delete deletes a request, if it has not changed since it was seen.
	Delete(ctx context.Context, q *policy.Request) error
}

const (
	// maxHandovers is how many requests are written in one round.
	maxHandovers = 20
	// templatesEvery is how often the templates of the checks are looked for; at most maxMakers
	// checks in one round.
	templatesEvery = 15 * time.Second
	maxMakers      = 50
)

// handoverWriter makes, changes and deletes the requests for other remediators. It has its own
// goroutine: no decision and no run waits for it. What it does follows from the checks and the
// requests that exist, so a restart loses nothing.
type handoverWriter struct {
	c *cluster
	// failed is when a step for a target that failed is tried again, by what it is.
	failed map[string]handoverFailure
	// looked is when the templates were looked for; missing is what was found.
	looked  time.Time
	missing map[string]string
}

type handoverFailure struct {
	next    time.Time
	backoff time.Duration
}

// notifyHandoverWriter makes the writer look for changes.
func (c *cluster) notifyHandoverWriter() {
	select {
	case c.handoversChanged <- struct{}{}:
	default:
	}
}

func (w *handoverWriter) run(ctx context.Context) error {
	tick := time.NewTicker(gateRound)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.c.handoversChanged:
		case <-tick.C:
		}
		w.lookForTemplates(ctx, time.Now())
		w.doAll(ctx, time.Now())
	}
}

// lookForTemplates looks for the templates of all checks whose requests fenced makes. What cannot
// be read keeps its last answer.
func (w *handoverWriter) lookForTemplates(ctx context.Context, now time.Time) {
	if now.Sub(w.looked) < templatesEvery {
		return
	}
	w.looked = now
	found := map[string]string{}
	for i, check := range w.c.admit.Handovers.Makers() {
		if i == maxMakers || ctx.Err() != nil {
			break
		}
		if why := w.missingOf(ctx, &check); why != "" {
			found[check.Mark()] = why
		}
	}
	w.missing = found
	w.c.admit.Handovers.SetMissing(found, now)
}

// missingOf says why nobody can carry out the requests of a check.
func (w *handoverWriter) missingOf(ctx context.Context, check *policy.Check) string {
	for _, t := range check.Templates() {
		if t.IsOwn() && len(check.Escalation) == 0 {
			continue // no request is made from it
		}
		why, err := w.c.opt.Handovers.Missing(ctx, check, t)
		if err != nil {
			return w.missing[check.Mark()]
		}
		if why != "" {
			return why
		}
	}
	return ""
}

// doAll does the next step of every target.
func (w *handoverWriter) doAll(ctx context.Context, now time.Time) {
	if w.c.lead.WhyNotAct(now) != "" || w.c.e.stop.Paused(w.c.opt.Name) != "" || !w.c.admit.Armed() {
		return
	}
	leadership := w.c.lead.Enter()
	if leadership == nil {
		return
	}
	defer leadership.Leave()
	ctx, cancel, whyNot := w.c.lead.Bound(ctx, true)
	if whyNot != "" {
		return
	}
	defer cancel()
	seen, done := map[string]bool{}, 0
	for _, o := range w.c.admit.Handovers.Steps(now) {
		key := keyOf(o)
		seen[key] = true
		if ctx.Err() != nil || done == maxHandovers || now.Before(w.failed[key].next) {
			continue
		}
		if o.Do == escalate.Wait {
			w.c.admit.Handovers.Note(o, reason.Contested, o.Why, time.Now(), time.Now().Add(2*gateRound))
			continue
		}
		done++
		w.do(ctx, o, key)
	}
	for key := range w.failed {
		if !seen[key] {
			delete(w.failed, key)
		}
	}
}

// do does one step. After an error it is tried again later; it is told once.
func (w *handoverWriter) do(ctx context.Context, o admit.Handover, key string) {
	err := w.write(ctx, o)
	now := time.Now()
	if err == nil {
		if o.Do != escalate.Create { // that was told before
			w.c.emit(w.event(o))
		}
		w.c.admit.Handovers.Note(o, "", "", now, now)
		w.failed[key] = handoverFailure{next: now.Add(writeRetry)} // until the watch shows it
		return
	}
	if ctx.Err() != nil {
		return
	}
	last := w.failed[key]
	code := reason.RequestFailed
	if r, ok := reason.AsRefusal(err); ok {
		code = r.Reason
	}
	if last.backoff == 0 {
		w.c.emit(event.Event{Type: event.Failed, Node: o.Target.Node, Machine: machineOnly(o), Reason: code,
			Message: fmt.Sprintf("%s for check %s, which is tried again: %v", what(o), o.Check.Key(), err)})
	}
	last.backoff = min(max(2*last.backoff, writeRetry), writeRetryMax)
	last.next = now.Add(last.backoff)
	w.failed[key] = last
	w.c.admit.Handovers.Note(o, code, err.Error(), now, last.next.Add(gateRound))
}

// write makes one change in the cluster. Before another remediator is asked, that is on record. // I24
func (w *handoverWriter) write(ctx context.Context, o admit.Handover) error {
	switch o.Do {
	case escalate.Create:
		if err := w.refuseBesideController(ctx, o.Check); err != nil {
			return err
		}
		if err := w.c.admit.Handovers.Reserve(ctx, o); err != nil {
			return err
		}
		ev, err := w.c.admit.Handovers.Record(w.event(o))
		if err != nil {
			return fmt.Errorf("write the request to the audit log before it is made: %w", err)
		}
		w.c.emit(ev)
		return w.c.opt.Handovers.Create(ctx, o.Check, o.Run.Target, o.Template, o.Order, o.Run.ControlPlane)
	case escalate.TimeOut:
		return w.c.opt.Handovers.TimeOut(ctx, o.Request)
	case escalate.Delay:
		return w.c.opt.Handovers.Delay(ctx, o.Request)
	case escalate.Delete:
		return w.c.opt.Handovers.Delete(ctx, o.Request)
	}
	return nil
}

// refuseBesideController refuses to make the requests of a NodeHealthCheck while its own
// controller is alive: that makes them. The other checks are paused for theirs. // I22
func (w *handoverWriter) refuseBesideController(ctx context.Context, check *policy.Check) error {
	if check.Kind != policy.NodeHealthCheckKind || check.UID == "" {
		return nil
	}
	alive, err := w.c.opt.Checks.ControllerAlive(ctx, check.ID())
	if err != nil {
		return fmt.Errorf("ask whether the controller of NodeHealthCheck %s is alive: %w", check.Name, err)
	}
	if alive != remediate.No {
		return &reason.Refusal{Reason: reason.Contested, Message: "the controller of NodeHealthCheck " + check.Name + " is alive and makes its requests; " +
			"stop it, or remove the annotation fenced.io/evaluator"}
	}
	return nil
}

// event tells a step.
func (w *handoverWriter) event(o admit.Handover) event.Event {
	message := what(o)
	if o.Target.Trigger != "" {
		message += ": " + o.Target.Trigger
	}
	return event.Event{Type: event.Requested, Node: o.Target.Node, Machine: machineOnly(o), Check: admit.CheckName(o.Check), Message: message}
}

// what names a step for people.
func what(o admit.Handover) string {
	switch o.Do {
	case escalate.Create:
		return fmt.Sprintf("ask another remediator, by an object from %s %s", o.Template.Kind, o.Template.Name)
	case escalate.TimeOut:
		return fmt.Sprintf("give up on %s %s/%s", o.Request.Kind, o.Request.Namespace, o.Request.Name)
	case escalate.Delay:
		return fmt.Sprintf("note the recovery on %s %s/%s", o.Request.Kind, o.Request.Namespace, o.Request.Name)
	}
	return fmt.Sprintf("delete %s %s/%s", o.Request.Kind, o.Request.Namespace, o.Request.Name)
}

// keyOf names a step.
func keyOf(o admit.Handover) string {
	key := o.Check.Mark() + "|" + o.Target.Subject() + "|" + string(o.Do) + "|" + o.Template.Kind + "|" + o.Template.Name
	if o.Request != nil {
		key += "|" + o.Request.UID
	}
	return key
}

// machineOnly is the Machine of a target without a Node.
func machineOnly(o admit.Handover) string {
	if o.Target.Node != "" {
		return ""
	}
	return o.Target.Machine
}
