package remediate

import (
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/reason"
)

// people is what persons have ordered, and the oracle's notes about that.
type people struct {
	held            bool // a person holds the target
	withdrawn       bool // nobody asks for the run any more
	dropped         bool // the request was deleted ...
	droppedGone     bool // ... while no kubelet had a Node, which fenced had isolated
	aborted, closed bool // an abort was ordered; as it is
	recheck         bool // step 1 was begun over, and no Off was sent since

	confirmation bool // a person gave a confirmation, and no On was sent since
	based        bool // the Lease was shown since the confirmation ...
	moved        bool // ... and has moved since then
	against      bool // a saved answer was told something that contradicts the confirmation
	hint         bool // the present look was told so
	quiet        int8 // seconds since the Lease was shown first, at most 20
	leftOff      bool // the Node was isolated on a confirmation, and nobody has ordered the host back
	wanted       bool // a person wants the host back, and nobody has ordered step 1 again
}

// refusesOrder are the orders that the engine refuses of a run that they make no sense for.
var refusesOrder = map[fault]func(Run) (ok bool, why string){
	abortOrder: CanAbort, closeOrder: CanClose, retryOrder: CanRetry, confirmOrder: CanConfirm,
}

// mayOrder says whether an order makes sense now; the engine refuses it otherwise.
func (w *world) mayOrder(r *Run, f fault) bool {
	switch {
	case f == holdOrder || f == releaseOrder:
		return w.held == (f == releaseOrder)
	case f == withdraw:
		return !w.withdrawn
	case f == dropRequest:
		return !w.dropped
	case f == askAgain:
		return w.withdrawn || w.dropped
	}
	if may := refusesOrder[f]; may != nil {
		can, _ := may(*r)
		return can
	}
	return true
}

// order lets a person's order arrive: the engine adds it to the saved record.
func (v *variant) order(w *world, r Run, f fault) Run {
	o := &Order{Actor: "a", Reason: "b", At: w.time()}
	switch f {
	case holdOrder, releaseOrder:
		w.held = f == holdOrder
	case withdraw:
		w.withdrawn = true
	case dropRequest:
		w.drop()
	case askAgain:
		w.withdrawn, w.dropped, w.droppedGone = false, false, false
	case abortOrder:
		r.Abort, w.aborted, w.leftOff, w.wanted = o, true, false, true
	case closeOrder:
		o.AsIs = true
		r.Abort, w.closed = o, true
	case retryOrder:
		w.leftOff, w.wanted = false, false
		r.Retry, w.recheck = o, r.Step.Idle() && r.Isolated.IsZero()
	case confirmOrder:
		w.wanted = false
		w.personConfirms(v)
		r.Confirmed, w.recheck = o, true
	}
	return r
}

// personConfirms is a person who switches the host off, by whatever means, and says so.
func (w *world) personConfirms(v *variant) {
	if !v.mistaken {
		w.power(false)
	}
	w.confirmation, w.based, w.moved, w.against, w.quiet = true, false, false, false, 0
}

// shown notes what a look tells about a confirmation.
func (w *world) shown(s Observation) {
	w.hint = false
	if !w.confirmation {
		return
	}
	if s.API == APIReachable && !w.based {
		w.based, w.moved, w.quiet = true, false, 0
	}
	w.hint = s.Power.State == bmc.On || s.LowerLevelOn != "" || s.Node.Ready == Yes || s.API == APIReachable && w.moved
}

// answered notes an answer that was saved, before it is acted upon.
func (w *world) answered(r Run, a Action) {
	w.against = w.against || w.hint
	switch a {
	case SendOff:
		w.recheck = false
	case SendOn:
		w.confirmation, w.leftOff = false, w.leftOff && r.Step.Idle()
	}
	if r.Step == RestoreNode || r.Abandon != "" { // given up, and then found to be isolated after all
		w.leftOff = false
	}
}

func (p *people) tick() {
	if p.based {
		p.quiet = min(p.quiet+1, 20)
	}
}

// onConfirmation judges an isolation that no BMC has proven. // I26
func (w *world) onConfirmation(r Run, s Observation) (bad []string) {
	switch {
	case !w.confirmation || r.Confirmed == nil:
		bad = append(bad, "I26: isolated without a proof and without a manual confirmation")
	case w.against || w.hint:
		bad = append(bad, "I26: isolated on a confirmation that something speaks against")
	case !w.based || w.quiet < 15:
		bad = append(bad, "I26: isolated on a confirmation before the Lease has stood still")
	case r.ControlPlane && s.Quorum != Yes:
		bad = append(bad, "I12: isolated on a confirmation without a quorum to spare")
	case s.Contested != No:
		bad = append(bad, "I22: isolated on a confirmation while contested")
	}
	return bad
}

// onOrders judges what an answer makes of people's orders.
func (v *variant) onOrders(w *world, r, r2 Run, s Observation, a Action) (bad []string) {
	switch {
	case r.Confirmed != nil && r2.Confirmed == nil:
		bad = append(bad, "I26: the confirmation is taken off the record")
	case a == SendOff && w.recheck && r.Confirmed == nil && r.Attempt == 1 && s.Justified != Yes:
		bad = append(bad, "I4: Off after a retry without a fresh reason")
	case a == SendOff && w.wanted && r.Attempt == 1:
		bad = append(bad, "Off after a person wanted the host back")
	case (a == SendOn || r2.Step == PowerOn) && r2.Abandon == "" && w.leftOff && !w.ordered:
		bad = append(bad, "I26: a host that a person confirmed off is switched on unasked")
	case r2.Step == PowerOn && confirmationActive(r) && !restoreRequested(r):
		bad = append(bad, "I26: given up on a manual confirmation, and switched on unasked")
	case a == DeleteTargetMachine && w.aborted && !w.ordered && !v.deleteOnly && r.Retry == nil:
		bad = append(bad, "a run that was given up deletes a Machine")
	case r2.Step == Aborted && r2.Reason == reason.ClosedAsIs && !w.closed:
		bad = append(bad, "closed as it is, and nobody asked for that")
	}
	return bad
}

// onClosed judges the end that a person wanted: only our hold must be gone.
func (v *variant) onClosed(w *world, r Run, bad *[]string) bool {
	if r.Reason != reason.ClosedAsIs {
		return false
	}
	if v.feedsAnother && w.contradicted && w.cut != [2]bool{} { // I20
		*bad = append(*bad, "closed as it is: another machine's outlet is off, and we switched it off")
	}
	return true
}

var (
	people5 = []fault{abortOrder, closeOrder, retryOrder, holdOrder, releaseOrder}
	words   = []fault{confirmOrder, foreignOn, abortOrder, unfenceOrder, retryOrder}
)

// ordersGiven are the searches of people's orders.
var ordersGiven = []variant{
	{name: "orders", states: 11_300, faults: join(crashes, people5, []fault{unfenceOrder, lostAPI}), budget: 3, want: "Done"},
	{name: "orders: Metal3, taint", states: 6_800, isolation: IsolateTaint, bmh: true, faults: join(crashes, people5, []fault{unfenceOrder}), budget: 3, want: "Done"},
	{name: "orders: never off", states: 10_700, ignoresOff: true, faults: join(crashes, people5, []fault{foreignOff, foreignOn}), budget: 2, want: "Held PowerOffFailed"},
	{name: "orders: off only", states: 11_400, offOnly: true, faults: join(crashes, people5, []fault{unfenceOrder, confirmOrder}), budget: 3, want: "Held OperatorOff"},
	{name: "orders: attempts used up", states: 15_000, badBoots: 2, noReplace: true, maxAttempts: 2, faults: join(people5, []fault{crashAfterSave, unfenceOrder}), budget: 2, want: "Held AttemptsExhausted"},
	{name: "orders: delete the Machine", states: 210, deleteOnly: true, faults: join(engine, people5, []fault{outageLong}), budget: 2, want: "Reprovisioned"},
	{name: "orders: outlets", states: 15_500, levelled: levelled{levels: 2, afterMains: bmc.Off}, ignoresOff: true, faults: join(crashes, people5), budget: 2, runTimeout: 5 * time.Minute, want: "Done"},
	{name: "orders: another machine's outlets", states: 10_900, levelled: levelled{levels: 2, feedsAnother: true}, ignoresOff: true, faults: people5, budget: 2, runTimeout: 5 * time.Minute, want: "Held OutletContradicted"},
	{name: "confirmed: the BMC chokes", states: 34_000, levelled: levelled{bmc: chokes}, faults: join(crashes, words, []fault{lostAPI}), budget: 3, want: "Held BMCUnreachable"},
	{name: "confirmed: given at the start", states: 17_000, confirmedAtStart: true, levelled: levelled{bmc: dead}, faults: join(engine, words, []fault{lostAPI, conflict}), budget: 2, want: "Held ConfirmedOff"},
	{name: "confirmed: given at the start, Metal3, taint", states: 21_000, confirmedAtStart: true, isolation: IsolateTaint, bmh: true, levelled: levelled{bmc: dead}, faults: join(crashes, words, []fault{pause, resume}), budget: 2, want: "Held ConfirmedOff"},
	{name: "confirmed: wrong about a living host", states: 770, confirmedAtStart: true, mistaken: true, sick: true, levelled: levelled{bmc: dead}, faults: join(engine, words, []fault{lostAPI}), budget: 2, want: "Held ConfirmedOffContradicted"},
	{name: "confirmed: wrong, and the BMC reads On", states: 1_400, confirmedAtStart: true, mistaken: true, faults: join(engine, words, []fault{lostPower}), budget: 2, want: "Held ConfirmedOffContradicted"},
	{name: "confirmed: the BMC answers, and proves it", states: 11_000, confirmedAtStart: true, faults: join(engine, words, []fault{lostPower}), budget: 2, want: "Held ConfirmedOff"},
	{name: "confirmed: never off", states: 19_000, ignoresOff: true, faults: join(crashes, words, []fault{lostPower}), budget: 3, want: "Held PowerOffFailed"},
	{name: "confirmed: control plane", states: 36_000, confirmedAtStart: true, control: true, isolation: IsolateTaint, levelled: levelled{bmc: dead}, faults: join(crashes, words, []fault{memberLost, memberBack, outageLong}), budget: 2, want: "Held ConfirmedOff"},
	{name: "confirmed: two levels, nothing answers", states: 17_000, confirmedAtStart: true, levelled: levelled{levels: 2, bmc: dead, outlet: dead}, faults: join(crashes, words, []fault{lostAPI}), budget: 2, want: "Held ConfirmedOff"},
	{name: "confirmed: two levels, wrong, the BMC is heard again", states: 1_200, confirmedAtStart: true, mistaken: true, levelled: levelled{levels: 2, bmc: booting, outlet: dead}, faults: join(engine, words, []fault{lostPower, lostAPI}), budget: 2, want: "Held ConfirmedOffContradicted"},
}

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
