// Package escalate decides what fenced does with the remediation requests that it makes in place
// of a check's own controller: which one it creates, when it gives up on one, and when it deletes
// them. It is pure.
//
// Its first rule is that two remediators never work on one target: the request for the next one is
// created only when the one before has stopped, and while no run of fenced works on the target. // I22
package escalate

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/fenced/fenced/internal/policy"
)

// Do is what is to be done next for one target.
type Do string

// What is to be done.
const (
	Nothing Do = ""
	// Create a request from the template.
	Create Do = "Create"
	// TimeOut tells the remediator of a request to stop.
	TimeOut Do = "TimeOut"
	// Delay notes on a request when its target recovered. It is deleted later.
	Delay Do = "Delay"
	// Delete a request.
	Delete Do = "Delete"
	// Wait until the remediator of a request, or a run of fenced, has stopped.
	Wait Do = "Wait"
)

// Step is what is to be done next for one target. One step concerns one request.
type Step struct {
	Do Do
	// Request is the one to change, or to wait for; nil for a wait for a run.
	Request *policy.Request
	// Template is what a request is created from; Order is its place in the escalation, nil if the
	// check has only one template.
	Template policy.Template
	Order    *int
	// Why is what is waited for.
	Why string
}

// Situation is all that a decision depends on.
type Situation struct {
	policy.HandedOver
	// MadeBy names this installation. fenced changes only requests that it made.
	MadeBy string
	// Running: a run of fenced is open on the target.
	Running bool
}

const (
	// NoticeTime is how long after the annotation a remediator that has not begun still may: until
	// then it may not have seen the annotation.
	NoticeTime = 10 * time.Second
	// IgnoredAfter is how long a request may be without any sign of a remediator.
	IgnoredAfter = 5 * time.Minute
)

// Next decides the next step for a target.
func Next(s Situation, now time.Time) Step {
	mine := slices.DeleteFunc(slices.Clone(s.Requests), func(q *policy.Request) bool { return q.MadeBy != s.MadeBy })
	t := &s.Target
	switch {
	case s.State == policy.StateDisabled:
		return deleteFirst(mine, func(*policy.Request) bool { return s.NodeReady })
	case s.State != policy.StateActive:
		return Step{}
	case s.NodeGone:
		return deleteFirst(mine, func(q *policy.Request) bool { return !awaitsNode(q) })
	case s.Running && t.Verdict != policy.Unhealthy:
		return stopOwn(&s, mine, now)
	case s.Recovered:
		return afterRecovery(&s, mine, now)
	case s.Check.HandsOver(t) && t.Acts():
		return begin(&s, mine, now)
	case t.Verdict == policy.Unhealthy:
		return deleteFirst(mine, func(q *policy.Request) bool { return isSuperseded(q, mine) && hasStopped(q, now) })
	}
	return Step{}
}

// stopOwn gives up on a request for fenced itself whose time is over: its run then stops before
// the isolation. While the run is open, the check asks for nothing else.
func stopOwn(s *Situation, mine []*policy.Request, now time.Time) Step {
	for _, q := range mine {
		for i := range s.Check.Escalation {
			e := &s.Check.Escalation[i]
			isOf := q.Power != nil && q.Order != nil && *q.Order == e.Order && q.TimedOut.IsZero() && !q.Deleting
			if isOf && (now.Sub(q.Created) > e.Timeout || condition(q, "Succeeded") == "False") {
				return Step{Do: TimeOut, Request: q}
			}
		}
	}
	return Step{}
}

// begin ends the requests of earlier templates, and creates that of the next one.
func begin(s *Situation, mine []*policy.Request, now time.Time) Step {
	for _, q := range mine {
		if q.TimedOut.IsZero() && !q.Deleting && condition(q, "Succeeded") != "True" {
			return Step{Do: TimeOut, Request: q}
		}
	}
	for _, q := range mine {
		if !hasStopped(q, now) {
			return Step{Do: Wait, Request: q, Why: fmt.Sprintf("the remediator of %s %s/%s has not stopped; if it does not exist any more, delete that object", q.Kind, q.Namespace, q.Name)}
		}
	}
	if s.Running {
		return Step{Do: Wait, Why: "a run of fenced is open on the target"}
	}
	step := Step{Do: Create, Template: *cmp.Or(s.Target.Template, s.Check.Template)}
	for i := range s.Check.Escalation {
		if e := &s.Check.Escalation[i]; e.Template == step.Template {
			step.Order = &e.Order
		}
	}
	return step
}

// hasStopped says whether the remediator of a request does nothing any more. One that follows
// medik8s' contract says so. One that says nothing counts as at work from its first sign on. An
// object that is being deleted is kept by its remediator.
func hasStopped(q *policy.Request, now time.Time) bool {
	processing, succeeded := condition(q, "Processing"), condition(q, "Succeeded")
	switch {
	case q.Deleting:
		return false
	case !q.Begun:
		return !q.TimedOut.IsZero() && now.Sub(q.TimedOut) >= NoticeTime
	case processing != "":
		return processing == "False"
	}
	return succeeded == "True" || succeeded == "False"
}

// isSuperseded says whether a request for fenced itself follows this one. While an object for
// another remediator exists, fenced switches no host.
func isSuperseded(q *policy.Request, mine []*policy.Request) bool {
	return q.Order != nil && slices.ContainsFunc(mine, func(o *policy.Request) bool {
		return o.Power != nil && o.Order != nil && *o.Order > *q.Order
	})
}

// afterRecovery deletes the requests, after the check's delay.
func afterRecovery(s *Situation, mine []*policy.Request, now time.Time) Step {
	delay := s.Check.HealthyDelay
	if delay == 0 || s.Confirmed {
		return deleteFirst(mine, func(*policy.Request) bool { return true })
	}
	if delay < 0 {
		return Step{} // until a person confirms
	}
	for _, q := range mine {
		if q.HealthyDelaySince.IsZero() && !q.Deleting {
			return Step{Do: Delay, Request: q}
		}
	}
	return deleteFirst(mine, func(q *policy.Request) bool { return now.After(q.HealthyDelaySince.Add(delay)) })
}

// awaitsNode says whether a request for a Node that is gone is not over: its remediator is at
// work, or has announced the deletion of the Node and not yet its success.
func awaitsNode(q *policy.Request) bool {
	return condition(q, "Processing") == "True" ||
		condition(q, "PermanentNodeDeletionExpected") == "True" && condition(q, "Succeeded") != "True"
}

// deleteFirst deletes the first request that may be deleted.
func deleteFirst(mine []*policy.Request, may func(*policy.Request) bool) Step {
	for _, q := range mine {
		if !q.Deleting && may(q) {
			return Step{Do: Delete, Request: q}
		}
	}
	return Step{}
}

// Ignored returns why nobody carries out the requests of a check, "" if somebody may. An
// escalation does not stop there: its next template follows.
func Ignored(s Situation, now time.Time) string {
	if len(s.Check.Escalation) > 0 || s.Recovered || s.NodeGone || s.NodeReady && s.State != policy.StateActive {
		return ""
	}
	for _, q := range s.Requests {
		if q.MadeBy == s.MadeBy && !q.Begun && !q.Deleting && !q.Created.IsZero() && now.Sub(q.Created) >= IgnoredAfter {
			return fmt.Sprintf("nobody carries out %s %s/%s: it had no status and no finalizer for %s after its creation; "+
				"start the controller of that kind, or change the template of the check, and delete the object", q.Kind, q.Namespace, q.Name, IgnoredAfter)
		}
	}
	return ""
}

func condition(q *policy.Request, kind string) string {
	for _, c := range q.Conditions {
		if c.Type == kind {
			return c.Status
		}
	}
	return ""
}
