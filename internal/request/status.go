// Package request says what a remediation request is told about its run: phase, conditions, and
// whether its finalizer must stay. It is pure.
//
// The first three conditions are those that medik8s' NodeHealthCheck reads. The Cluster API reads none; it
// creates and deletes the request. The others say the phase to whoever knows nothing of the kind (kstatus).
package request

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
)

// The phases of a request.
const (
	Pending   = "Pending"             // no run has begun; the message says what it waits for
	Running   = "Running"             // a run is under way, or rests before it goes on
	Held      = "Held"                // the run needs a person
	Succeeded = policy.PhaseSucceeded // nothing more will be done
	Failed    = policy.PhaseFailed    // no run will begin any more
)

// The types of the conditions.
const (
	Processing        = "Processing"
	SucceededType     = "Succeeded"
	PermanentDeletion = "PermanentNodeDeletionExpected"
	Ready             = "Ready"       // nothing more has to be done
	Reconciling       = "Reconciling" // fenced goes on by itself
	Stalled           = "Stalled"     // a person is needed, or the request has failed
)

// Status is what is written into the status of a request.
type Status struct {
	Phase string
	// Generation is that of the request whose spec fenced has read.
	Generation int64
	Run        string // ID of the run; "" if there was none
	Retries    int    // power cycles after the first
	Started    time.Time
	LastError  string // why the run has stopped; "" if it has not
	Conditions []Condition
	// KeepFinalizer: the finalizer stays, because the host may be off or the run goes on.
	KeepFinalizer bool
	// Lost: nobody knows the run that was to bring the host back, and nothing else does that.
	Lost bool
	// Answered: the request has its final phase already. Nothing is written into it any more.
	Answered bool
}

// Condition is one condition of a request.
type Condition struct{ Type, Status, Reason, Message string }

// Refusal says why no run has begun; the zero value: nothing refuses it.
type Refusal struct {
	Reason  reason.Code
	Message string
}

// IsDone says whether a run has carried out its request: none follows for the same one.
func IsDone(r *remediate.Run) bool {
	return r != nil && (r.Step == remediate.Done || r.Step == remediate.Reprovisioned)
}

// Of returns the status of a request. r is its newest run, or the open run on its target; nil if
// there is none. over: r began for a request that asks for nothing any more. refused says why the target has no run.
// unknown: a run that was lost with the state may have set the finalizer, and no run has touched the host since.
func Of(q policy.Requested, r *remediate.Run, over bool, refused Refusal, unknown bool) Status {
	s := Status{Phase: Pending, Generation: q.Request.Generation}
	if r != nil {
		s.Run, s.Retries, s.Started = r.ID, max(0, r.Attempt-1), r.Began()
		s.LastError = lastError(r)
		s.KeepFinalizer = holds(q.Request, r)
	}
	t, open := &q.Target, r != nil && r.Open()
	if p := q.Request.Power; p != nil && p.Answered() && !goesOn(q.Request, r) {
		s.Phase, s.Answered = p.Phase, true
		return s
	}
	unknown = t.Verdict != policy.Healthy && (unknown || r == nil && isHeldElsewhere(q.Request))
	s.KeepFinalizer = s.KeepFinalizer || unknown
	if unknown && !open && isLost(q) {
		s.Run, s.Lost, s.LastError = cmp.Or(q.Request.Power.Run, q.Request.Power.HeldFor), true, lost
		return s.set(Held, "Unknown", "False", "RunUnknown", lost)
	}
	settled := !unknown && isSettled(q.Request, r, over)
	switch {
	case r != nil && r.Step == remediate.Done:
		return s.ended(Succeeded, "True", "Remediated", "the host was power-cycled and its Node is Ready")
	case r != nil && r.Step == remediate.Reprovisioned:
		return s.ended(Succeeded, "True", "MachineReplaced", "the Machine is being replaced").permanent()
	case r != nil && r.Step == remediate.Held && !settled: // the host may be off
		return s.set(Held, "True", "False", string(cmp.Or(r.Reason, "Held")), s.LastError)
	case open && !settled && isGivenUp(q.Request): // the host may be off // I22
		return s.set(Running, "True", "Unknown", string(reason.RequestTimeout), givenUp+", and the run on its target is not over: "+string(r.Step))
	case isGivenUp(q.Request):
		return s.ended(Failed, "False", string(reason.RequestTimeout), givenUp)
	case t.Reason == reason.RequestTimeout && !open:
		return s.ended(Failed, "False", string(reason.RequestTimeout), t.Message)
	case r != nil && r.Step == remediate.Held:
		return s.set(Held, "False", "False", string(cmp.Or(r.Reason, "Held")), s.LastError)
	case open:
		return s.set(Running, "True", "Unknown", string(r.Step), fmt.Sprintf("%s, attempt %d", r.Step, r.Attempt))
	case t.Verdict == policy.Healthy:
		return s.ended(Succeeded, "True", string(reason.Recovered), "the Node is Ready; nothing was switched")
	}
	why := cmp.Or(refused, Refusal{t.Reason, t.Message})
	if len(t.Refusals) > 0 {
		why = Refusal{t.Refusals[0], t.Message}
	}
	return s.set(Pending, "Unknown", "Unknown", string(cmp.Or(why.Reason, "Waiting")), why.Message) // a run may begin at any moment
}

const givenUp = "the check that made the request has given up on it"

// IsOver says whether a request asks for nothing any more.
func IsOver(q *policy.Request) bool { return isGivenUp(q) || q.Deleting }

// isGivenUp says whether the check of a request may ask another remediator by now.
func isGivenUp(q *policy.Request) bool { return !q.TimedOut.IsZero() }

// isSettled says whether fenced switches nothing more for a request, by what the run has saved. A
// run that rests because nobody asks for it goes on if somebody does: neither this request nor the one for which the
// run began does so any more once it is given up, deleted or gone. // I22
func isSettled(q *policy.Request, r *remediate.Run, over bool) bool {
	switch {
	case r == nil:
		return true
	case r.Step == remediate.Waiting:
		return r.Settled() && over && IsOver(q)
	}
	return r.Settled()
}

const lost = "fenced does not know the run that held this request, or what it did last: its state was lost or is an older one, or another installation began it. " +
	"The host may be off: see that it is on. When the BMC health check reads every device of the host On, or its Node is Ready on the same machine, fenced removes the finalizer if it has set it; " +
	"otherwise remove the finalizer fenced.io/power with kubectl"

// isLost says whether a person is told about a run that nobody knows. Nothing is lost yet while the
// request may begin another run, which brings the host back, and no phase says that one had begun. The
// phase is written after the run is saved: it may be missing. // I20
func isLost(q policy.Requested) bool {
	phase := q.Request.Power.Phase
	return phase == Running || phase == Held || q.Request.Deleting || isGivenUp(q.Request) || q.Target.Reason == reason.RequestTimeout
}

// isHeldElsewhere says whether a request waits for somebody who may not exist any more.
func isHeldElsewhere(q *policy.Request) bool {
	return q.Power != nil && q.Power.FinalizerElsewhere && q.Deleting
}

// goesOn says whether a run of the request itself is open.
func goesOn(q *policy.Request, r *remediate.Run) bool {
	return r != nil && r.Open() && r.Request != nil && r.Request.Kind == q.Kind && r.Request.UID == q.UID
}

// holds says whether the finalizer must stay. A request that somebody deletes is released once
// the host is back On: what follows, the labels of the Node, needs no request. Where an outlet
// switched the host off, only its Node shows that: the host's own BMC may have been skipped on
// the way back, and the host still be off. A run may also come to steps 4 and 5 because its Node
// registered, before anything has read the host On: it may be off again by then. // I20
//
// It is released, too, if its run rests and has never touched the host, or rests with the host On, which no outlet
// switched off, because there is no other attempt: without the request it does not go on.
func holds(q *policy.Request, r *remediate.Run) bool {
	back := r.ReadOn() && (r.Step == remediate.RestoreNode || r.Step == remediate.AwaitNode && r.OffLevel == 0)
	noMore := r.OffLevel == 0 && (r.Reason == reason.Withdrawn || r.Reason == reason.AttemptsExhausted)
	return r.Open() && !(q.Deleting && (back || r.Step.Idle() && (noMore || !r.TouchedHost())))
}

// Holder is what the annotation beside a finalizer says of the run for which it was set, for the case that
// the run is lost with the state: its ID and the system UUID of the machine that it may have switched off.
func Holder(r remediate.Run) string {
	return r.ID + "/" + cmp.Or(r.Target.SystemUUID, r.Target.ReportedUUID)
}

// ParseHolder reads what Holder wrote. An older finalizer names no machine.
func ParseHolder(text string) (run, machine string) {
	run, machine, _ = strings.Cut(text, "/")
	return run, machine
}

// set fills in phase and conditions.
func (s Status) set(phase, processing, succeeded, why, message string) Status {
	s.Phase = phase
	s.Conditions = []Condition{
		{Processing, processing, why, message},
		{SucceededType, succeeded, why, message},
		{PermanentDeletion, "False", "NodeReturns", "the Node registers again under its name"},
		{Ready, isTrue(phase == Succeeded), why, message},
		{Reconciling, isTrue(phase == Pending || phase == Running), why, message},
		{Stalled, isTrue(phase == Held || phase == Failed), why, message},
	}
	return s
}

func isTrue(holds bool) string {
	if holds {
		return "True"
	}
	return "False"
}

// ended is set for a request for which nothing more is done.
func (s Status) ended(phase, succeeded, why, message string) Status {
	return s.set(phase, "False", succeeded, why, message)
}

// IsPermanent says whether no Node of this name will come back.
func (s Status) IsPermanent() bool {
	return slices.ContainsFunc(s.Conditions, func(c Condition) bool { return c.Type == PermanentDeletion && c.Status == "True" })
}

// permanent says that no Node of this name will come back.
func (s Status) permanent() Status {
	s.Conditions[2] = Condition{PermanentDeletion, "True", "MachineReplaced", "another Machine replaces this one"}
	return s
}

// lastError names the reason of a run. Its note may hold what a BMC reports, so that is left to
// fencectl.
func lastError(r *remediate.Run) string {
	if r.Reason == "" {
		return ""
	}
	return fmt.Sprintf("%s; run fencectl timeline %s for the whole history", r.Reason, r.ID)
}
