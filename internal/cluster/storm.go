package cluster

import (
	"time"

	"github.com/fenced/fenced/internal/policy"
)

// checkKey identifies a check, and distinguishes it from a later one of the same name.
type checkKey struct {
	id  policy.CheckID
	uid string
}

// storms holds the state of each check's storm recovery. The lock of the Objects protects it.
type storms map[checkKey]policy.Storm

// applyTo copies the known storm state into a check that was read again. seenSince is when
// this daemon started, or when its view became complete after an outage.
func (s storms) applyTo(ch *policy.Change, seenSince time.Time) {
	check, ok := ch.Value.(*policy.Check)
	if !ok || check == nil {
		if ch.Err == nil {
			s.forget(ch.ID)
		}
		return
	}
	storm, known := s[checkKey{check.ID(), check.UID}]
	if !known {
		storm = unknownStorm(check, seenSince)
	}
	if storm != check.Storm {
		with := *check
		with.Storm = storm
		ch.Value = &with
	}
}

// unknownStorm is the storm state assumed for a check without a known one: a storm whose
// cooldown began at seenSince.
func unknownStorm(check *policy.Check, seenSince time.Time) policy.Storm {
	if check.StormCooldown == 0 || check.Storm != (policy.Storm{}) { // the status of the check says it
		return check.Storm
	}
	return policy.Storm{Active: true, CooldownSince: seenSince.Round(0).UTC()}
}

// forget drops the state of a check that is gone.
func (s storms) forget(gone policy.ObjectID) {
	for k := range s {
		if k.id.Kind == gone.Kind && k.id.APIVersion == gone.APIVersion && k.id.Namespace == gone.Namespace && k.id.Name == gone.Name {
			delete(s, k)
		}
	}
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
// state of its storm, on whatever line it stands now.
func (o *Objects) ReplaceFiles(f Files, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	was := map[string]policy.Storm{}
	for k, storm := range o.storms {
		if isFromFile(k.id) {
			was[CheckID(k.id)] = storm
			delete(o.storms, k)
		}
	}
	checks := append([]policy.Check(nil), f.Checks...)
	for i := range checks {
		if storm, known := was[CheckID(checks[i].ID())]; known {
			checks[i].Storm = storm
			o.storms[checkKey{checks[i].ID(), checks[i].UID}] = storm
		}
	}
	o.ledger.SetFiles(now, checks, f.Budgets)
	o.filesRefused = f.Refused
}

func isFromFile(id policy.CheckID) bool { return id.Source != "" && id.Source != "cluster" }
