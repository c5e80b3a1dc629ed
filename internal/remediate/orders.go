package remediate

import (
	"time"
)

// ordered carries out of a person's orders what needs no look, and drops those that
// came too late. The steps read what it leaves.
func ordered(r Run, now time.Time) Run {
	if r.Abort != nil && r.Step != Held {
		r = aborting(r)
	}
	if r.Retry != nil && r.Step != Held {
		if r.Step == PowerOff && !r.Touched && now.Before(r.NotBefore) {
			r.NotBefore = now
		}
		r.Retry = nil
	}
	if newWord(r) && r.Step != Held {
		begins := r.Step == PowerOff && !r.Touched && r.Attempt == 1
		r.Word = &Word{Given: r.Confirmed.At, Spent: !begins}
	}
	return r
}

// aborting takes an abort where there is nothing to go back from: a cycle that is on
// its way back ends Aborted, and one that has isolated is completed, without another
// attempt and without step 6.
func aborting(r Run) Run {
	switch {
	case r.Abort.AsIs:
		r.Abort = nil
	case r.Step == PowerOn && r.Abandon != "" && r.Attempt == 1:
		r = lastAttempt(r) // it may turn out to have isolated after all
		r.Abandon, r.AbandonTo = aborted, Aborted
		r.Reason, r.Note, r.Abort = aborted, saidBy("aborted", *r.Abort), nil
	case r.Step == PowerOn && r.Abandon != "": // Held next: from there
	case r.Step == PowerOn, r.Step == AwaitNode, r.Step == RestoreNode:
		r = lastAttempt(r)
		r.Abort = nil
	}
	return r
}

// The reason codes of orders.
const (
	aborted    = "Aborted"
	unfenced   = "Unfenced"
	closedAsIs = "ClosedAsIs"
	exhausted  = "AttemptsExhausted"
)

func saidBy(verb string, o Order) string { return verb + " by " + o.Actor + ": " + o.Reason }

// wantedBack says whether a person wants the host back.
func wantedBack(r Run) bool { return r.Unfence != nil || r.Abort != nil }

// lastAttempt lets nothing that hurts begin after the present attempt.
func lastAttempt(r Run) Run {
	r.Limits.MaxAttempts, r.Limits.Reprovision = min(r.Limits.MaxAttempts, r.Attempt), false
	return r
}

// broughtBack carries out an unfence or an abort: without isolation the cycle is
// abandoned, after it the run goes on at step 3.
func broughtBack(r Run, now time.Time) (Run, Action, time.Duration) {
	var reason, note string
	if r.Abort != nil {
		r, reason, note = lastAttempt(r), aborted, saidBy("aborted", *r.Abort)
	} else {
		reason, note = unfenced, saidBy("unfenced", *r.Unfence)
	}
	r.Unfence, r.Abort, r.LeaveOff, r.OffOnly = nil, nil, false, false
	r = spent(r) // this word is newer
	switch {
	case r.Strategy == DeleteMachine:
		return finish(r, Aborted, reason, note, now)
	case r.Isolated.IsZero() && r.Attempt == 1:
		return dropped(r, reason, note, now)
	}
	// A human vouches: whatever Node stands there after a later attempt, or after a
	// host was falsely believed off, is the one to restore.
	if r.Attempt > 1 || r.Reason == falseOff || r.Reason == wordContradicted {
		r.Target.NodeUID, r.Target.BootID = "", ""
	}
	return resumed(r, note, now)
}

// resumed goes on at step 3; the run's time starts over.
func resumed(r Run, note string, now time.Time) (Run, Action, time.Duration) {
	r.Reason, r.Note, r.Started, r.OnSeen = "", "", now, now
	return enter(r, PowerOn, note, now)
}

// dropped ends an attempt that has not isolated: at once where nothing was touched,
// else with the host back On.
func dropped(r Run, reason, note string, now time.Time) (Run, Action, time.Duration) {
	if !r.Touched && r.Attempt == 1 {
		return finish(r, Aborted, reason, note, now)
	}
	return abandon(r, reason, note, Aborted, now)
}

// CanAbort says whether a run can be given up, or why not.
func CanAbort(r Run) (ok bool, why string) {
	if !r.Open() {
		return false, "the run has ended"
	}
	return true, ""
}

// CanClose says whether a run can be ended with the host left as it is, or why not.
func CanClose(r Run) (ok bool, why string) {
	switch {
	case !r.Open():
		return false, "the run has ended"
	case r.Step != Held:
		return false, "the run is at work, at step " + string(r.Step) + "; only a Held one can be closed as it is"
	case owes(r):
		return false, owesNote
	}
	return true, ""
}

// closed ends a Held run and leaves the host as it is; our hold is not left behind.
func closed(r Run, s Seen, now time.Time) (Run, Action, time.Duration) {
	note := saidBy("closed as it is", *r.Abort) + "; last power read: " + readText(s)
	if ok, _ := CanClose(r); !ok {
		r.Abort = nil
		return r, Nothing, poll
	}
	if !released(r, s) {
		return releasing(r, s, now)
	}
	r.Abort, r.LeaveOff = nil, false
	return finish(r, Aborted, closedAsIs, note, now)
}

// releasing takes our hold off the BareMetalHost.
func releasing(r Run, s Seen, now time.Time) (Run, Action, time.Duration) {
	if s.Hold == Yes {
		return command(r, ReleaseHold, resendWrite, now)
	}
	return r, Nothing, poll // it cannot be read
}

// CanRetry says whether a run has something to take up again, or why not. Whoever
// asks refuses also while the host is frozen.
func CanRetry(r Run) (ok bool, why string) {
	switch {
	case !r.Open():
		return false, "the run has ended"
	case r.Step == PowerOff && !r.Touched && !r.NotBefore.IsZero():
		return true, ""
	case r.Step != Held:
		return false, "the run is at work, at step " + string(r.Step)
	case owes(r):
		return false, owesNote
	case r.LeaveOff && r.Confirmed != nil && r.Isolated.IsZero():
		return false, "the host is left off on a person's word; confirm-off, unfence or abort go on" // I26
	case r.LeaveOff && !r.Isolated.IsZero():
		return false, "the host is off on purpose (" + r.Reason + "); unfence brings it back"
	}
	return true, ""
}

// retried takes a Held run up where it stopped: at step 1 with every reason asked
// afresh, or at step 3; where the attempts are used up, with one more.
func retried(r Run, s Seen, now time.Time) (Run, Action, time.Duration) {
	note := saidBy("retried", *r.Retry)
	r.Retry = nil
	ok, _ := CanRetry(r)
	switch {
	case !ok, stopped(s):
		return r, Nothing, poll
	case r.Isolated.IsZero():
		return anew(r, note, now)
	case r.Reason == exhausted:
		r.Limits.MaxAttempts, r.Reason, r.Note, r.Started = r.Attempt+1, "", "", now
		r, a, wait := nextAttempt(r, note, now)
		r.NotBefore = now
		return r, a, wait
	}
	return resumed(r, note, now)
}

// stopped says whether a Held run stays where it is, whatever is ordered: what it would
// begin is not allowed now. A host whose BMC has lied is frozen, for example. // I5, I22, I23
func stopped(s Seen) bool { return s.Paused || s.PowerForbidden != "" || s.Contested == Yes }

// anew begins step 1 over at the first level. What may still be off because of us
// stays on the record, and beforeOff asks every reason again.
func anew(r Run, note string, now time.Time) (Run, Action, time.Duration) {
	r.Reason, r.Note, r.Started, r.NotBefore, r.HealthySince = "", "", now, time.Time{}, time.Time{}
	r.OffLease, r.LeaveOff, r.Recheck = nil, false, r.Touched
	r, a, wait := enter(r, PowerOff, note, now)
	r.Level = 0
	return r, a, wait
}
