package policy

import (
	"fmt"
	"time"

	"github.com/fenced/fenced/internal/reason"
)

// next is what is to be remembered of a storm after a look at the limit. A
// breach is a storm, and ends every cooldown; the first look at which the limit
// holds again begins one. quiet is when it will be over; zero when nothing
// holds back.
func (s Storm) next(allowed bool, cooldown time.Duration, now time.Time) (next Storm, quiet time.Time) {
	switch {
	case !allowed:
		return Storm{Active: true}, time.Time{}
	case !s.Active:
		return Storm{}, time.Time{}
	case s.CooldownSince.IsZero():
		s.CooldownSince = now
	}
	quiet = s.CooldownSince.Add(cooldown)
	if now.Before(quiet) {
		return s, quiet
	}
	return Storm{}, time.Time{}
}

// updateStorm applies the storm rule to a judged check. As in the lineage it stands
// still while nobody is sick, while the check is paused and while the cluster
// is upgraded: a storm whose Nodes all recover is remembered, and delays the
// next incident.
func (r *CheckReport) updateStorm(c *Check, st *setting, allowed, sick bool, now time.Time) {
	if c.StormCooldown == 0 || !sick || len(st.refusals) > 0 {
		return
	}
	var quiet time.Time
	r.Storm, quiet = c.Storm.next(allowed, c.StormCooldown, now)
	if quiet.IsZero() {
		return
	}
	r.gate = append(r.gate, reason.StormCooldown)
	r.Message = fmt.Sprintf("more Nodes than allowed were not healthy until %s; nothing new begins before %s, stormCooldownDuration %s",
		stamp(r.Storm.CooldownSince), stamp(quiet), c.StormCooldown)
	// Over at the very instant, unlike a timeout; the lineage adds a second all the same.
	r.Due, r.RecheckAfterSeconds = sooner(r.Due, quiet), recheck(quiet.Add(1), now)
}
