package remediate

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/reason"
)

// triesAgain is the end of a run that waits and tries again for ever, in a world that never heals.
const triesAgain = "tries again"

// waitKey is what the search distinguishes of a pause.
type waitKey struct {
	age, count          int16
	exhausted           bool
	seen, due           bool
	switchedOff, noMore bool
}

func waitKeyOf(v variant, r Run, shown int) waitKey {
	k := waitKey{switchedOff: r.SwitchedOff && v.retry > 0, noMore: r.NoMoreAttempts && v.retry > 0}
	if w := r.Wait; w != nil {
		k.count, k.exhausted = int16(min(w.Count, 6)), w.Code == reason.AttemptsExhausted
		if r.Step == Waiting {
			k.age, k.seen, k.due = age(w.Since, shown, 1+int((w.pause(r)+time.Second-1)/time.Second)), w.CauseSeen, w.Due
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
func (v variant) onHeld(st state) (bad []string) {
	r := st.rec
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
	{name: "waits: API forbids", retry: 200 * time.Millisecond, forbidden: true, faults: join(crashes, []fault{lostPower}), budget: 1, want: "Aborted APIForbidden"},
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

// The record of a run that tries again for weeks stays small: the store takes no record of any size.
// When it began, that it has been at step 5, and what happened last are still in it.
func TestJournalOfALongRunIsShortened(t *testing.T) {
	r, _ := begin(PowerOff, 0)
	began := r.Steps[0].Started
	r, _, _ = enter(r, RestoreNode, "", noon)
	for i := range 2000 {
		now, step := noon.Add(time.Duration(i)*time.Hour), []Step{PowerOff, Waiting}[i%2]
		before := len(r.Steps)
		if r, _, _ = enter(r, step, "not proven off", now); step == PowerOff {
			r.SwitchedOff, r.Started = true, now
		} else {
			r = recordTry(r)
		}
		assert.NotEqual(t, before, len(r.Steps), "package run sees by the length that there is a new visit")
		assert.LessOrEqual(t, len(r.Steps), maxVisits)
		assert.Equal(t, now, r.Steps[len(r.Steps)-1].Started)
	}
	assert.GreaterOrEqual(t, len(r.Steps), keptVisits)
	assert.Equal(t, began, r.Began())
	assert.True(t, slices.ContainsFunc(r.Steps, func(v Visit) bool { return v.Step == RestoreNode }))
	assert.True(t, slices.IsSortedFunc(r.Steps, func(a, b Visit) int { return a.Started.Compare(b.Started) }))
	assert.LessOrEqual(t, len(r.Tries), 24*7/2+1, "those of a week")
	assert.Contains(t, r.Tries, r.Started)
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
