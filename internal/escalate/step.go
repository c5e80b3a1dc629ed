// Package escalate asks other remediators in place of a check's own controller. It is an option: nothing but the
// daemon's wiring knows of it.
//
//	cluster.go   Escalation: all clusters, as the engine has it; Cluster: one, as admit has it, with the targets whose gates
//	             have passed, and why a step was not done
//	loop.go      the loop: it makes an object, does its next step, and holds the Lease on its Node
//	step.go      what the next step is; pure
//	records.go   the record of a target, and those of a cluster; pure. store.go: in the store
//	change.go    each change of a record; a person gives one up
//	templates.go whose templates are missing
//
// Its first rule is that two remediators never work on one target: another one is asked only when
// the object of the one before is gone, and it is deleted only when its remediator has stopped, or
// when the target has recovered. // I22
package escalate

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/request"
)

// Do is what is to be done next with an object.
type Do string

// What is to be done.
const (
	// Nothing: its remediator works.
	Nothing Do = ""
	// TimeOut tells the remediator to stop.
	TimeOut Do = "TimeOut"
	// Delay notes when the target recovered. The object is deleted later.
	Delay Do = "Delay"
	// Delete the object.
	Delete Do = "Delete"
	// Wait until the remediator has stopped, or a person helps.
	Wait Do = "Wait"
)

// Step is what is to be done next with an object.
type Step struct {
	Do Do
	// Why says why it is done, or what is waited for.
	Why string
	// Over: the time of the template is over, or its remediator failed. The record must say so
	// before the step is done: the next template follows then.
	Over bool
	// Tidies: the target is well or gone. This is done even after fenced was disarmed.
	Tidies bool
	// StandsStill: fenced waits, and nothing goes on that needs a place in the limits. // I11
	StandsStill bool
}

// Situation is all that a decision depends on.
type Situation struct {
	policy.AskedTarget
	// Object is what the record says, Live the object as it was just read.
	Object request.Object
	Live   *policy.Request
	// DeletingSince is since when the object is known to be deleted, while a finalizer keeps it.
	DeletingSince time.Time
}

const (
	// NoticeTime is how long after the annotation a remediator that has not begun may still
	// not have seen it.
	NoticeTime = 10 * time.Second
	// IgnoredAfter is how long an object may be without any sign of a remediator, and how long one
	// that was told to stop keeps its place in the limits.
	IgnoredAfter = 5 * time.Minute
)

// Next decides the next step for an object that exists.
func Next(s Situation, now time.Time) Step {
	step := next(s, now)
	step.StandsStill = step.Do == Wait && standsStill(&s, now)
	return step
}

func next(s Situation, now time.Time) Step {
	asks := s.Check != nil && slices.ContainsFunc(s.Check.Templates(), s.Object.IsFrom)
	switch {
	case s.Live.MadeBy != s.Object.Mark:
		return Step{Do: Wait, Why: fmt.Sprintf("%s does not carry fenced's mark, and fenced leaves it alone; when its remediator is done, delete it", s.Object)}
	case s.Live.Deleting:
		return Step{Do: Wait, Why: fmt.Sprintf("%s is being deleted, and a finalizer of its remediator keeps it", s.Object)}
	case s.Unknown:
		return Step{}
	case s.Recovered && asks:
		return afterRecovery(&s, now)
	case s.NodeReady && (!asks || s.State == policy.StateDisabled || s.State == policy.StateInvalid) && (!s.Live.Begun || hasStopped(s.Live, now)):
		// no check says what else is wrong, so Ready is enough only where nobody is at work // I22
		return Step{Do: Delete, Why: "the Node is Ready", Tidies: true}
	case s.Gone:
		return afterTarget(&s)
	case !asks:
		return end(&s, "no check asks for it any more", now)
	case s.State != policy.StateActive:
		return Step{}
	}
	for _, e := range s.Check.Escalation {
		if !e.IsSourceOf(s.Live) {
			continue
		}
		if over := now.Sub(s.Object.Made) > e.Timeout; over || condition(s.Live, "Succeeded") == "False" || !s.Object.TimedOut.IsZero() {
			step := end(&s, fmt.Sprintf("the time of %s is over, or it has failed", s.Object), now)
			step.Over = true
			return step
		}
	}
	return Step{}
}

// end tells the remediator to stop, and deletes the object when it has.
func end(s *Situation, why string, now time.Time) Step {
	switch {
	case s.Live.TimedOut.IsZero() && condition(s.Live, "Succeeded") != "True":
		return Step{Do: TimeOut, Why: why}
	case !hasStopped(s.Live, now):
		return Step{Do: Wait, Why: fmt.Sprintf("%s, and the remediator of %s has not stopped; if it does not exist any more, delete that object", why, s.Object)}
	}
	return Step{Do: Delete, Why: why}
}

// afterTarget deletes the object of a target that is gone, unless its remediator is at work: it may
// have deleted the Node itself.
func afterTarget(s *Situation) Step {
	processing, succeeded := condition(s.Live, "Processing"), condition(s.Live, "Succeeded")
	finished := succeeded == "True" || succeeded == "False"
	working := s.Live.Begun && processing != "False" && (processing != "" || !finished)
	expected := condition(s.Live, "PermanentNodeDeletionExpected") == "True" && !finished
	if working || expected {
		return Step{Do: Wait, Why: fmt.Sprintf("the target is gone, and the remediator of %s has not finished; if it does not exist any more, delete that object", s.Object)}
	}
	return Step{Do: Delete, Why: "the target is gone", Tidies: true}
}

// hasStopped says whether the remediator of an object that was told to stop does nothing any more.
// One that follows medik8s' contract says so. One that says nothing counts as at work from its first
// sign on.
func hasStopped(q *policy.Request, now time.Time) bool {
	processing, succeeded := condition(q, "Processing"), condition(q, "Succeeded")
	switch {
	case !q.Begun:
		return !q.TimedOut.IsZero() && now.Sub(q.TimedOut) >= NoticeTime
	case processing != "":
		return processing == "False"
	}
	return succeeded == "True" || succeeded == "False"
}

// standsStill says whether a remediator for which fenced waits does nothing, or has had IgnoredAfter to
// stop or to begin. One that just heard that it shall stop still works on its host.
func standsStill(s *Situation, now time.Time) bool {
	since := cmp.Or(s.Object.TimedOut, s.Live.TimedOut, s.DeletingSince)
	if since.IsZero() && !s.Live.Begun {
		since = s.Object.Made
	}
	return hasStopped(s.Live, now) || !since.IsZero() && now.Sub(since) >= IgnoredAfter
}

// afterRecovery deletes the object, after the check's delay.
func afterRecovery(s *Situation, now time.Time) Step {
	delay, since := s.Check.HealthyDelay, s.Live.HealthyDelaySince
	switch {
	case delay == 0, s.Confirmed, delay > 0 && !since.IsZero() && now.After(since.Add(delay)):
		return Step{Do: Delete, Why: "the target has recovered", Tidies: true}
	case delay > 0 && since.IsZero():
		return Step{Do: Delay, Why: "the target has recovered", Tidies: true}
	}
	return Step{} // until then, or until a person confirms
}

// Ends says whether a record without an object ends, and whether its target is well then. What the
// check finds decides. Only where no check finds anything, a Node that is Ready is well.
func Ends(t policy.AskedTarget) (ends, well bool) {
	well = t.Recovered || t.NodeReady && (t.Check == nil || t.State == policy.StateDisabled || t.State == policy.StateInvalid)
	return !t.Unknown && (well || t.Gone || t.Check == nil), well
}

// Ignored returns why nobody carries out the object of an Active check, "" if somebody may. An
// escalation does not stop there: its next template follows.
func Ignored(s Situation, now time.Time) string {
	if s.Check == nil || len(s.Check.Escalation) > 0 || s.Live == nil || s.Live.Begun || s.Live.Deleting || s.Gone || s.Unknown || s.Recovered || s.NodeReady {
		return ""
	}
	if now.Sub(s.Object.Made) < IgnoredAfter {
		return ""
	}
	return fmt.Sprintf("nobody carries out %s: it had no status and no finalizer for %s after its creation; "+
		"start the controller of that kind, or change the template of the check, and delete the object", s.Object, IgnoredAfter)
}

func condition(q *policy.Request, kind string) string {
	for _, c := range q.Conditions {
		if c.Type == kind {
			return c.Status
		}
	}
	return ""
}
