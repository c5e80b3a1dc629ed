package remediate

import "time"

const unattendedNote = "nobody could command On in time: the daemon or its store was away"

// unattended says whether the time for On ran out while nobody was there to command
// it. That says nothing about the host: it gets its whole time, before a Machine is
// given up or a person called for a host that only needs to be switched on. // I20
func unattended(r Run, s Observation, now time.Time) bool {
	last := later(r.Intent.At, later(r.StepStarted, r.Isolated.Add(r.Limits.PodsGoneTimeout)))
	mayCommand := s.Identity != No && (!belowOffLevel(r) || !levelUnreachable(s) || onPending(r))
	return mayCommand && now.Sub(last) > unattendedBy
}
