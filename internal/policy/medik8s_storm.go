package policy

import (
	"fmt"
	"time"

	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/times"
)

// next returns the state of the storm after the limit was evaluated. An exceeded
// limit starts a storm and ends every cooldown. The first evaluation that is
// within the limit again starts the cooldown. quiet is when the cooldown ends;
// zero if none runs.
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

// updateStorm applies the storm rule to an evaluated check. As in medik8s, the
// state does not change while no Node is unhealthy, while the check is paused and
// during an upgrade. So a storm whose Nodes all recover delays the next incident.
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
	// The cooldown is over at that very instant, unlike a timeout; medik8s still
	// adds a second to the recheck.
	r.Due, r.RecheckAfterSeconds = times.Sooner(r.Due, quiet), recheck(quiet.Add(1), now)
}
