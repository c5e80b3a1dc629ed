package remediate

import (
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/reason"
)

// confirmedWorld is a world in which a manual confirmation begins the run, and no BMC answers.
func confirmedWorld(v variant, faults ...fault) variant {
	v.name, v.confirmedAtStart, v.faults, v.budget = "m", true, faults, len(faults)
	if v.bmc == sound {
		v.bmc = dead
	}
	return v
}

// peopleMutants are broken forms of the rules about people's orders.
var peopleMutants = []mutant{
	{"isolates on nobody's confirmation", "I26: isolated without a proof and without", variant{name: "m", levelled: levelled{bmc: chokes}}, func(r Run, s Observation, now time.Time) (Run, Action, time.Duration) {
		if r.Intervened && r.Step != Held {
			r.Confirmed = &Order{At: clock(0)}
			r.Confirmation = &OffConfirmation{Given: clock(0), Since: clock(0), Lease: s.Lease}
			if s.Power.State == bmc.On {
				s.Power.State = bmc.Unknown
			}
		}
		r2, a, wait := Next(r, s, now)
		r2.Confirmed, r2.Confirmation = nil, nil
		return r2, a, wait
	}},
	{"takes the confirmation off the record", "I26: the confirmation is taken off", confirmedWorld(variant{}), saying(func(_ Run, _ Observation, r2 *Run, _ *Action, _ time.Time) {
		if r2.Step == Held {
			r2.Confirmed = nil
		}
	})},
	{"does not wait for the Lease on a confirmation", "I26: isolated on a confirmation before", confirmedWorld(variant{}), func(r Run, s Observation, now time.Time) (Run, Action, time.Duration) {
		if r.Step == PowerOff {
			r.StepStarted = r.StepStarted.Add(-answerTime)
		}
		if r.Confirmation != nil && !r.Confirmation.Since.IsZero() {
			w := *r.Confirmation
			w.Since = w.Since.Add(-leaseQuietFor)
			r.Confirmation = &w
		}
		return Next(r, s, now)
	}},
	{"overlooks an On read on a confirmation", "I26: isolated on a confirmation that", confirmedWorld(variant{mistaken: true, levelled: levelled{bmc: slow}}), seeing(func(r Run, s *Observation, _ time.Time) {
		if s.Power.State == bmc.On {
			s.Power.State, s.PowerError, s.Identity = bmc.Unknown, bmc.KindUnreachable, CannotTell
		}
	})},
	{"overlooks a heartbeat on a confirmation", "I26: isolated on a confirmation that", confirmedWorld(variant{mistaken: true, sick: true}), func(r Run, s Observation, now time.Time) (Run, Action, time.Duration) {
		if r.Confirmation != nil {
			w := *r.Confirmation
			w.Lease, s.Lease.Known = s.Lease, s.Lease.Known || s.API == APIReachable
			r.Confirmation, r.OffLease = &w, nil
		}
		return Next(r, s, now)
	}},
	{"hears only the level in use on a confirmation", "I26: isolated on a confirmation that", confirmedWorld(variant{mistaken: true, levelled: levelled{levels: 2, bmc: booting, outlet: dead}}), seeing(func(_ Run, s *Observation, _ time.Time) { s.LowerLevelOn = "" })},
	{"forgets the hold on a confirmation", "isolated while Metal3", confirmedWorld(variant{bmh: true}), seeing(func(_ Run, s *Observation, _ time.Time) { s.PowerLock = Yes })},
	{"forgets the quorum on a confirmation", "I12: isolated on a confirmation", confirmedWorld(variant{control: true, isolation: IsolateTaint}, memberLost), seeing(func(_ Run, s *Observation, _ time.Time) { s.Quorum = Yes })},
	{"switches on what a person left off", "I26: a host that a person confirmed off", confirmedWorld(variant{}), saying(func(r Run, _ Observation, r2 *Run, a *Action, now time.Time) {
		if r.Step == Held && r.Reason == reason.ConfirmedOff {
			*r2, *a, _ = resumeAtPowerOn(r, "", now)
		}
	})},
	{"switches on what it gives up on a confirmation", "I26: given up on a manual confirmation", confirmedWorld(variant{bmh: true}, pause), saying(func(r Run, _ Observation, r2 *Run, a *Action, now time.Time) {
		if confirmationActive(r) && r2.Step == Held && r2.LeaveOff && r2.Isolated.IsZero() {
			*r2, *a, _ = enter(*r2, PowerOn, "", now)
		}
	})},
	{"closes a run and leaves its hold", "Aborted ClosedAsIs: the hold stands", variant{name: "m", bmh: true, offOnly: true, faults: []fault{closeOrder}, budget: 1}, seeing(func(r Run, s *Observation, _ time.Time) {
		if r.Abort != nil {
			s.PowerLock = No
		}
	})},
	{"retries without a reason", "I4: Off after a retry", variant{name: "m", ignoresOff: true, ignoresOn: true, faults: []fault{foreignOff, retryOrder, lostAPI}, budget: 3}, func(r Run, s Observation, now time.Time) (Run, Action, time.Duration) {
		r.Revalidate = false
		return Next(r, s, now)
	}},
	{"goes on to step 6 after an abort", "a run that was given up", variant{name: "m", badBoots: 9, faults: []fault{abortOrder}, budget: 1}, saying(func(_ Run, _ Observation, r2 *Run, _ *Action, _ time.Time) {
		r2.Limits.Reprovision = true
	})},
	{"works through a hold", "I23", basic(holdOrder), seeing(func(_ Run, s *Observation, _ time.Time) { s.Paused = false })},
	{"closes of its own accord", "closed as it is, and nobody", basic(), saying(func(r Run, _ Observation, r2 *Run, _ *Action, now time.Time) {
		if r2.Step == AwaitNode {
			*r2, _, _ = finish(*r2, Aborted, reason.ClosedAsIs, "", now)
		}
	})},
}
