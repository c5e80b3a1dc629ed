package remediate

import "time"

const daemonAwayNote = "fenced could not send On in time: the daemon or its store was away"

// daemonWasAway says whether the time for On ran out while no daemon could send it. That says
// nothing about the host. So it gets its whole time again, before its Machine is replaced or a
// person is called for a host that only needs to be switched on. // I20
func daemonWasAway(r Run, s Observation, now time.Time) bool {
	last := later(r.Intent.At, later(r.StepStarted, r.Isolated.Add(r.Limits.PodsGoneTimeout)))
	mayCommand := s.Identity != No && (!belowOffLevel(r) || !levelUnreachable(s) || onPending(r))
	return mayCommand && now.Sub(last) > daemonAwayFor
}
