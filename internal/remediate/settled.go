package remediate

import (
	"slices"
	"strings"

	"github.com/fenced/fenced/internal/reason"
)

// Settled says whether the record shows that the run switches nothing more by itself, and that its
// host is On, is being replaced, or was never touched. A run that a person has closed as it is has
// left its host as that person wanted it. Whoever waits for fenced may begin then. A run that waits
// because nobody asks for it, or because its attempts are used up, begins again only if somebody
// asks. // I22
//
// It says only what a worker has saved. A host that may have come On since counts as off.
func (r Run) Settled() bool {
	switch {
	case r.Step.Ended():
		return true
	case !r.Step.Idle(), anyOnPending(r), r.LeaveOff, restoreRequested(r), r.Retry != nil, hasNewConfirmation(r):
		return false
	case r.Step == Waiting && (r.Reason != reason.Withdrawn && r.Reason != reason.AttemptsExhausted || r.Wait == nil || r.Wait.Due): // it goes on by itself
		return false
	}
	untouched := !r.TouchedHost() && r.OffLevel == 0
	return untouched || !r.HealthySince.IsZero() || r.ReadOn()
}

// ReadOn says whether the journal shows that step 3 read the host On, and that it was neither
// switched off nor read Off since.
func (r Run) ReadOn() bool {
	last := -1
	for i, v := range r.Steps {
		if v.Step == PowerOn {
			last = i
		}
	}
	if last < 0 || last+1 == len(r.Steps) || r.Reason == reason.PowerForbidden || r.Steps[last+1].Step != AwaitNode && !broughtBack(r, last) {
		return false
	}
	since := func(steps ...Step) bool {
		return slices.ContainsFunc(r.Steps[last+1:], func(v Visit) bool { return slices.Contains(steps, v.Step) })
	}
	if strings.HasSuffix(r.Steps[last].Note, levelSkipped) && !since(RestoreNode) { // only its outlets read On
		return false
	}
	return !since(PowerOff, DeleteNode) || !r.Intervened
}

// broughtBack says whether a visit to step 3 has brought the host of an abandoned attempt back On: the
// run then stops for the reason for which it was abandoned, and for another one if the host stays off.
func broughtBack(r Run, visit int) bool {
	if visit == 0 || r.OffLevel > 0 {
		return false
	}
	code := r.Steps[visit].Reason()
	return code != "" && code == r.Steps[visit-1].Reason()
}
