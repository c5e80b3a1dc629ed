package remediate

import (
	"testing"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/reason"
)

// withdrawnNow is a look by which nobody asks for the run any more.
func withdrawnNow(_ *Run, s *Observation) {
	s.Withdrawn, s.WithdrawnWhy = Yes, "the check is gone"
}

// laterAttempt is a later attempt before its first command; its host is On and its Node not Ready.
func laterAttempt(r *Run, s *Observation) { again(r, s); s.Node.Ready = No }

// restingAtOn is an idle run that has not isolated its Node, whose host reads On, and whose Node
// is not Ready.
func restingAtOn(r *Run, s *Observation) {
	r.Step, r.Wait, r.Limits.RetryInterval = Waiting, &Wait{Since: r.StepStarted, Code: r.Reason, Count: 1}, minute
	s.Node.Ready = No
	withdrawnNow(r, s)
}

func TestNothingBeginsForARunThatNobodyAsksFor(t *testing.T) { // I4
	both := func(a, b func(*Run, *Observation)) func(*Run, *Observation) {
		return func(r *Run, s *Observation) { a(r, s); b(r, s) }
	}
	play(t, []scene{
		{"before the first command: ends", PowerOff, 5 * sec, both(fresh, withdrawnNow), Aborted, Nothing, "Withdrawn"},
		{"before the first command, not known: waits", PowerOff, 5 * sec, both(fresh, func(_ *Run, s *Observation) { s.Withdrawn = CannotTell }), PowerOff, Nothing, ""},
		{"before a later attempt: rests", PowerOff, 5 * sec, both(laterAttempt, withdrawnNow), Held, Nothing, "Withdrawn"},
		{"before a later attempt, not known: waits", PowerOff, 5 * sec, both(laterAttempt, func(_ *Run, s *Observation) { s.Withdrawn = CannotTell }), PowerOff, Nothing, ""},
		{"before a later attempt, still asked for: Off", PowerOff, 5 * sec, laterAttempt, PowerOff, SendOff, ""},
		{"a later attempt began again, and what is off is ours: on", PowerOff, 5 * sec, both(laterAttempt, func(r *Run, s *Observation) {
			r.Intervened, r.Revalidate, s.Power.State = true, true, bmc.Off
			withdrawnNow(r, s)
		}), PowerOn, Nothing, "Withdrawn"},
		{"after Off, which is not proven: on", PowerOff, 5 * sec, func(r *Run, s *Observation) { on(s); withdrawnNow(r, s) }, PowerOn, Nothing, "Withdrawn"},
		{"proven off: goes on", PowerOff, 5 * sec, withdrawnNow, DeleteNode, Nothing, ""},
		{"on a confirmation: goes on", PowerOff, minute, both(confirmedFor(minute), withdrawnNow), DeleteNode, Nothing, ""},
		{"isolated: comes on", PowerOn, 20 * sec, withdrawnNow, PowerOn, SendOn, ""},
		{"the Node is late: rests", AwaitNode, 11 * minute, func(r *Run, s *Observation) { s.Node = Node{Exists: No}; withdrawnNow(r, s) }, Held, Nothing, "Withdrawn"},
		{"the Node is not Ready in time: rests", RestoreNode, 11 * minute, func(r *Run, s *Observation) { s.Node.Ready = No; withdrawnNow(r, s) }, Held, Nothing, "Withdrawn"},
		{"registers: restored", AwaitNode, minute, withdrawnNow, RestoreNode, Nothing, ""},
		{"attempts used up: the Machine stays", Reprovision, 5 * sec, func(r *Run, s *Observation) {
			r.Reason = reason.AttemptsExhausted
			withdrawnNow(r, s)
		}, Held, Nothing, "AttemptsExhausted"},
		{"attempts used up, not known: waits", Reprovision, 5 * sec, func(_ *Run, s *Observation) { s.Withdrawn = CannotTell }, Reprovision, Nothing, ""},
		{"delete only: ends", Reprovision, 5 * sec, func(r *Run, s *Observation) { r.Strategy = DeleteMachine; withdrawnNow(r, s) }, Aborted, Nothing, "Withdrawn"},
	})
}

func TestIdleRunThatNobodyAsksForEnds(t *testing.T) { // L1
	play(t, []scene{
		{"its host is On: ends", Held, minute, restingAtOn, Aborted, Nothing, "Withdrawn"},
		{"an Off may come late: not yet", Held, 10 * sec, restingAtOn, Waiting, Nothing, "PowerOffFailed"},
		{"its host is off: on first", Held, minute, func(r *Run, s *Observation) { restingAtOn(r, s); s.Power.State = bmc.Off }, Waiting, SendOn, "PowerOffFailed"},
		{"its BMC is silent: waits", Held, minute, func(r *Run, s *Observation) { restingAtOn(r, s); unread(s, bmc.KindUnreachable) }, Waiting, Nothing, "PowerOffFailed"},
		{"its power lock stands: released first", Held, minute, func(r *Run, s *Observation) { restingAtOn(r, s); metal3(r, s, Yes) }, Waiting, ReleasePowerLock, "PowerOffFailed"},
		{"nothing was touched, and its BMC is silent: ends", Held, minute, func(r *Run, s *Observation) {
			restingAtOn(r, s)
			r.Intervened = false
			unread(s, bmc.KindUnreachable)
		}, Aborted, Nothing, "Withdrawn"},
		{"a person is needed: stays", Held, minute, func(r *Run, s *Observation) { r.Reason = reason.FalseOff; restingAtOn(r, s); r.Step = Held }, Held, Nothing, "FalseOff"},
		{"a later attempt: rests under the new reason", Held, minute, func(r *Run, s *Observation) { restingAtOn(r, s); r.Attempt = 2 }, Waiting, Nothing, "Withdrawn"},
		{"its owner wants it off, and step 5 has had its Node: rests", Held, minute, func(r *Run, s *Observation) {
			restingAtOn(r, s)
			r.Isolation, r.Isolated, r.Reason, r.NewNodeUID = IsolateTaint, ago(time.Hour), reason.PowerForbidden, "u1"
			s.Node.BootID, s.Node.OutOfService, s.Power.State, s.OwnerWantsOff = "b2", true, bmc.Off, true
		}, Waiting, Nothing, "PowerForbidden"},
		{"isolated: rests", Held, minute, func(r *Run, s *Observation) { restingAtOn(r, s); r.Isolated = ago(time.Hour) }, Waiting, Nothing, "PowerOffFailed"},
		{"attempts used up: no other one falls due", Held, 9 * time.Hour, func(r *Run, s *Observation) {
			r.Reason, r.Attempt = reason.AttemptsExhausted, 2
			restingAtOn(r, s)
		}, Waiting, Nothing, "AttemptsExhausted"},
	})
}

// The isolation of a run may have been done without an answer or a record: it has saved the Node, which is
// not as it was. Its labels are still owed when nobody asks for the run any more. // I20, I21
func TestIdleRunThatMayHaveIsolatedWaitsForItsNode(t *testing.T) {
	gone := func(r *Run, s *Observation) { restingAtOn(r, s); s.Node = Node{Exists: No} }
	play(t, []scene{
		{"the Node is gone: rests until it registers", Held, minute, gone, Waiting, Nothing, "Withdrawn"},
		{"nobody can tell: rests", Held, minute, func(r *Run, s *Observation) { gone(r, s); s.Node.Exists = CannotTell }, Waiting, Nothing, "Withdrawn"},
		{"the Node has our taint: rests", Held, minute, func(r *Run, s *Observation) { restingAtOn(r, s); taint(r); s.Node.OutOfService = true }, Waiting, Nothing, "Withdrawn"},
		{"the Node registers: restored", Held, minute, func(r *Run, s *Observation) {
			gone(r, s)
			s.Node = Node{Exists: Yes, UID: "u2", BootID: "b2", SystemUUID: "s", Ready: No}
		}, RestoreNode, Nothing, ""},
		{"the store does not say whether it was saved: rests", Held, minute, func(r *Run, s *Observation) { gone(r, s); s.Backup = Backup{Unread: true} }, Waiting, Nothing, "Withdrawn"},
		{"it was never saved: ends", Held, minute, func(r *Run, s *Observation) { gone(r, s); s.Backup = Backup{} }, Aborted, Nothing, "Withdrawn"},
		{"the BareMetalHost was replaced: rests", Held, minute, func(r *Run, s *Observation) {
			gone(r, s)
			metal3(r, s, No)
			r.Target.BareMetalHostUID, s.BareMetalHostUID, s.Withdrawn = "h1", "h2", No
		}, Waiting, Nothing, "TargetChanged"},
		{"the Machine was replaced: ends", Held, minute, func(r *Run, s *Observation) { gone(r, s); s.Machine.UID = "mx" }, Aborted, Nothing, "Withdrawn"},
	})
}

// Whoever asked was told that nothing more is switched: not to know whether somebody asks again is no reason to
// go on. // I22
func TestRunThatWasGivenUpGoesOnOnlyForSomebody(t *testing.T) {
	givenUp := func(r *Run, s *Observation) {
		restingAtOn(r, s)
		r.Isolated, r.Reason, r.Wait = ago(time.Hour), reason.Withdrawn, &Wait{Code: reason.Withdrawn, Count: 1, Since: ago(time.Hour)}
		r.Limits.RetryInterval = time.Minute
		s.Node = Node{Exists: CannotTell}
	}
	play(t, []scene{
		{"nobody asks: rests", Waiting, minute, givenUp, Waiting, Nothing, "Withdrawn"},
		{"nobody can tell: rests", Waiting, minute, func(r *Run, s *Observation) { givenUp(r, s); s.Withdrawn, s.API = CannotTell, APIUnreachable }, Waiting, Nothing, "Withdrawn"},
		{"somebody asks: goes on", Waiting, minute, func(r *Run, s *Observation) { givenUp(r, s); s.Withdrawn = No }, PowerOn, Nothing, ""},
	})
}

func TestPersonsRetryRenewsAFenceByHand(t *testing.T) { // I4
	for actor, want := range map[string]time.Time{"ann": noon, SelfActor: ago(6 * time.Hour)} {
		r, s := begin(Held, minute)
		restingAtOn(&r, &s)
		s.Withdrawn = No
		r.Wait.Since = ago(time.Hour)
		r.Manual = &Order{Actor: "bob", At: ago(6 * time.Hour)}
		r.Retry = &Order{Actor: actor, At: noon}
		before := *r.Manual
		got, _, _ := Next(r, s, noon)
		if got.Step != PowerOff || !got.Manual.At.Equal(want) || *r.Manual != before {
			t.Errorf("retry by %s: step %s, the order is from %s", actor, got.Step, got.Manual.At)
		}
	}
}

// onAsked judges what an answer does to a target that nobody asks for any more. // I4
func onAsked(w world, r Run, s Observation, a Action) (bad []string) {
	switch {
	case a == SendOff && s.Withdrawn == Yes && !confirmationActive(r):
		bad = append(bad, "I4: Off although nobody asks for the run any more")
	case a == SendOff && !r.Intervened && s.Withdrawn != No && !confirmationActive(r):
		bad = append(bad, "I4: a first Off, and it is not known whether anybody asks for it")
	case a == DeleteTargetMachine && (w.withdrawn || s.Withdrawn != No):
		bad = append(bad, "I14: the Machine is replaced although nobody asks for that any more")
	}
	return bad
}

// restsUnasked says whether a run rests for ever that nobody asks for, or whose name another machine
// has, although its Node was not isolated and its host is On: a request that is being deleted would
// wait for it, and the other machine could not be fenced. // L1
func (v variant) restsUnasked(st state) bool {
	r, w := st.rec, st.w
	return (w.withdrawn || w.dropped && !w.droppedGone || w.other) && r.Step == Waiting && r.Attempt == 1 && r.Reason != reason.NodeFinalizer && w.on && v.bmc == sound && v.outlet == sound
}

var asked = []fault{withdraw, askAgain}

// withdrawals are the searches of runs that nobody asks for any more.
var withdrawals = []variant{
	{name: "asked: delete", states: 8000, faults: join(engine, asked, []fault{lostAPI, foreignOn, foreignOff, lie}), budget: 2, want: "Done"},
	{name: "asked: taint, Metal3", states: 13000, isolation: IsolateTaint, bmh: true, faults: join(engine, asked, []fault{lostAPI}), budget: 3, want: "Done"},
	{name: "asked: second attempt", states: 3000, badBoots: 1, maxAttempts: 2, faults: join(engine, asked, []fault{slowBoot, unfenceOrder}), budget: 2, want: "Done"},
	{name: "asked: second attempt, waits", states: 3000, retry: 200 * time.Millisecond, badBoots: 1, maxAttempts: 2, faults: join(crashes, asked, []fault{slowBoot, actFails, foreignOff}), budget: 2, want: "Done"},
	{name: "asked: attempts used up", states: 3000, badBoots: 9, maxAttempts: 2, faults: join(crashes, asked, []fault{slowBoot}), budget: 2, want: "Reprovisioned AttemptsExhausted"},
	{name: "asked: attempts used up, waits", states: 3000, retry: 200 * time.Millisecond, badBoots: 2, noReplace: true, faults: join(asked, []fault{crashAfterSave, slowBoot, retryOrder}), budget: 2, want: "Done"},
	{name: "asked: never off, waits", states: 3000, retry: 200 * time.Millisecond, ignoresOff: true, faults: join(crashes, asked, []fault{foreignOff}), budget: 2, want: triesAgain},
	{name: "asked: a slow BMC, waits", states: 3000, retry: 200 * time.Millisecond, levelled: levelled{bmc: slow}, faults: join(crashes, asked, []fault{outageLong}), budget: 2, want: "Done"},
	{name: "asked: outlets", states: 3000, levelled: levelled{levels: 2, afterMains: bmc.Off}, ignoresOff: true, faults: join(crashes, asked), budget: 2, want: "Done"},
	{name: "asked: delete the Machine", states: 250, deleteOnly: true, faults: join(engine, asked, []fault{lostAPI}), budget: 3, want: "Reprovisioned"},
	{name: "asked: another machine", states: 3_000, retry: 200 * time.Millisecond, faults: join(asked, []fault{crashAfterSave, nameTaken}), budget: 3, want: "Done"},
	{name: "asked: orders", states: 2_600, faults: join(asked, []fault{crashAfterSave, confirmOrder, retryOrder, abortOrder}), budget: 3, want: "Done"},
}

// withdrawalMutants are broken forms of the rules about runs that nobody asks for.
var withdrawalMutants = []mutant{
	{"cuts power for a request that is gone", "I4: Off although nobody asks", variant{name: "m", badBoots: 1, maxAttempts: 2, faults: []fault{withdraw}, budget: 1}, seeing(func(_ Run, s *Observation, _ time.Time) {
		s.Withdrawn = No
	})},
	{"takes not known for asked", "I4: a first Off, and it is not known", variant{name: "m", badBoots: 1, maxAttempts: 2, faults: []fault{lostAPI, withdraw}, budget: 2}, seeing(func(r Run, s *Observation, _ time.Time) {
		if s.Withdrawn == CannotTell && r.Attempt > 1 {
			s.Withdrawn, s.API, s.Contested, s.Node = No, APIReachable, No, Node{Exists: No}
		}
	})},
	{"deletes the Machine of a request that is gone", "I14: the Machine is replaced although", variant{name: "m", badBoots: 9, faults: []fault{withdraw}, budget: 1}, seeing(func(r Run, s *Observation, _ time.Time) {
		if r.Step == Reprovision || r.Step == AwaitNode {
			s.Withdrawn = No
		}
	})},
	{"rests for ever for nobody", "L1: nobody asks", variant{name: "m", retry: 200 * time.Millisecond, ignoresOff: true, faults: []fault{withdraw}, budget: 1}, func(r Run, s Observation, now time.Time) (Run, Action, time.Duration) {
		if r.Step == Waiting && s.Withdrawn == Yes {
			r.StepStarted = now
		}
		return Next(r, s, now)
	}},
	{"ends for nobody with the host off", "Aborted Withdrawn: the host is off", variant{name: "m", faults: []fault{withdraw}, budget: 1}, saying(func(_ Run, _ Observation, r2 *Run, a *Action, now time.Time) {
		if r2.Abandon == reason.Withdrawn {
			*r2, *a, _ = finish(*r2, Aborted, reason.Withdrawn, "", now)
		}
	})},
}
