package cluster

import (
	"maps"
	"time"

	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/times"
)

// createdSlack is how much earlier than the deletion its replacement may seem to be created:
// the times come from two clocks, and the API server's has whole seconds.
const createdSlack = 10 * time.Second

// deletionSeen is how long the watch may take to show that a Machine is being deleted, or that
// its owner was asked to replace it.
const deletionSeen = time.Minute

// countDeletions returns the facts for a run that deletes a Machine.
func (rs runs) countDeletions(l *policy.Ledger, known replacements, limits guard.Limits, a Candidate, now time.Time) (d guard.DeletionFact) {
	d.Next, d.LastHour = rs.nextStart(limits.DeletionBucket(), true, now)
	for _, r := range rs.byID {
		if isOfCheck(r, &a.Draft) && (DeletesOnly(r) && r.Step == remediate.Reprovision || isWithin(r, limits.DeletionTimeout, now) && isDisappearing(l, r, now)) {
			d.InProgress++
		}
	}
	if o := a.Draft.Origin; o != nil && o.Controller != "" {
		s := rs.deletionsOf(o.Controller, known.lastGood[o.Controller])
		d.Last, d.FailedReplacements = s.last, s.failed
		if o.NeverReady && s.replaces(*o) {
			d.FailedReplacements++
			d.StartingUntil = a.startingUntil
		}
	}
	return d
}

// disappearing lists the runs that asked for the deletion of a Machine which, or the Node of
// which, still exists: within the timeout, and for longer.
func (rs runs) disappearing(l *policy.Ledger, timeout time.Duration, now time.Time) (inProgress, overdue []remediate.Run) {
	for _, r := range rs.byID {
		switch {
		case r.MachineDeletedAt().IsZero() || !isDisappearing(l, r, now):
		case isWithin(r, timeout, now):
			inProgress = append(inProgress, *r)
		default:
			overdue = append(overdue, *r)
		}
	}
	return inProgress, overdue
}

// isOfCheck says whether two runs are of one check.
func isOfCheck(r, draft *remediate.Run) bool {
	return r.Manual == nil && (r.CheckID == draft.CheckID || r.CheckID == "" && r.Check == draft.Check)
}

// isWithin says whether a run has asked for the deletion of its Machine, and the timeout of
// that is not over.
func isWithin(r *remediate.Run, timeout time.Duration, now time.Time) bool {
	at := r.MachineDeletedAt()
	return !at.IsZero() && now.Before(at.Add(timeout))
}

// isDisappearing says whether the Machine of a run that asked for its deletion still exists and
// is to be deleted, or whether the Node of that Machine exists. Another Machine or Node of the
// same name is neither.
func isDisappearing(l *policy.Ledger, r *remediate.Run, now time.Time) bool {
	t := &r.Target
	if m := l.MachineIn(t.MachineAPI, t.Namespace, t.Machine); m != nil && m.UID == t.MachineUID {
		// Otherwise it was refused, or taken back because the Machine has recovered.
		return m.Deleting || m.OwnerRemediated != "" || r.Step == remediate.Reprovisioned && isWithin(r, deletionSeen, now)
	}
	n := l.Node(t.Node)
	return n != nil && n.UID != "" && (n.UID == t.NodeUID || n.UID == r.NewNodeUID)
}

// deletions are those of the Machines of one controller.
type deletions struct {
	first, last time.Time // zero: there was none
	// failed counts the replacements that were deleted before they were ever Ready, after the
	// controller made the newest Machine that has been Ready.
	failed int
}

// deletionsOf collects the deletions of the Machines of a controller. lastGood is when the
// newest of its Machines was created that is known to have been Ready.
func (rs runs) deletionsOf(controller string, lastGood time.Time) (s deletions) {
	var ended []*remediate.Run // with the deletion of a Machine
	for _, r := range rs.byID {
		at := r.MachineDeletedAt()
		if at.IsZero() || r.Origin == nil || r.Origin.Controller != controller {
			continue
		}
		ended = append(ended, r)
		if s.last = times.Later(s.last, at); s.first.IsZero() || at.Before(s.first) {
			s.first = at
		}
		if !r.Origin.NeverReady {
			lastGood = times.Later(lastGood, r.Origin.Created)
		}
	}
	failed := map[string]bool{} // by UID: one Machine may need several runs
	for _, r := range ended {
		if r.Origin.NeverReady && s.replaces(*r.Origin) && r.MachineDeletedAt().After(lastGood.Add(createdSlack)) {
			failed[r.Target.MachineUID] = true
		}
	}
	s.failed = len(failed)
	return s
}

// replaces says whether a Machine was created after an earlier deletion.
func (s deletions) replaces(o remediate.Origin) bool {
	return !s.first.IsZero() && !o.Created.IsZero() && o.Created.After(s.first.Add(-createdSlack))
}

// replacements holds which Machines were never Ready, as far as this daemon saw since its
// start. A Machine that was not Ready at the start counts as such. The lock of the Objects
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

// recordNew records the Machines that are seen for the first time. Call it before the ledger
// applies the changes, and recordReady after that.
func (s replacements) recordNew(l *policy.Ledger, changes []policy.Change) {
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

// recordReady records the Machines whose Nodes are Ready.
func (s replacements) recordReady(l *policy.Ledger, changes []policy.Change) {
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
	if _, at := ReadyCondition(n); !at.IsZero() && at.Before(m.Created.Add(-createdSlack)) {
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
