package remediate

import "time"

// waitMutants are broken forms of the rules about runs that wait.
var waitMutants = []mutant{
	{"calls a person for what heals", "L5: a person is called for", variant{name: "m", retry: time.Second, ignoresOff: true, want: triesAgain}, func(r Run, s Observation, now time.Time) (Run, Action, time.Duration) {
		r.Limits.RetryInterval = 0
		r2, a, wait := Next(r, s, now)
		r2.Limits.RetryInterval = time.Second
		return r2, a, wait
	}},
	{"is never due", "L1: the run never ends", variant{name: "m", retry: time.Second, ignoresOff: true, want: triesAgain}, saying(func(_ Run, _ Observation, r2 *Run, _ *Action, _ time.Time) {
		if r2.Step == Waiting && r2.Wait.Due {
			w := *r2.Wait
			w.Due = false
			r2.Wait = &w
		}
	})},
	{"fences again what a person wanted back", "Off after a person wanted the host back", variant{name: "m", retry: time.Second, ignoresOn: true, noReplace: true, faults: []fault{unfenceOrder}, budget: 1, want: triesAgain}, saying(func(_ Run, _ Observation, r2 *Run, _ *Action, _ time.Time) {
		if r2.Step == Waiting {
			r2.Abandon, r2.AbandonTo = "", ""
			w := *r2.Wait
			w.Due = true
			r2.Wait = &w
		}
	})},
	{"takes back a Node that did not register anew", "I6: accepted a Node that did not register anew", variant{name: "m", retry: time.Second, badBoots: 9, noReplace: true, isolation: IsolateTaint, want: triesAgain}, func(r Run, s Observation, now time.Time) (Run, Action, time.Duration) {
		if r.Step == Waiting && !r.Isolated.IsZero() && s.Node.Exists == Yes {
			s.Node.BootID += "x"
		}
		return Next(r, s, now)
	}},
}
