package admit

import (
	"time"

	"github.com/fenced/fenced/internal/policy"
)

// checkKey tells a check from another one of the same name that took its place.
type checkKey struct {
	id  policy.CheckID
	uid string
}

// storms is what is remembered of the checks' storms. It has no lock: its Book has.
type storms map[checkKey]policy.Storm

// keep gives a check that was read again what is remembered of its storm. sight is when
// this daemon started, or could see the cluster again.
func (s storms) keep(ch *policy.Change, sight time.Time) {
	check, ok := ch.Value.(*policy.Check)
	if !ok || check == nil {
		if ch.Err == nil {
			s.forget(ch.ID)
		}
		return
	}
	storm, known := s[checkKey{check.ID(), check.UID}]
	if !known {
		storm = unknownStorm(check, sight)
	}
	if storm != check.Storm {
		with := *check
		with.Storm = storm
		ch.Value = &with
	}
}

// unknownStorm is what is taken for the storm of a check that nobody remembers:
// one that was just over at sight.
func unknownStorm(check *policy.Check, sight time.Time) policy.Storm {
	if check.StormCooldown == 0 || check.Storm != (policy.Storm{}) { // its status says more
		return check.Storm
	}
	return policy.Storm{Active: true, CooldownSince: sight.Round(0).UTC()}
}

// forget drops what is remembered of a check that is gone.
func (s storms) forget(gone policy.ObjectID) {
	for k := range s {
		if k.id.Kind == gone.Kind && k.id.APIVersion == gone.APIVersion && k.id.Namespace == gone.Namespace && k.id.Name == gone.Name {
			delete(s, k)
		}
	}
}

// remember feeds what the checks found of their storms back to them: the end of a storm is
// only known by having seen it.
func (s storms) remember(l *policy.Ledger, now time.Time) {
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
