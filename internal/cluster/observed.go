package cluster

import (
	"maps"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/times"
)

// What this instance has seen of the objects since its start, and what no object says itself.

// stableUntil is, by Node, when the last period of at least healthyReset of Ready ended. The
// lock of the Objects protects it.
type stableUntil map[string]time.Time

// recordTransitions records the Nodes that become not Ready after such a period. Call it
// before the ledger applies the changes.
func (s stableUntil) recordTransitions(l *policy.Ledger, now time.Time, changes []policy.Change) {
	for i := range changes {
		n, ok := changes[i].Value.(*policy.Node)
		if !ok || n == nil || n.Ready() {
			continue
		}
		before := l.Node(n.Name)
		if before == nil || !before.Ready() {
			continue
		}
		was, _ := before.Condition("Ready")
		is, _ := n.Condition("Ready")
		if from, until := was.LastTransition, is.LastTransition; !from.IsZero() && until.Sub(from) >= healthyReset && !until.After(now) {
			s[n.Name] = until
		}
	}
}

// replacements holds which Machines were never Ready, as far as this daemon saw since its
// start. A Machine that was not Ready at the start counts as such. The lock of the Objects
// protects it.
type replacements struct {
	neverReady map[string]bool // by UID of the Machine
	// lastGood is when the newest Machine was created that has been Ready.
	lastGood map[controller]time.Time
}

// controller is the owner that recreates Machines. It is in their namespace: whoever may write Machines in another one may name any UID
// there, and says nothing about the Machines here. // I11
type controller struct{ apiGroup, namespace, uid string }

func controllerOf(apiVersion, namespace, uid string) controller {
	group, _, _ := strings.Cut(apiVersion, "/")
	return controller{group, namespace, uid}
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
	if ready, _ := n.Condition("Ready"); !ready.LastTransition.IsZero() && ready.LastTransition.Before(m.Created.Add(-createdSlack)) {
		return
	}
	delete(s.neverReady, m.UID)
	if of := controllerOf(m.APIVersion, m.Namespace, m.ControllerOwner.UID); of.uid != "" {
		s.lastGood[of] = times.Later(s.lastGood[of], m.Created)
	}
}

// originOf returns what a run records about its Machine; nil without a Machine.
func (s replacements) originOf(m *policy.Machine) *remediate.Origin {
	if m == nil {
		return nil
	}
	return &remediate.Origin{Controller: m.ControllerOwner.UID, Created: m.Created.UTC(), NeverReady: s.neverReady[m.UID]}
}

// checkKey identifies a check, and distinguishes it from a later one of the same name.
type checkKey struct {
	id  policy.CheckID
	uid string
}

// storms holds the state of each check's storm recovery. The lock of the Objects protects it.
type storms map[checkKey]policy.Storm

// assumed copies the known storm state into the checks that were read again. Without a known one it assumes a storm whose
// cooldown began at seenSince, which is when this daemon started, or when its view became complete after an outage.
func (s storms) assumed(changes []policy.Change, seenSince time.Time) []policy.Change {
	for i := range changes {
		ch := &changes[i]
		check, ok := ch.Value.(*policy.Check)
		if !ok || check == nil {
			if gone := ch.ID; ch.Err == nil {
				maps.DeleteFunc(s, func(k checkKey, _ policy.Storm) bool {
					return k.id.Kind == gone.Kind && k.id.APIVersion == gone.APIVersion && k.id.Namespace == gone.Namespace && k.id.Name == gone.Name
				})
			}
			continue
		}
		storm, known := s[checkKey{check.ID(), check.UID}]
		if !known {
			storm = check.Storm
			if check.StormCooldown != 0 && storm == (policy.Storm{}) { // its status does not say either: it may be in one
				storm = policy.Storm{Active: true, CooldownSince: seenSince.Round(0).UTC()}
			}
		}
		if storm != check.Storm {
			with := *check
			with.Storm = storm
			ch.Value = &with
		}
	}
	return changes
}

// update stores the storm state that the ledger has evaluated, and writes it back to the
// checks: the cooldown of a storm can only be computed by one who saw the storm.
func (s storms) update(l *policy.Ledger, now time.Time) {
	for _, r := range l.Counters() {
		check := l.Check(r.ID())
		if check == nil || check.Storm == r.Storm {
			continue
		}
		with := *check
		with.Storm = r.Storm
		s[checkKey{r.ID(), check.UID}] = r.Storm
		l.Apply(now, policy.Change{ID: checkObject(check), Value: &with})
	}
}

// Files are the checks and budgets of policies.d for one cluster.
type Files struct {
	Checks  []policy.Check
	Budgets []policy.DisruptionBudget
	// Refused says which files could not be taken in although they may be for the cluster: a check or a budget of them may
	// be missing. "" if there are none.
	Refused string
}

// ReplaceFiles replaces the checks and budgets from files. A check of the same name keeps the
// state of its storm, in whatever file and on whatever line it stands now. One that is new may have had one before this daemon started.
func (o *Objects) ReplaceFiles(f Files, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	was := map[string]policy.Storm{}
	for k, storm := range o.storms {
		if !policy.FromCluster(k.id.Source) {
			was[withoutFile(CheckID(k.id))] = storm
			delete(o.storms, k)
		}
	}
	checks := append([]policy.Check(nil), f.Checks...)
	for i := range checks {
		if storm, known := was[withoutFile(CheckID(checks[i].ID()))]; known {
			checks[i].Storm = storm
			o.storms[checkKey{checks[i].ID(), checks[i].UID}] = storm
			continue
		}
		found := o.storms.assumed([]policy.Change{{Value: &checks[i]}}, o.started)
		checks[i] = *found[0].Value.(*policy.Check)
	}
	o.ledger.SetFiles(now, checks, f.Budgets)
	o.filesRefused = f.Refused
}
