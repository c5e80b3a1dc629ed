package engine

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/fenced/fenced/internal/admit"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/request"
	"github.com/fenced/fenced/internal/times"
)

// Requests writes to the remediation requests of one cluster. Each write concerns only the
// object with the UID of the request; one that is gone is no error.
type Requests interface {
	admit.Requests
	// RemoveFinalizer removes the finalizer that was set as heldBy says; not one that was set anew
	// since. It is idempotent.
	RemoveFinalizer(ctx context.Context, q remediate.Request, heldBy string) error
	// Report writes what differs in the status.
	Report(ctx context.Context, q remediate.Request, s request.Status) error
	// ClearStale removes the annotation of a Machine whose Node is Ready without it, unless
	// another remediator may have begun. It says whether it removed one.
	ClearStale(ctx context.Context, t remediate.Target) (removed bool, err error)
}

// maxRequestWrites is how many requests are written to in one round. The others are first in
// the next one.
const maxRequestWrites = 50

// requestWriter tells the remediation requests what became of them, and lets go of those that
// need no finalizer any more. It has its own goroutine, so that no run waits for it. What it
// writes follows from the runs and the requests, so a restart loses nothing.
type requestWriter struct {
	c       *clusterParts
	written map[remediate.Request]toldRequest
	// unproven: in the last round there were requests for which the ledger was too old.
	unproven bool
}

// toldRequest is what one request was told last.
type toldRequest struct {
	status request.Status
	at     time.Time
	next   time.Time // no write before
	failed times.Backoff
	// cleared counts each removal of an annotation as a failure. Who sets it again and again does
	// not make fenced write as often.
	cleared times.Backoff
}

// requestAgain is how long a status counts as written. Somebody else may have overwritten it.
const requestAgain = 10 * time.Minute

func (w *requestWriter) run(ctx context.Context) error {
	tick, round := time.NewTicker(gateRound), time.NewTimer(0)
	defer tick.Stop()
	defer round.Stop()
	var last time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case r := <-w.c.runsToTell:
			w.tell(ctx, r.run, time.Now())
			close(r.done)
			continue
		case <-w.c.requestsChanged:
			round.Reset(max(0, time.Until(last.Add(requestRound))))
			continue
		case <-round.C:
		case <-tick.C:
			if w.unproven {
				w.c.admit.Wake() // the next decision has what was read since
			}
		}
		last = time.Now()
		if due := w.writeAll(ctx, last); !due.IsZero() {
			round.Reset(max(requestRound, time.Until(due)))
		}
	}
}

const (
	// gateRound is how often the requests are looked at although nothing was decided.
	gateRound = 2 * time.Second
	// requestRound is the time between two looks at them, however much changes.
	requestRound = 250 * time.Millisecond
	// requestEvery is the least time between two writes to one request: with a round after it, the status
	// follows each step within a second.
	requestEvery = 700 * time.Millisecond
)

// mayWrite says whether this instance writes to requests: the one that acts does.
func (w *requestWriter) mayWrite(now time.Time) bool {
	return w.c.lead.WhyNotAct(now) == "" && w.c.e.stop.Paused(w.c.opt.Name) == ""
}

// tell writes to the requests of one run, as soon as an earlier failure allows it.
func (w *requestWriter) tell(ctx context.Context, run string, now time.Time) {
	if !w.mayWrite(now) {
		return
	}
	for _, s := range w.c.admit.Requested.States(now) {
		told := w.written[s.Ref]
		if s.Status.Run == run && (!told.failed.Failing() || !now.Before(told.next)) && w.needsWrite(s, told, now) {
			w.written[s.Ref] = w.write(ctx, s, told, now)
		}
	}
}

// writeAll writes to every request that needs it. It returns when it may write to those that it has left out; zero:
// there are none.
func (w *requestWriter) writeAll(ctx context.Context, now time.Time) (due time.Time) {
	if !w.mayWrite(now) {
		return time.Time{}
	}
	there, writes := map[remediate.Request]bool{}, 0
	w.unproven = false
	for _, s := range w.inTurn(w.c.admit.Requested.States(now)) {
		there[s.Ref] = true
		w.unproven = w.unproven || s.Unproven
		told := w.written[s.Ref]
		switch {
		case ctx.Err() != nil, w.c.lead.WhyNotAct(time.Now()) != "", !w.needsWrite(s, told, now):
		case now.Before(told.next):
			due = times.Sooner(due, told.next)
		case writes == maxRequestWrites:
			due = times.Sooner(due, now.Add(requestEvery))
		default:
			writes++
			w.written[s.Ref] = w.write(ctx, s, told, now)
		}
	}
	maps.DeleteFunc(w.written, func(q remediate.Request, told toldRequest) bool {
		return !there[q] && (!told.cleared.Failing() || now.Sub(told.next) > requestAgain)
	})
	return due
}

// inTurn sorts requests: those with a run, which the limits bound, before the others, and of each the one that was
// written to longest ago first. Whoever changes many requests all the time keeps no other one waiting. // L1
func (w *requestWriter) inTurn(list []admit.RequestState) []admit.RequestState {
	slices.SortStableFunc(list, func(a, b admit.RequestState) int {
		switch hasRun := a.Status.Run != ""; {
		case hasRun == (b.Status.Run != ""):
			return w.written[a.Ref].at.Compare(w.written[b.Ref].at)
		case hasRun:
			return -1
		}
		return 1
	})
	return list
}

// needsWrite says whether there is something to write. A cluster that is only observed is told
// nothing, but what was held is let go.
func (w *requestWriter) needsWrite(s admit.RequestState, told toldRequest, now time.Time) bool {
	if s.Starting || s.Unproven {
		return false
	}
	release := s.HasFinalizer && !s.Status.KeepFinalizer
	if !w.c.admit.MayBegin() || isAnnotation(s) {
		return release || s.Stale && w.c.admit.MayBegin()
	}
	if s.Status.Answered {
		return release
	}
	return release || s.HoldFor != "" || !reflect.DeepEqual(told.status, s.Status) || now.Sub(told.at) > requestAgain
}

// isAnnotation says whether a request is an annotation, which has no status.
func isAnnotation(s admit.RequestState) bool { return s.Ref.Kind == policy.MachineRequestKind }

// write writes to one request. It returns what was told, or the last with a backoff after an
// error.
func (w *requestWriter) write(ctx context.Context, s admit.RequestState, last toldRequest, now time.Time) toldRequest {
	var errs []error
	if s.Status.Lost && !last.status.Lost {
		w.c.emit(event.Event{Type: event.Failed, Node: s.Target.Node, Message: s.Ref.Kind + " " + s.Ref.Namespace + "/" + s.Ref.Name + ": " + s.Status.LastError})
	}
	if s.HasFinalizer && !s.Status.KeepFinalizer { // before the phase: whoever reads that nothing more is done may delete the request
		errs = append(errs, w.c.opt.Requests.RemoveFinalizer(ctx, s.Ref, s.HeldBy))
	}
	if s.HoldFor != "" && w.c.admit.MayBegin() { // before the run switches the host off again, for this request: it has the writer tell that
		errs = append(errs, w.c.opt.Requests.SetFinalizer(ctx, s.Ref, s.HoldFor))
	}
	removed := false
	switch {
	case isAnnotation(s):
		var err error
		removed, err = w.c.opt.Requests.ClearStale(ctx, s.Target)
		errs = append(errs, err)
	case w.c.admit.MayBegin() && !s.Status.Answered:
		errs = append(errs, w.c.opt.Requests.Report(ctx, s.Ref, s.Status))
	}
	err := errors.Join(errs...)
	switch {
	case removed:
		cleared := last.cleared.After(now, writeRetry, writeRetryMax)
		return toldRequest{at: now, next: cleared.Next, cleared: cleared}
	case err == nil || ctx.Err() != nil:
		return toldRequest{status: s.Status, at: now, next: now.Add(requestEvery), cleared: last.cleared}
	}
	if !last.failed.Failing() { // reported once, until a write succeeds
		w.c.emit(event.Event{Type: event.Failed, Node: s.Target.Node, Message: "write to " + s.Ref.Kind + " " + s.Ref.Namespace + "/" + s.Ref.Name + ", which is tried again: " + err.Error()})
	}
	last.status.Lost = s.Status.Lost // reported
	last.failed = last.failed.After(now, writeRetry, writeRetryMax)
	last.next = last.failed.Next
	return last
}
