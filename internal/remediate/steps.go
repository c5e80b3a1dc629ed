package remediate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/times"
)

// Next is the whole of power remediation. From the durable record, what one look found and
// the time, it says what the record becomes, the one action to do after that record is
// saved, and how long to wait before the next look. It is pure: asked twice, it gives the
// same answer.
//
// What concerns every step comes first: the clock, a person's orders, an outage of the API,
// the time of the whole run. Then the step answers with the first of these that applies:
//
//  1. Its goal is reached, or something contradicts what an earlier look or a person said.
//     Each step says which of the two goes first: step 1 believes no reading beside a renewed
//     Lease, step 2 accepts that the Node is gone whatever the Lease says.
//  2. An interlock forbids to go on; see interlocks.go.
//  3. Its time is over, or its power level has failed.
//  4. Something that its command needs is not known: it waits.
//  5. None of these: its command, at most once per interval.
func Next(r Run, s Observation, now time.Time) (Run, Action, time.Duration) {
	if r.Step.Ended() {
		return r, Nothing, 0
	}
	r.Steps = slices.Clone(r.Steps) // the caller's record must not change
	s = withoutOtherCluster(r, withoutOtherLevels(r, s))
	r = alignClock(r, s, now)
	r = recordLeaseBaseline(takeOrders(recordContradiction(r, s, now), now), s, now)
	if r.Limits.RetryInterval > 0 && r.Step == PowerOff && r.Intervened && s.OffAccepted { // the try counts, if the run begins again by itself
		r.SwitchedOff = true
	}
	if s.PowerLock != CannotTell { // what others have requested is of the same read
		r.OtherPowerLock = s.OtherPowerLock
	}
	r = recordBusy(r, s, now)
	// The run needs a request again when nobody asks for it, and not only because of a pause, which may end: nor does it outlive a
	// request that was given up first, because who asked is told so. In step 6 that says no more than that the Machine stays. // I22
	if s.Withdrawn == Yes && r.Step != Reprovision && (s.GivenUp || r.OutlivesRequest(s.Node) == No) {
		r.IsolatedAsked = false
	}
	switch {
	case s.API == APIReachable && !r.APILost.IsZero():
		r = resumeAfterOutage(r, now)
	case s.API == APIReachable:
	case r.APILost.IsZero():
		r.APILost = now
	}
	late := timeExpired(s, now, r.Started.Add(r.Limits.RunTimeout)) && r.Strategy != DeleteMachine // that has a time of its own
	// Step 3 has its own deadline: no host is left off because its run is late. Nor is an abandoned
	// run stopped on its way back to On.
	comingOn := r.Step == PowerOn && (s.Power.State != bmc.On || s.Power.Partial || r.Level > 0)
	if late && !comingOn && r.Abandon == "" && !r.Step.Idle() {
		return runTimedOut(r, s, now)
	}
	switch r.Step {
	case PowerOff:
		return powerOff(r, s, now)
	case DeleteNode:
		return deleteNode(r, s, now)
	case PowerOn:
		return powerOn(r, s, now)
	case AwaitNode:
		return awaitNode(r, s, now)
	case RestoreNode:
		return restoreNode(r, s, now)
	case Reprovision:
		return reprovision(r, s, now)
	}
	return idleRun(r, s, now)
}

// resumeAfterOutage notes that the API is back. Step 2 gets its whole time again. In steps 4 and
// 5, which could not see the Node, the outage does not count.
func resumeAfterOutage(r Run, now time.Time) Run {
	switch r.Step {
	case DeleteNode:
		r.StepStarted = now
	case AwaitNode, RestoreNode:
		r.OnSeen = r.OnSeen.Add(now.Sub(times.Later(r.APILost, r.OnSeen)))
		r.StepStarted = r.StepStarted.Add(now.Sub(times.Later(r.APILost, r.StepStarted)))
	}
	r.APILost = time.Time{}
	return r
}

// Times that the safety rules rest on. They are therefore not configurable.
const (
	freshFor       = 2 * time.Second  // age of the reads that justify step 1 // I4
	leaseRecentFor = 60 * time.Second // a Lease renewed this shortly before Off ...
	clockRounding  = 2 * time.Second  // of an object's time of creation by this host's clock: the API gives whole seconds
	leaseQuietFor  = 15 * time.Second // ... must stand still this long after it, at least // I5
	answerTime     = 15 * time.Second // how long a level may take to answer beside a manual confirmation
	pauseBeforeOn  = 5 * time.Second  // between proof and On: BMCs drop an On that is sent earlier
	offSettle      = 15 * time.Second // after a run was abandoned an On read counts only then: BMCs switch off late
	healthyFor     = 5 * time.Minute  // before a Held run ends by itself
	waitsHealthy   = time.Minute      // before a Waiting run does
	poll           = time.Second      // between two looks
	busyAtMost     = 10 * time.Minute // that a busy BMC adds to step 1, each time: the run holds a slot meanwhile
	ownRetryFor    = 15 * time.Second // fenced's own order to retry counts for this long
	idlePoll       = 10 * time.Second // between two looks at an idle run
	resendPower    = 10 * time.Second // between two equal power commands
	resendWrite    = 2 * time.Second  // between two equal writes to the cluster
	resendHeldOn   = time.Minute      // between two On commands of an idle run
	lowerLevelWait = 2 * time.Minute  // for a level below the one that cut the host off: its BMC boots when mains return
	daemonAwayFor  = 2 * time.Minute  // since the last On: while fenced runs it sends On more often
	readyOutlives  = 90 * time.Second // for so long a Node may be Ready although its host is off
	heldLevelWait  = 5 * time.Minute  // for a level of an idle run that does not answer: BMCs lock accounts
)

// Begin gives the record of a new run its first step.
func Begin(r Run, now time.Time) Run {
	r.Attempt, r.Started = 1, now
	first := PowerOff
	if r.Strategy == DeleteMachine {
		first = Reprovision
	}
	r, _, _ = enter(r, first, "", now)
	if r.Level > 0 { // the probe before the run has tried the lower levels
		why := fmt.Sprintf("power level 1 did not answer before the run; it begins at level %d", r.Level+1)
		r.Steps = slices.Insert(r.Steps, len(r.Steps)-1, Visit{Step: first, Attempt: 1, Started: now, Ended: now, Note: why})
	}
	return r
}

// AbortUnsaved ends a run whose first record may not have been saved. Nothing was done for it,
// and nothing will be.
func AbortUnsaved(r Run, now time.Time) Run {
	r, _, _ = finish(r, Aborted, reason.NotSaved, "the store did not confirm that it saved the run", now)
	return r
}

// enter goes to a step and writes the journal. The note says why the step before was left, if
// not because its goal was reached.
func enter(r Run, to Step, note string, now time.Time) (Run, Action, time.Duration) {
	if n := len(r.Steps); n > 0 {
		r.Steps[n-1].Ended, r.Steps[n-1].Note = now, note
	}
	r.Step, r.StepStarted, r.Intent = to, now, Intent{} // a command's interval belongs to one step
	r.BusySince = time.Time{}
	if to != PowerOff && to != DeleteNode {
		r = expireConfirmation(r)
	}
	if to == RestoreNode { // whoever asks can see the Node again
		r.IsolatedAsked = false
	}
	if to == PowerOn || to.Idle() {
		r.Level = r.OffLevel // all levels from there down are switched on again // I20
	}
	if !to.Ended() { // Held has an entry too: later notes must not overwrite why the step before was left
		r.Steps = shortenJournal(append(r.Steps, Visit{Step: to, Attempt: r.Attempt, Started: now}))
	}
	return r, Nothing, 0
}

// A journal that has more than maxVisits is cut to about keptVisits.
const (
	maxVisits  = 200
	keptVisits = 150
)

// shortenJournal drops old visits of a run that waits and tries again for weeks: its record must
// stay small enough for the store, whatever the host is down for. The first visit stays, which says
// when the run began, and the first to step 5, which says that the run took the request off the
// Machine.
func shortenJournal(visits []Visit) []Visit {
	if len(visits) <= maxVisits {
		return visits
	}
	old := visits[1 : len(visits)-keptVisits]
	kept := slices.Clone(visits[:1])
	if i := slices.IndexFunc(old, func(v Visit) bool { return v.Step == RestoreNode }); i >= 0 {
		kept = append(kept, old[i])
	}
	return append(kept, visits[len(visits)-keptVisits:]...)
}

// command gives an action once per interval. The intent is in the record before package
// run acts. // I19
func command(r Run, a Action, every time.Duration, now time.Time) (Run, Action, time.Duration) {
	if since := now.Sub(r.Intent.At); r.Intent.Action == a && since >= 0 && since < every { // < 0: the clock was set back
		return r, Nothing, min(poll, every-since)
	}
	r.Intent = Intent{Action: a, At: now}
	return r, a, 0
}

// leftFor is the note of a step that was left for a reason. Visit.Reason reads it.
func leftFor(code reason.Code, note string) string { return string(code) + ": " + note }

func finish(r Run, end Step, code reason.Code, note string, now time.Time) (Run, Action, time.Duration) {
	if anyOnPending(r) { // I20
		return stop(r, reason.OutletContradicted, onPendingNote, now)
	}
	r.Reason, r.Note, r.Ended = code, note, now
	r.Restored = nil // the history stays small
	leavesNodeGone := end != Done && r.Isolation == IsolateDelete && (r.Attempt > 1 || !r.Isolated.IsZero())
	if !leavesNodeGone { // else the next run of the same Machine has its labels and names from the record
		r.NodeLabels, r.NodeNames = nil, NodeNames{}
	}
	return enter(r, end, note, now)
}

// abandon goes back to On without isolation, and then to the given end. A later attempt has
// isolated a Node before, so the run does not end in any case.
func abandon(r Run, code reason.Code, note string, to Step, now time.Time) (Run, Action, time.Duration) {
	if confirmationActive(r) {
		return stop(r, code, strings.TrimPrefix(note+"; ", "; ")+"left off on the confirmation by "+r.Confirmed.Actor+"; unfence brings it back", now)
	}
	if r.Attempt > 1 {
		to = Held
	}
	r.Abandon, r.AbandonTo, r.Reason, r.Note, r.LeaveOff = code, to, code, note, false
	return enter(r, PowerOn, leftFor(code, note), now)
}

// stop lets the run wait, or keeps it for a person: the class of the reason decides. While a
// manual confirmation is active, the host is left as it is, whatever stops the run: the person
// may be working inside it, and only a person switches it on again. // I26
func stop(r Run, code reason.Code, note string, now time.Time) (Run, Action, time.Duration) {
	if confirmationActive(r) && !voidsConfirmation[code] {
		r.LeaveOff = true
	}
	bringBack := r.Abandon != "" && r.AbandonTo == Aborted // it ends once the host is back, so its own reason is kept
	r.Reason, r.Note = code, note
	if mayWait(r, code) {
		if !bringBack {
			r.Abandon, r.AbandonTo = "", ""
		}
		return enter(beginWait(r, code, now), Waiting, leftFor(code, note), now)
	}
	r.Abandon, r.AbandonTo = "", ""
	return enter(r, Held, leftFor(code, note), now)
}

// rest stops a run for which there may be no other power cycle now. A host that this attempt has
// touched goes back On first. A reason that the run has already stays: it says what is wrong with
// the host.
func rest(r Run, code reason.Code, note string, now time.Time) (Run, Action, time.Duration) {
	if r.Intervened && r.Isolated.IsZero() {
		return abandon(r, code, note, Aborted, now)
	}
	return stop(r, cmp.Or(r.Reason, code), cmp.Or(r.Note, note), now)
}

// holdRenamed holds a run whose host works under another name: it is not cycled. // I6
func holdRenamed(r Run, s Observation, now time.Time) (Run, Action, time.Duration) {
	return stop(r, reason.NodeRenamed, "the host registered as Node "+s.RenamedTo, now)
}

// holdAddressChanged holds a run that cannot reach what it has switched off. // I10
func holdAddressChanged(r Run, now time.Time) (Run, Action, time.Duration) {
	return stop(r, reason.AddressChanged, "the host leads to another BMC or outlet than when the run began", now)
}

// The times of a record come from the clock of the host that wrote it. The next reader may be
// another host, or the same one after its clock was set. What follows bounds what a wrong clock can
// do: no deadline expires because of it, and no wait goes on for ever. // I16, I20

// alignClock makes the times of a record comparable with now. A time in the future was written
// by a clock that was ahead, and becomes now. While this host's clock does not agree with the API
// server's, or was not compared with it, all waits start again, with each such clock, and once
// more when a clock agrees again.
func alignClock(r Run, s Observation, now time.Time) Run {
	if wrong := s.Clock != Yes; wrong != r.WrongClock || wrong && s.ClockSet {
		r = mapTimes(r, func(time.Time) time.Time { return now })
		r.WrongClock = wrong
	}
	return mapTimes(r, func(t time.Time) time.Time { return times.Earlier(t, now) })
}

// mapTimes changes each time of a record from which something is waited for.
func mapTimes(r Run, to func(time.Time) time.Time) Run {
	set := func(t time.Time) time.Time {
		if t.IsZero() {
			return t
		}
		return to(t)
	}
	r.Started, r.StepStarted, r.Isolated = set(r.Started), set(r.StepStarted), set(r.Isolated)
	r.OnSeen, r.APILost, r.HealthySince = set(r.OnSeen), set(r.APILost), set(r.HealthySince)
	r.BusySince = set(r.BusySince)
	if !r.NotBefore.IsZero() { // it is in the future, by one interval at most
		pause := pauseBefore(r)
		r.NotBefore = to(r.NotBefore.Add(-pause)).Add(pause)
	}
	if r.OffLease != nil && !set(r.OffLease.Seen).Equal(r.OffLease.Seen) {
		l := *r.OffLease
		l.Seen = set(l.Seen)
		r.OffLease = &l
	}
	if r.Wait != nil && !to(r.Wait.Since).Equal(r.Wait.Since) {
		w := *r.Wait
		w.Since = to(w.Since)
		r.Wait = &w
	}
	if r.Confirmation != nil && !set(r.Confirmation.Since).Equal(r.Confirmation.Since) {
		w := *r.Confirmation // the caller's record must not change
		w.Since = set(w.Since)
		r.Confirmation = &w
	}
	for i, c := range r.Contradicted {
		if at := to(c.Since); !at.Equal(c.Since) {
			r.Contradicted = slices.Clone(r.Contradicted)
			r.Contradicted[i].Since = at
		}
	}
	return r
}

// timeExpired says whether a time has passed, by a clock that is not known to be wrong.
func timeExpired(s Observation, now, at time.Time) bool { return s.Clock != No && now.After(at) }
