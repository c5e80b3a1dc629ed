package engine

import (
	"context"
	"maps"
	"time"

	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/live"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/times"
)

// Checks writes the results of checks to their cluster, as the controller of their API
// family would.
type Checks interface {
	// ControllerAlive says whether the controller that evaluates checks of this kind in the
	// cluster is alive. It reads without any cache.
	ControllerAlive(ctx context.Context, id policy.CheckID) (remediate.Answer, error)
	// WriteStatus updates the fields that differ in the status of one check.
	WriteStatus(ctx context.Context, r policy.CheckReport) error
	// WriteVerdicts writes the health of a few Machines of one check on them, where the API
	// family has a condition for that. more: it must be called again for others. written is what
	// is known to be on the Machines of this check, by UID; WriteVerdicts keeps it up to date.
	WriteVerdicts(ctx context.Context, r policy.CheckReport, written map[string]string) (more bool, err error)
}

const (
	writeEvery      = time.Second      // between two writes to one check
	writeRetry      = 10 * time.Second // after one that failed, doubled each time
	writeRetryMax   = 5 * time.Minute
	controllerFresh = 15 * time.Second // age of the answer of ControllerAlive
	verdictsFresh   = 5 * time.Minute  // until the targets are compared although no counter has changed
)

// statusWriter writes the results of the checks to their status. It has its own goroutine,
// so that a slow API server never delays a decision.
type statusWriter struct {
	c           *clusterParts
	written     map[checkKey]written
	controllers map[string]controller      // by kind of check
	unread      event.ToldOf[string, bool] // whether the question about a kind failed
}

// checkKey identifies a check, and distinguishes it from a later one of the same name.
type checkKey struct {
	id  policy.CheckID
	uid string
}

// written is what was last written to one check.
type written struct {
	status status
	next   time.Time // no write before
	// again is when the targets are compared although no counter has changed; zero: never.
	again  time.Time
	failed times.Backoff
	// verdicts is what is known to be on the Machines; see Checks.WriteVerdicts.
	verdicts map[string]string
}

// status holds the values that are compared to see whether a write is needed.
type status struct {
	message                             string
	state                               policy.State
	expected, healthy, max, allowedMore int
	allowed                             bool
}

// controller says whether the in-cluster controller of a kind of check is alive.
type controller struct {
	alive remediate.Answer
	at    time.Time
}

func (w *statusWriter) run(ctx context.Context) error {
	live.Repeat(ctx, w.c.checksChanged, func() time.Time { return w.writeChanged(ctx, time.Now()) })
	return nil
}

// writeChanged writes every status that has changed. It returns when to call it again; zero:
// after the next notification.
func (w *statusWriter) writeChanged(ctx context.Context, now time.Time) (due time.Time) {
	if w.c.e.stop.Paused(w.c.opt.Name) != "" {
		return time.Time{} // the end of the pause wakes it
	}
	whyNot := w.c.lead.WhyNotAct(now) // the instance that acts writes
	mayAct := w.c.admit.Armed() && whyNot == ""
	if !mayAct {
		clear(w.written) // somebody else writes meanwhile
		return time.Time{}
	}
	if !w.c.view.IsCurrent() { // time alone makes a Node of an old view unhealthy, and its owner would rather delete that Machine // I16
		return now.Add(controllerFresh)
	}
	found, _ := w.c.model.Objects.Counters()
	w.forget(found)
	for i := range found {
		if ctx.Err() != nil {
			return time.Time{}
		}
		r := &found[i]
		key := checkKey{r.ID(), r.UID}
		last := w.written[key]
		current := status{r.Message, r.State, r.Expected, r.Healthy, r.MaxUnhealthy, r.RemediationsAllowed, r.Allowed}
		switch {
		case !r.HasStatus() || r.UID == "": // the latter: from a file
		case last.status == current && (last.again.IsZero() || now.Before(last.again)):
			due = times.Sooner(due, last.again)
		case now.Before(last.next):
			due = times.Sooner(due, last.next)
		case !w.mayWrite(ctx, r.ID(), now):
			delete(w.written, key) // somebody else writes meanwhile
			due = times.Sooner(due, now.Add(controllerFresh))
		default:
			w.written[key] = w.write(ctx, r, current, last, now)
			due = times.Sooner(times.Sooner(due, w.written[key].next), w.written[key].again)
		}
	}
	return due
}

// forget drops the records about checks that are gone.
func (w *statusWriter) forget(found []policy.CheckReport) {
	there := map[checkKey]bool{}
	for i := range found {
		there[checkKey{found[i].ID(), found[i].UID}] = true
	}
	maps.DeleteFunc(w.written, func(k checkKey, _ written) bool { return !there[k] })
}

// mayWrite says whether no controller in the cluster writes the status of this check: the
// controller is not alive, or the check was handed over to fenced.
func (w *statusWriter) mayWrite(ctx context.Context, id policy.CheckID, now time.Time) bool {
	check := w.c.model.Objects.Check(id)
	if check == nil {
		return false
	}
	if check.Paused && check.Evaluator != "" { // paused for its controller, and handed over to fenced
		return true
	}
	kind := check.APIVersion + " " + check.Kind
	found, ok := w.controllers[kind]
	if !ok || now.Sub(found.at) >= controllerFresh {
		alive, err := w.c.opt.Checks.ControllerAlive(ctx, id)
		if err != nil {
			alive = remediate.CannotTell
		}
		if w.unread.News(kind, err != nil) && ctx.Err() == nil {
			w.c.emit(event.Event{Type: event.Failed, Message: "read whether the controller of " + kind +
				" is alive, without which no status of such checks is written; it is tried again: " + err.Error()})
		}
		found = controller{alive, now}
		w.controllers[kind] = found
	}
	return found.alive == remediate.No
}

// write writes the status of one check. It returns what was written, or last with a backoff
// after an error.
func (w *statusWriter) write(ctx context.Context, r *policy.CheckReport, current status, last written, now time.Time) written {
	if last.verdicts == nil {
		last.verdicts = map[string]string{}
	}
	next := written{status: current, next: now.Add(writeEvery), verdicts: last.verdicts}
	full, hasVerdicts := w.c.withTargets(*r, now)
	err := w.c.opt.Checks.WriteStatus(ctx, full)
	if err == nil && hasVerdicts {
		var more bool
		next.again = now.Add(verdictsFresh)
		if more, err = w.c.opt.Checks.WriteVerdicts(ctx, full, last.verdicts); more {
			next.again = next.next
		}
	}
	if err != nil && ctx.Err() == nil {
		if !last.failed.Failing() { // reported once, until a write succeeds
			w.c.emit(event.Event{Type: event.Failed, Message: "write the status of check " + r.Namespace + "/" + r.Name + ", which is tried again: " + err.Error()})
		}
		last.failed = last.failed.After(now, writeRetry, writeRetryMax)
		last.next = last.failed.Next
		return last
	}
	return next
}

// withTargets adds the targets for the API families whose status lists them. hasVerdicts is
// false if what the check finds may not be written on the Machines, because their Nodes may be
// those of another cluster.
func (c *clusterParts) withTargets(r policy.CheckReport, now time.Time) (full policy.CheckReport, hasVerdicts bool) {
	if r.APIVersion == policy.OpenShiftMachineAPI {
		return r, false
	}
	full, matched, found := c.model.Objects.WithTargets(r.ID(), now)
	if !found {
		return r, false
	}
	return full, matched
}
