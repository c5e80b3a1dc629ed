package remediate

import (
	"slices"

	"github.com/fenced/fenced/internal/reason"
)

// Settled says whether the record shows that the run switches nothing more by itself, and that its
// host is On, is being replaced, or was never touched. A run that a person has closed as it is has
// left its host as that person wanted it. Whoever waits for fenced may begin then. // I22
//
// It says only what a worker has saved. A host that may have come On since counts as off.
func (r Run) Settled() bool {
	switch {
	case r.Step.Ended():
		return true
	case !r.Step.Idle(), anyOnPending(r), r.LeaveOff, restoreRequested(r), r.Retry != nil, hasNewConfirmation(r):
		return false
	case r.Step == Waiting && (r.Reason != reason.Withdrawn || r.Wait == nil || r.Wait.Due): // it goes on by itself
		return false
	}
	untouched := !r.TouchedHost() && r.OffLevel == 0
	return untouched || !r.HealthySince.IsZero() || broughtOn(r)
}

// broughtOn says whether the journal shows that step 3 read the host On, and that it was neither
// switched off nor read Off since.
func broughtOn(r Run) bool {
	last := -1
	for i, v := range r.Steps {
		if v.Step == PowerOn {
			last = i
		}
	}
	if last < 0 || last+1 == len(r.Steps) || r.Steps[last+1].Step != AwaitNode || r.Reason == reason.PowerForbidden {
		return false
	}
	off := slices.ContainsFunc(r.Steps[last+1:], func(v Visit) bool { return v.Step == PowerOff || v.Step == DeleteNode })
	return !off || !r.Intervened
}
