package run

import "github.com/fenced/fenced/internal/remediate"

// pendingHeld is a step into Held that the store did not save. It is kept because its reason,
// like one On reading that contradicts a confirmation, may not be observed again. // I5, I26
type pendingHeld struct {
	next *remediate.Run // nil if there is none
}

// note keeps next, which could not be saved in place of run, if it is a step into Held.
func (p *pendingHeld) note(run, next remediate.Run) {
	if next.Step == remediate.Held && run.Step != remediate.Held {
		p.next = &next
	}
}

// take returns the pending step in place of the answer to a later look, once. If run has changed
// since, or if there is no pending step, it returns the answer.
func (p *pendingHeld) take(run, next remediate.Run, a remediate.Action) (remediate.Run, remediate.Action) {
	held := p.next
	p.next = nil
	if held == nil || held.Version != run.Version {
		return next, a
	}
	return *held, remediate.Nothing
}
