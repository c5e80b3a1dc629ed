package run

import "github.com/fenced/fenced/internal/remediate"

// missed remembers a step into Held that the store did not take.
func (w *worker) missed(next remediate.Run) {
	if next.Step == remediate.Held && w.run.Step != remediate.Held {
		w.held = &next
	}
}

// pendingHeld gives that step again in place of the answer to a later look: what spoke
// against going on, like one On read against a person's word, may not be seen again.
// A record that was changed since is asked about anew. // I5, I26
func (w *worker) pendingHeld(next remediate.Run, a remediate.Action) (remediate.Run, remediate.Action) {
	held := w.held
	w.held = nil
	if held == nil || held.Version != w.run.Version {
		return next, a
	}
	return *held, remediate.Nothing
}
