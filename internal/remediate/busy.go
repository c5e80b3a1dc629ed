package remediate

import (
	"time"

	"github.com/fenced/fenced/internal/bmc"
)

// recordBusy keeps the time of step 1 from running while the BMC has no session free or asks to be
// tried later. Where there is another power level, that is used instead of waiting.
func recordBusy(r Run, s Observation, now time.Time) Run {
	if r.Step != PowerOff || !r.TouchedHost() {
		return r
	}
	busy := (s.PowerError == bmc.KindSessions || s.PowerError == bmc.KindBusy) && s.LevelRefusal == "" && !hasNextLevel(r)
	switch {
	case busy && r.BusySince.IsZero():
		r.BusySince = now
	case !busy && !r.BusySince.IsZero():
		r.StepStarted = r.StepStarted.Add(min(now.Sub(r.BusySince), busyAtMost))
		r.BusySince = time.Time{}
	}
	return r
}
