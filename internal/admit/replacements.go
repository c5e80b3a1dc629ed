package admit

import (
	"maps"
	"time"

	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/times"
)

// replacements holds which Machines were never Ready, as far as this daemon saw since its
// start. A Machine that was not Ready at the start counts as such. The lock of the Book
// protects it.
type replacements struct {
	neverReady map[string]bool // by UID of the Machine
	// lastGood is when the newest Machine was created that has been Ready, by UID of its
	// controller.
	lastGood map[string]time.Time
}

func newReplacements() replacements {
	return replacements{neverReady: map[string]bool{}, lastGood: map[string]time.Time{}}
}

// noteNew records the Machines that are seen for the first time. Call it before the ledger
// applies the changes, and noteReady after that.
func (s replacements) noteNew(l *policy.Ledger, changes []policy.Change) {
	for i := range changes {
		m, ok := changes[i].Value.(*policy.Machine)
		if !ok || m == nil || m.UID == "" {
			continue
		}
		if old := l.MachineIn(m.APIVersion, m.Namespace, m.Name); old == nil || old.UID != m.UID {
			s.neverReady[m.UID] = true
		}
	}
}

// noteReady records the Machines whose Nodes are Ready.
func (s replacements) noteReady(l *policy.Ledger, changes []policy.Change) {
	for i := range changes {
		switch v := changes[i].Value.(type) {
		case *policy.Node:
			if v != nil && v.Ready() {
				s.setReady(l.MachineOf(v.Name), v)
			}
		case *policy.Machine:
			if v == nil || v.NodeName == "" {
				continue
			}
			if n := l.Node(v.NodeName); n != nil && n.Ready() {
				s.setReady(l.MachineOf(v.NodeName), n)
			}
		}
	}
}

// setReady records that the Node of a Machine is Ready. A Node that became Ready before the
// Machine was created is the Node of the Machine before it.
func (s replacements) setReady(m *policy.Machine, n *policy.Node) {
	if m == nil || !s.neverReady[m.UID] {
		return // it is unknown, or was recorded before
	}
	if _, at := readyCondition(n); !at.IsZero() && at.Before(m.Created.Add(-createdSlack)) {
		return
	}
	delete(s.neverReady, m.UID)
	if of := m.ControllerOwner.UID; of != "" {
		s.lastGood[of] = times.Later(s.lastGood[of], m.Created)
	}
}

// forget drops the Machines that are gone.
func (s replacements) forget(l *policy.Ledger) {
	if len(s.neverReady) == 0 {
		return
	}
	live := map[string]bool{}
	for m := range l.Machines() {
		live[m.UID] = true
	}
	maps.DeleteFunc(s.neverReady, func(uid string, _ bool) bool { return !live[uid] })
}

// originOf returns what a run records about its Machine; nil without a Machine.
func (s replacements) originOf(m *policy.Machine) *remediate.Origin {
	if m == nil {
		return nil
	}
	return &remediate.Origin{Controller: m.ControllerOwner.UID, Created: m.Created.UTC(), NeverReady: s.neverReady[m.UID]}
}

// startingUntil returns when the start-up timeout of a target's Machine ends. It is zero if
// there is no timeout, or if the verdict is about the Machine itself, so that it cannot be
// about the Machine before it.
func startingUntil(t *policy.TargetReport, m *policy.Machine) time.Time {
	switch t.Reason {
	case reason.MachineFailed, reason.MachineCondition, reason.RemediateRequested:
		return time.Time{}
	}
	if m == nil || m.Created.IsZero() || t.StartupTimeout <= 0 {
		return time.Time{}
	}
	return m.Created.Add(t.StartupTimeout)
}
