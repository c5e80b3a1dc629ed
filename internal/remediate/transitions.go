package remediate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/reason"
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
	if !leavesNodeGone(r, end) {
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
