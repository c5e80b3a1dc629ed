package remediate

import "time"

// Origin is where the Machine of a run came from, as fenced saw it when the run began.
// Later deletions of Machines of the same controller are limited by it. Next does not
// read it.
type Origin struct {
	Controller string    `json:"controller,omitempty"` // UID of the Machine's controller
	Created    time.Time `json:"created,omitzero"`
	// NeverReady: no Node of the Machine was ever seen Ready.
	NeverReady bool `json:"neverReady,omitempty"`
}

// MachineDeletedAt is when a run that has ended asked for the deletion of its Machine, or
// found the Machine being deleted; zero if it did neither.
func (r Run) MachineDeletedAt() time.Time {
	switch {
	case r.Open():
		return time.Time{}
	case r.Intent.Action == DeleteTargetMachine: // also without an answer
		return r.Intent.At
	case r.Step == Reprovisioned:
		return r.Ended
	}
	return time.Time{}
}
