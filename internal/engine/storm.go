package engine

import (
	"time"

	"github.com/fenced/fenced/internal/policy"
)

// checkKey tells a check from another one of the same name that took its place.
type checkKey struct {
	id  policy.CheckID
	uid string
}

// keepStorm gives a check that was read again what is remembered of its storm.
// c.mu is held.
func (c *cluster) keepStorm(ch *policy.Change) {
	check, ok := ch.Value.(*policy.Check)
	if !ok || check == nil {
		if ch.Err == nil {
			c.forgetStorms(ch.ID)
		}
		return
	}
	storm, known := c.storms[checkKey{check.ID(), check.UID}]
	if !known {
		storm = c.unknownStorm(check)
	}
	if storm != check.Storm {
		with := *check
		with.Storm = storm
		ch.Value = &with
	}
}

// unknownStorm is what is taken for the storm of a check that nobody remembers:
// one that was just over when this daemon started, or could see again.
func (c *cluster) unknownStorm(check *policy.Check) policy.Storm {
	if check.StormCooldown == 0 || check.Storm != (policy.Storm{}) { // its status says more
		return check.Storm
	}
	return policy.Storm{Active: true, CooldownSince: later(c.e.started, c.outage).Round(0).UTC()}
}

// forgetStorms drops what is remembered of a check that is gone. c.mu is held.
func (c *cluster) forgetStorms(gone policy.ObjectID) {
	for k := range c.storms {
		if k.id.Kind == gone.Kind && k.id.APIVersion == gone.APIVersion && k.id.Namespace == gone.Namespace && k.id.Name == gone.Name {
			delete(c.storms, k)
		}
	}
}

// rememberStorms feeds what the checks found of their storms back to them: the
// end of a storm is only known by having seen it. c.mu is held.
func (c *cluster) rememberStorms(now time.Time) {
	for _, r := range c.ledger.Counters() {
		check := c.ledger.Check(r.ID())
		if check == nil || check.Storm == r.Storm {
			continue
		}
		with := *check
		with.Storm = r.Storm
		c.storms[checkKey{r.ID(), check.UID}] = r.Storm
		c.ledger.Apply(now, policy.Change{ID: checkObject(check), Value: &with})
	}
}
