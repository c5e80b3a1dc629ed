package remediate

import (
	"time"

	"github.com/fenced/fenced/internal/bmc"
)

// outlets is a world whose BMC ignores Off, so that the second level is needed.
func outlets(l levelled, faults ...fault) variant {
	l.levels = 2
	return variant{name: "m", levelled: l, ignoresOff: true, faults: faults, budget: 2}
}

// uncontradicted is Next which in a step believes each level, now and before.
func uncontradicted(in Step) nextFunc {
	return func(r Run, s Observation, now time.Time) (Run, Action, time.Duration) {
		if r.Step == in {
			s.Power.Contradicted, r.Contradicted = false, nil
		}
		return Next(r, s, now)
	}
}

// levelMutants are broken forms of the rules about power levels.
var levelMutants = []mutant{
	{"carries the proof to the next level", "I1: isolated without two Off reads", outlets(levelled{}), seeing(func(r Run, s *Observation, _ time.Time) {
		if r.Level > 0 && s.Power.State == bmc.Off {
			s.OffAccepted, s.Proof = true, provenBy(s.Power.At)
		}
	})},
	{"an Off outlives a restart of its BMC", "I1: isolated without an acknowledged Off", variant{name: "m", levelled: levelled{bmc: slow, trusts: true}, faults: []fault{newSession}, budget: 1}, Next},
	{"believes what another level reads", "I1: isolated on what another level read", outlets(levelled{keeps: true}, foreignOff), seeing(func(r Run, s *Observation, _ time.Time) {
		s.Level = r.Level
	})},
	{"overlooks the witness", "I1: isolated", outlets(levelled{outlet: liar}), seeing(func(_ Run, s *Observation, _ time.Time) {
		if s.Power.Contradicted {
			s.Power.State, s.Power.Contradicted, s.Proof = bmc.Off, false, provenBy(s.Power.At)
		}
	})},
	{"takes outlets for the host's while its BMC reads On", "I8: Off to outlets", outlets(levelled{feedsAnother: true}), uncontradicted(PowerOff)},
	{"takes a BMC that is on for outlets that are", "Aborted Paused: another machine's outlet is off", outlets(levelled{feedsAnother: true}, pause, deaf), uncontradicted(PowerOn)},
	{"gives up what is pending at another machine", "Aborted OutletContradicted: another machine's outlet is off", outlets(levelled{feedsAnother: true, outlet: jammed}, foreignOff, foreignOn), uncontradicted(Held)},
	{"takes one outlet for two", "I1: isolated", outlets(levelled{outlet: stuck}), seeing(func(_ Run, s *Observation, _ time.Time) {
		if s.Power.Partial {
			s.Power.State, s.Power.Partial, s.Proof = bmc.Off, false, provenBy(s.Power.At)
		}
	})},
	{"forgets which level was given an Off", "I20: Held", outlets(levelled{}, pause), saying(func(_ Run, _ Observation, r2 *Run, _ *Action, _ time.Time) {
		if r2.Step == PowerOn || r2.Step == Held {
			r2.Level, r2.OffLevel = 0, 0
		}
	})},
	{"skips the way down", "Aborted : the host is off", outlets(levelled{afterMains: bmc.Off}, pause), saying(func(r Run, _ Observation, r2 *Run, _ *Action, now time.Time) {
		if r.Abandon != "" && r.Step == PowerOn && r2.Level < r.Level {
			*r2, _, _ = finish(*r2, Aborted, "", "", now)
		}
	})},
	{"takes a BMC that died for a host that is on", "Aborted : the host is off", outlets(levelled{bmc: dies, afterMains: bmc.Off}, pause), saying(func(r Run, s Observation, r2 *Run, _ *Action, now time.Time) {
		if r.Abandon != "" && r2.Step == Held && levelUnreachable(s) && belowOffLevel(r) {
			*r2, _, _ = finish(*r2, Aborted, "", "", now)
		}
	})},
	{"does not walk in Held", "I20: Held", outlets(levelled{bmc: sleepy, afterMains: bmc.Off}, pause), saying(func(r Run, _ Observation, r2 *Run, _ *Action, _ time.Time) {
		if r.Step == Held && r2.Step == Held {
			r2.Level = r.Level
		}
	})},
	{"sends no On to an outlet that reads On", "Aborted", outlets(levelled{outlet: slow}, pause), func(r Run, s Observation, now time.Time) (Run, Action, time.Duration) {
		if r.Step == PowerOn && s.Power.State == bmc.On && r.Level > 0 {
			r.Intent.Action, r.StepStarted = SendOn, r.StepStarted.Add(-time.Hour)
		}
		return Next(r, s, now)
	}},
	{"does not wait for a late Off", "Aborted Paused: the host is off", variant{name: "m", levelled: levelled{bmc: slow}, faults: []fault{pause}, budget: 1},
		func(r Run, s Observation, now time.Time) (Run, Action, time.Duration) {
			if r.Step == PowerOn && s.Power.State == bmc.On {
				r.StepStarted = r.StepStarted.Add(-time.Hour)
			}
			return Next(r, s, now)
		}},
}
