package remediate

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/reason"
)

func TestHeld(t *testing.T) {
	off := func(s *Observation) { s.Power.State, s.Node.Ready = bmc.Off, No }
	healthy := func(r *Run) { r.HealthySince = ago(5 * minute) }
	play(t, []scene{
		{"before the isolation: On", Held, minute, func(r *Run, s *Observation) { off(s) }, Held, SendOn, "PowerOffFailed"},
		{"On once a minute", Held, minute, func(r *Run, s *Observation) { off(s); r.Intent = Intent{SendOn, ago(59 * sec)} }, Held, Nothing, "PowerOffFailed"},
		{"never to another machine's BMC", Held, minute, func(r *Run, s *Observation) { off(s); s.Identity = No }, Held, Nothing, "PowerOffFailed"},
		{"not what we never touched", Held, minute, func(r *Run, s *Observation) { off(s); r.Intervened = false }, Held, Nothing, "PowerOffFailed"},
		{"the hold is released first", Held, minute, func(r *Run, s *Observation) { off(s); metal3(r, s, Yes) }, Held, ReleasePowerLock, "PowerOffFailed"},
		{"after the isolation: waits", Held, minute, func(r *Run, s *Observation) { off(s); r.Isolated = ago(minute) }, Held, Nothing, "PowerOffFailed"},
		{"off on purpose: the hold stays", Held, minute, func(r *Run, s *Observation) { off(s); metal3(r, s, Yes); r.LeaveOff = true }, Held, Nothing, "PowerOffFailed"},
		{"off on purpose: waits", Held, minute, func(r *Run, s *Observation) { off(s); r.LeaveOff = true }, Held, Nothing, "PowerOffFailed"},
		{"healthy for five minutes: the end", Held, time.Hour, func(r *Run, s *Observation) { healthy(r) }, Aborted, Nothing, "PowerOffFailed"},
		{"its power was cut on the way: it has recovered", Held, time.Hour, func(r *Run, s *Observation) { healthy(r); r.SwitchedOff, s.Node.BootID = true, "another" }, Aborted, Nothing, "Recovered"},
		{"an Off was accepted, and the host ran on", Held, time.Hour, func(r *Run, s *Observation) { healthy(r); r.SwitchedOff = true }, Aborted, Nothing, "PowerOffFailed"},
		{"it has booted, and fenced had sent nothing", Held, time.Hour, func(r *Run, s *Observation) { healthy(r); s.Node.BootID = "another" }, Aborted, Nothing, "PowerOffFailed"},
		{"also in a try before", Held, time.Hour, func(r *Run, s *Observation) {
			healthy(r)
			r.Tries, s.Node.BootID = []time.Time{ago(time.Hour)}, "another"
		}, Aborted, Nothing, "Recovered"},
		{"not earlier", Held, time.Hour, func(r *Run, s *Observation) { r.HealthySince = ago(5*minute - 1) }, Held, Nothing, "PowerOffFailed"},
		{"healthy begins now", Held, time.Hour, nil, Held, Nothing, "PowerOffFailed"},
		{"not with our taint on the Node", Held, time.Hour, func(r *Run, s *Observation) { healthy(r); s.Node.OutOfService = true }, Held, Nothing, "PowerOffFailed"},
		{"not with a hold that cannot be read", Held, time.Hour, func(r *Run, s *Observation) { healthy(r); metal3(r, s, CannotTell) }, Held, Nothing, "PowerOffFailed"},
		{"also with another Node of the machine", Held, time.Hour, func(r *Run, s *Observation) { healthy(r); s.Node.UID, s.Backup = "u2", Backup{} }, Aborted, Nothing, "PowerOffFailed"},
		{"fenced may have deleted the one before: its labels come first", Held, time.Hour, func(r *Run, s *Observation) { healthy(r); s.Node.UID, s.Node.BootID = "u2", "b2" }, RestoreNode, Nothing, ""},
		{"the store does not say whether it has", Held, time.Hour, func(r *Run, s *Observation) {
			healthy(r)
			s.Node.UID, s.Node.BootID, s.Backup = "u2", "b2", Backup{Unread: true}
		}, RestoreNode, Nothing, ""},
		{"with another machine's Node it is over, and not healthy", Held, time.Hour, func(r *Run, s *Observation) { s.Node.UID, s.Node.SystemUUID = "u2", "x" }, Aborted, Nothing, "TargetChanged"},
		{"also where the host was left off on a confirmation that has expired", Held, time.Hour, func(r *Run, s *Observation) { healthy(r); r.LeaveOff = true }, Aborted, Nothing, "PowerOffFailed"},
		{"not with a Node being deleted", Held, time.Hour, func(r *Run, s *Observation) { healthy(r); s.Node.Deleting = true }, Held, Nothing, "PowerOffFailed"},
		{"not after the isolation", Held, time.Hour, func(r *Run, s *Observation) { healthy(r); r.Isolated = ago(time.Hour) }, Held, Nothing, "PowerOffFailed"},
		{"in a second attempt labels may be missing", Held, time.Hour, func(r *Run, s *Observation) { healthy(r); r.Attempt, r.NewNodeUID = 2, "u1" }, PowerOn, Nothing, ""},
		{"FalseOff stays frozen", Held, time.Hour, func(r *Run, s *Observation) { healthy(r); r.Reason = "FalseOff" }, Held, Nothing, "FalseOff"},
		{"unfenced before the isolation: given up", Held, time.Hour, func(r *Run, s *Observation) { unfence(r) }, PowerOn, Nothing, "Unfenced"},
		{"unfenced after it: on at step 3", Held, time.Hour, func(r *Run, s *Observation) { unfence(r); r.Isolated, r.LeaveOff = ago(minute), true }, PowerOn, Nothing, ""},
		{"no whole time for a human", Held, time.Hour, func(r *Run, s *Observation) { r.Started = ago(99 * time.Hour) }, Held, Nothing, "PowerOffFailed"},
	})
}

// A host that is left off on purpose is watched: an Off that turns out false freezes it, as in every other
// phase in which it is believed off. Another boot of the same Node is no such sign: somebody has switched the host on. // I5
func TestHostThatIsLeftOffIsWatched(t *testing.T) {
	leftOff := func(code reason.Code) func(r *Run, s *Observation) {
		return func(r *Run, s *Observation) {
			isolatedRun(r, string(code))
			r.LeaveOff, r.OffOnly, r.FoundOff, r.Proof = true, code == reason.OperatorOff, code == reason.FoundOff, ProofBMC
			s.Power.State, s.Node = bmc.Off, Node{Exists: No}
		}
	}
	offOnly := leftOff(reason.OperatorOff)
	tainted := func(r *Run, s *Observation) {
		offOnly(r, s)
		taint(r)
		s.Node = Node{Exists: Yes, UID: "u1", BootID: "b1", SystemUUID: "s", Ready: No, OutOfService: true}
	}
	renewed := func(s *Observation) { s.Lease.ResourceVersion = "v2" }
	registered := func(s *Observation, boot string) {
		s.Node = Node{Exists: Yes, UID: "u2", BootID: boot, SystemUUID: "s", Ready: Yes, Created: noon}
	}
	play(t, []scene{
		{"nothing has moved", Held, minute, offOnly, Held, Nothing, "OperatorOff"},
		{"tainted: its boot renews the Lease", Held, minute, func(r *Run, s *Observation) { tainted(r, s); renewed(s) }, Held, Nothing, "FalseOff"},
		{"tainted: another boot has been switched on", Held, minute, func(r *Run, s *Observation) { tainted(r, s); renewed(s); s.Node.BootID = "b2" }, RestoreNode, Nothing, ""},
		{"tainted, Metal3: the power lock is released first", Held, minute, func(r *Run, s *Observation) {
			tainted(r, s)
			metal3(r, s, Yes)
			renewed(s)
			s.Node.BootID = "b2"
		}, Held, ReleasePowerLock, "OperatorOff"},
		{"the same boot registers again", Held, minute, func(r *Run, s *Observation) { offOnly(r, s); registered(s, "b1") }, Held, Nothing, "FalseOff"},
		{"a Node registers although the BMC says Off", Held, minute, func(r *Run, s *Observation) { offOnly(r, s); registered(s, "b2") }, Held, Nothing, "FalseOff"},
		{"the host reads On: it was switched on", Held, minute, func(r *Run, s *Observation) { offOnly(r, s); registered(s, "b2"); on(s) }, RestoreNode, Nothing, ""},
		{"another machine's Node", Held, minute, func(r *Run, s *Observation) { offOnly(r, s); registered(s, "b2"); s.Node.SystemUUID = "x" }, Held, Nothing, "OperatorOff"},
		{"a lone Lease, once", Held, minute, func(r *Run, s *Observation) { offOnly(r, s); renewed(s) }, Held, Nothing, "OperatorOff"},
		{"a lone Lease, again", Held, minute, func(r *Run, s *Observation) { offOnly(r, s); renewed(s); r.OffLease.Unregistered = true }, Held, Nothing, "FalseOff"},
		{"what a process before has noted", Held, minute, func(r *Run, s *Observation) { tainted(r, s); renewed(s); r.OffLease.Seen = ago(minute) }, Held, Nothing, "OperatorOff"},
		{"found off", Held, minute, func(r *Run, s *Observation) { leftOff(reason.FoundOff)(r, s); registered(s, "b1") }, Held, Nothing, "FalseOff"},
		{"off on a confirmation: that was wrong", Held, minute, func(r *Run, s *Observation) {
			leftOff(reason.ConfirmedOff)(r, s)
			r.Proof = ProofHuman
			registered(s, "b1")
		}, Held, Nothing, "ConfirmedOffContradicted"},
		{"a finalizer keeps the Node", Waiting, minute, func(r *Run, s *Observation) {
			r.Reason, r.LeaveOff, r.Wait = reason.NodeFinalizer, true, &Wait{Since: ago(minute), Code: reason.NodeFinalizer, Count: 1}
			s.Node.Deleting = true
			renewed(s)
		}, Held, Nothing, "FalseOff"},
		{"left off on a confirmation that has expired, before the isolation", Held, minute, func(r *Run, s *Observation) {
			r.LeaveOff, r.Reason = true, reason.Paused
			s.Power.State, s.Node.Ready = bmc.Off, No
			renewed(s)
		}, Held, Nothing, "FalseOff"},
		{"before an order", Held, minute, func(r *Run, s *Observation) { offOnly(r, s); registered(s, "b1"); unfence(r) }, Held, Nothing, "FalseOff"},
	})

	r, s := begin(Held, minute)
	offOnly(&r, &s)
	for i, power := range []bmc.PowerState{bmc.On, bmc.Off, bmc.Off} {
		at := noon.Add(time.Duration(i) * minute)
		if s.Power.State = power; i < 2 {
			s.Proof = s.Proof.Reset().Add(bmc.Reading{State: power, At: at})
		}
		s.Lease.ResourceVersion = fmt.Sprintf("v%d", i+2)
		r, _, _ = Next(r, s, at)
	}
	assert.Equal(t, reason.OperatorOff, r.Reason, "it was on in between: only one renewal is of the time since")

	r, s = begin(Held, minute)
	tainted(&r, &s)
	renewed(&s)
	unfence(&r)
	r, _, _ = Next(r, s, noon)
	assert.False(t, r.LeaveOff, "it is not off")
	r, _, _ = Next(r, s, noon)
	assert.Equal(t, PowerOn, r.Step, "the next look carries the order out")
}

// leftOffWorlds are the searches of BMCs that lie about a host that is left off.
var leftOffWorlds = []variant{
	{name: "off only, a long lie", states: 12_500, offOnly: true, lieFor: 100, faults: join(crashes, power), budget: 2, want: "Held OperatorOff"},
	{name: "off only, a long lie, taint, Metal3", states: 9_600, isolation: IsolateTaint, bmh: true, offOnly: true, lieFor: 100, faults: join(crashes, power, []fault{unfenceOrder}), budget: 2, want: "Held OperatorOff"},
}

var leftOffMutants = []mutant{
	{"does not watch a host that is left off", "I5: a false Off of a host that is left off", variant{name: "m", offOnly: true, lieFor: 100, faults: []fault{foreignOn, lie}, budget: 2}, saying(func(r Run, _ Observation, r2 *Run, a *Action, _ time.Time) {
		if r.Step == Held && r.LeaveOff && r2.Reason == reason.FalseOff {
			*r2, *a = r, Nothing
		}
	})},
}

// triesAgain is the end of a run that waits and tries again for ever, in a world that never heals.
const triesAgain = "tries again"

// waitKey is what the search distinguishes of a pause.
type waitKey struct {
	age, count          int16
	exhausted           bool
	seen, due           bool
	switchedOff, noMore bool
}

func waitKeyOf(v *variant, r *Run, shown int) waitKey {
	k := waitKey{switchedOff: r.SwitchedOff && v.retry > 0, noMore: r.NoMoreAttempts && v.retry > 0}
	if w := r.Wait; w != nil {
		k.count, k.exhausted = int16(min(w.Count, 6)), w.Code == reason.AttemptsExhausted
		if r.Step == Waiting {
			k.age, k.seen, k.due = age(w.Since, shown, 1+int((w.pause(*r)+time.Second-1)/time.Second)), w.CauseSeen, w.Due
		}
	}
	return k
}

// admitAgain is package admit: a Waiting run that is due gets fenced's own order to try again, if
// nothing stops fenced.
func (w *world) admitAgain(r Run) Run {
	if r.Step == Waiting && r.Wait.Due && r.Retry == nil && !w.paused && !w.held && !w.withdrawn && !w.otherLock {
		r.Retry = &Order{Actor: SelfActor, Reason: "due", At: w.time()}
		w.recheck = r.Isolated.IsZero()
	}
	return r
}

// onHeld judges a Held run: it is there for a person. // L5
func (v *variant) onHeld(st *state) (bad []string) {
	r := &st.rec
	class := reason.ClassOf(r.Reason)
	if v.retry > 0 && r.Step == Held && (class == reason.Transient || class == reason.Mended) &&
		r.Confirmed == nil && !(r.NoMoreAttempts && r.Reason == reason.AttemptsExhausted) {
		bad = append(bad, "L5: a person is called for "+string(r.Reason))
	}
	return bad
}

// waits are the searches of runs that wait and go on by themselves.
var waits = []variant{
	{name: "waits: everything twice", retry: 200 * time.Millisecond, faults: join(engine, power, cluster), budget: 2, want: "Done"},
	{name: "waits: taint, Metal3", retry: 200 * time.Millisecond, isolation: IsolateTaint, bmh: true, faults: join(engine, power, cluster), budget: 2, want: "Done"},
	{name: "waits: never off", retry: 200 * time.Millisecond, ignoresOff: true, faults: join(engine, power), budget: 1, want: triesAgain},
	{name: "waits: never on, no fallback", retry: 200 * time.Millisecond, ignoresOn: true, noReplace: true, faults: join(engine, power), budget: 1, want: triesAgain},
	{name: "waits: attempts used up", retry: 200 * time.Millisecond, badBoots: 4, noReplace: true, faults: join(crashes, []fault{slowBoot, lie, foreignOn}), budget: 2, want: "Done"},
	{name: "waits: API away", retry: 200 * time.Millisecond, faults: join(crashes, []fault{outageShort, outageLong, answerLost, foreignOn}), budget: 2, runTimeout: 4 * time.Minute, want: "Done"},
	{name: "waits: API forbids", retry: 200 * time.Millisecond, forbidden: true, faults: join(crashes, []fault{lostPower}), budget: 1, want: "Aborted Recovered"},
	{name: "waits: finalizer", retry: 200 * time.Millisecond, finalizer: 60, faults: join(crashes, []fault{lie, foreignOn, outageLong}), budget: 2, want: "Done"},
	{name: "waits: people", retry: 200 * time.Millisecond, ignoresOff: true, faults: join(crashes, people5, []fault{unfenceOrder, foreignOff}), budget: 2, want: triesAgain},
	{name: "waits: people, never on", retry: 200 * time.Millisecond, ignoresOn: true, noReplace: true, faults: join(crashes, people5, []fault{unfenceOrder, foreignOn}), budget: 2, want: triesAgain},
	{name: "waits: no level switches", retry: 200 * time.Millisecond, levelled: levelled{levels: 2, outlet: stuck}, ignoresOff: true, faults: join(crashes, []fault{lostPower, foreignOff, unfenceOrder}), budget: 1, want: triesAgain},
	{name: "waits: clock ahead", retry: 200 * time.Millisecond, ignoresOff: true, faults: join(crashes, []fault{clockAhead, clockBehind, lostAPI}), budget: 1, want: triesAgain},
	{name: "waits: clocks differ, one ahead", retry: 200 * time.Millisecond, clocksDiffer: wrong, ignoresOn: true, noReplace: true, faults: join(crashes, []fault{outageShort}), budget: 1, want: triesAgain},
	{name: "waits: clocks differ, one behind", retry: 200 * time.Millisecond, clocksDiffer: -wrong, badBoots: 4, noReplace: true, faults: join(crashes, []fault{outageShort, slowBoot}), budget: 1, want: "Done"},
	{name: "waits: the BMC chokes", retry: 200 * time.Millisecond, levelled: levelled{bmc: chokes}, faults: join(crashes, words, []fault{lostAPI}), budget: 2, want: "Waiting BMCUnreachable"},
}

// fenced's own order to retry counts for a moment only: another process that finds it in the
// record has asked no gate. A person's order does not age. // I4, I11
func TestOldOwnRetryIsDropped(t *testing.T) {
	for name, c := range map[string]struct {
		actor string
		age   time.Duration
		want  Step
	}{
		"fresh":             {SelfActor, sec, PowerOff},
		"old":               {SelfActor, minute, Waiting},
		"a person's is not": {"ann", minute, PowerOff},
	} {
		r, s := begin(Held, time.Hour)
		r.Step, r.Limits.RetryInterval, r.Wait = Waiting, minute, &Wait{Since: ago(time.Hour), Code: r.Reason, Count: 1}
		r.Retry = &Order{Actor: c.actor, At: ago(c.age)}
		got, _, _ := Next(r, s, noon)
		assert.Equal(t, c.want, got.Step, name)
		assert.Nil(t, got.Retry, name)
	}
}

// Pauses double from power.retryInterval (1 minute) to 30 times that; after AttemptsExhausted from an
// hour to 24; after RestoreFailed they do not grow. Each is up to a fifth longer, and how much differs between runs, so that runs with one
// cause do not all go on at once.
func TestPausesGrowWithJitter(t *testing.T) {
	for code, want := range map[reason.Code][]time.Duration{
		reason.PowerOffFailed: {minute, 2 * minute, 4 * minute, 8 * minute, 16 * minute,
			30 * minute, 30 * minute, 30 * minute, 30 * minute, 30 * minute},
		reason.AttemptsExhausted: {time.Hour, 2 * time.Hour, 4 * time.Hour, 8 * time.Hour, 16 * time.Hour,
			24 * time.Hour, 24 * time.Hour, 24 * time.Hour, 24 * time.Hour, 24 * time.Hour},
		reason.RestoreFailed: {minute, minute, minute},
	} {
		r := Run{ID: "run", Limits: Limits{RetryInterval: minute, MinPowerInterval: 3 * minute}}
		for i, base := range want {
			r = beginWait(r, code, noon)
			assert.Equal(t, i+1, r.Wait.Count, code)
			longest, lengths := base, map[time.Duration]bool{}
			for id := range 200 {
				each := r
				each.ID = strconv.Itoa(id)
				d := r.Wait.pause(each)
				assert.GreaterOrEqual(t, d, base, "%s %d", code, r.Wait.Count)
				assert.LessOrEqual(t, d, base+base/5, "%s %d", code, r.Wait.Count)
				assert.Equal(t, d, r.Wait.pause(each), "the next try of a run does not move")
				longest, lengths[d] = max(longest, d), true
			}
			assert.Greater(t, longest, base+base/6, "%s %d: the fifth is used", code, r.Wait.Count)
			assert.Greater(t, len(lengths), 32, "%s %d: two runs differ", code, r.Wait.Count)
		}
		other := reason.AttemptsExhausted
		if code == other {
			other = reason.PowerOffFailed
		}
		assert.Equal(t, 1, beginWait(r, other, noon).Wait.Count, "pauses of another kind begin anew")
	}
}

// After an accepted Off the pause is at least guards.minPowerInterval. // I15
func TestPauseAfterAnOffHasAFloor(t *testing.T) {
	r := Run{ID: "run", Limits: Limits{RetryInterval: minute, MinPowerInterval: 3 * minute}}
	for count := 1; count <= 10; count++ {
		w := Wait{Code: reason.PowerOffFailed, Count: count}
		r.SwitchedOff = false
		plain := w.pause(r)
		r.SwitchedOff = true
		assert.Equal(t, max(plain, 3*minute), w.pause(r), count)
	}
	r.SwitchedOff = false
	assert.Less(t, Wait{Code: reason.PowerOffFailed, Count: 1}.pause(r), 3*minute, "the floor counts only then")
}

// A run whose host its owner wants off waits for the owner, however long, and then goes on at
// step 3: the Node is isolated.
func TestRunWaitsForTheOwnerOfItsHost(t *testing.T) { // I20, L5
	for name, c := range map[string]struct {
		wantsOff bool
		want     Step
	}{
		"the owner wants it off":      {true, Waiting},
		"the owner does not any more": {false, PowerOn},
	} {
		r, s := begin(Held, time.Hour)
		r.Step, r.Isolated, r.Reason = Waiting, ago(time.Hour), reason.PowerForbidden
		r.Limits.RetryInterval, r.Wait = minute, &Wait{Since: ago(time.Hour), Code: r.Reason, Count: 1}
		s.Node, s.Power.State, s.OwnerWantsOff = Node{Exists: No}, bmc.Off, c.wantsOff
		got, action, _ := Next(r, s, noon)
		assert.Equal(t, c.want, got.Step, name)
		assert.Equal(t, Nothing, action, name)
	}
}

// A later attempt whose Machine was replaced is taken back. Once its host is On, nothing is left to do: the run does
// not wait for a Machine that is gone, and keep its target from everybody else, for ever. // L5
func TestAttemptWhoseMachineWasReplacedEndsWhenItsHostIsOn(t *testing.T) {
	for name, c := range map[string]struct {
		attempt int
		since   time.Duration
		change  func(s *Observation)
		want    Step
	}{
		"On":                         {2, minute, func(*Observation) {}, Reprovisioned},
		"On for a moment":            {2, offSettle - sec, func(*Observation) {}, Waiting},
		"Off":                        {2, minute, func(s *Observation) { s.Power.State = bmc.Off }, Waiting},
		"not read":                   {2, minute, func(s *Observation) { s.Power.State = bmc.Unknown }, Waiting},
		"another machine's BMC":      {2, minute, func(s *Observation) { s.Identity = No }, Waiting},
		"its power lock is not read": {2, minute, func(s *Observation) { s.PowerLock = CannotTell }, Waiting},
		"the Machine is there":       {2, minute, func(s *Observation) { s.Machine = Machine{Exists: Yes, UID: "mu"} }, Waiting},
		"the first attempt":          {1, minute, func(*Observation) {}, Aborted},
	} {
		r, s := begin(Waiting, c.since)
		r.Target.BareMetalHost, r.Attempt, r.Reason = "ns/b", c.attempt, reason.PowerOnFailed
		r.Limits.RetryInterval, r.Wait = minute, &Wait{Since: ago(c.since), Code: r.Reason, Count: 1}
		s.Power.State, s.Machine = bmc.On, Machine{Exists: Yes, UID: "another"}
		c.change(&s)
		got, _, _ := Next(r, s, noon)
		assert.Equal(t, c.want, got.Step, name)
	}
}

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
// not as it was. Its labels are still pending when nobody asks for the run any more. // I20, I21
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

// A run whose record shows that its host came back On may have been answered as over. If the host reads Off later, the
// next remediator may have switched it off. // I20, I22
func TestHostThatIsLeftToTheNextIsNotSwitchedOn(t *testing.T) {
	back := []Visit{{Step: PowerOff}, {Step: DeleteNode}, {Step: PowerOn}, {Step: AwaitNode}, {Step: PowerOff, Note: leftFor(reason.Withdrawn, "why")},
		{Step: PowerOn, Note: leftFor(reason.Withdrawn, "why")}, {Step: Waiting}}
	for name, c := range map[string]struct {
		visits               []Visit
		withdrawn, contested Answer
		want                 Action
	}{
		"nobody asks for it":                   {back, Yes, No, Nothing},
		"whether anybody asks is not known":    {back, CannotTell, No, Nothing},
		"another remediator is at work":        {back, No, Yes, Nothing},
		"whether one is at work is not known":  {back, No, CannotTell, Nothing},
		"it is asked for, and nobody else":     {back, No, No, SendOn},
		"nobody asks, and it was never On yet": {nil, Yes, No, SendOn},
	} {
		r, s := begin(Waiting, minute)
		r.Attempt, r.Intervened, r.Reason, r.Steps = 2, true, reason.Withdrawn, c.visits
		r.Limits.RetryInterval, r.Wait = 5*minute, &Wait{Since: ago(minute), Code: r.Reason, Count: 1}
		s.Power.State, s.Withdrawn, s.WithdrawnWhy, s.Contested = bmc.Off, c.withdrawn, "the check is gone", c.contested
		_, action, _ := Next(r, s, noon)
		assert.Equal(t, c.want, action, name)
	}
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

// onAsked judges what an answer does to a target that nobody asks for any more. // I4
func onAsked(w *world, r Run, s Observation, a Action) (bad []string) {
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
func (v *variant) restsUnasked(st *state) bool {
	r, w := &st.rec, &st.w
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
