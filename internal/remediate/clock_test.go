package remediate

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/fenced/fenced/internal/bmc"
)

// A record of a clock that was hours ahead is read by one that is right: the host that was
// switched off comes back in the usual time. // I20
func TestClockSetBackLeavesNoHostOff(t *testing.T) {
	for name, later := range map[string]func(r *Run){
		"all times":     func(r *Run) { *r = mapTimes(*r, func(at time.Time) time.Time { return at.Add(5 * time.Hour) }) },
		"the step":      func(r *Run) { r.StepStarted = noon.Add(5 * time.Hour) },
		"the isolation": func(r *Run) { r.Isolated = noon.Add(5 * time.Hour) },
		"the command":   func(r *Run) { r.Intent = Intent{SendOn, noon.Add(5 * time.Hour)} },
	} {
		t.Run(name, func(t *testing.T) {
			r, s := begin(PowerOn, time.Second)
			later(&r)
			s.PodsGone = CannotTell
			on := time.Duration(-1)
			for d := time.Duration(0); d < 2*time.Minute && on < 0; d += time.Second {
				s.At, s.Power.At = noon.Add(d), noon.Add(d)
				var a Action
				if r, a, _ = Next(r, s, noon.Add(d)); a == SendOn {
					on = d
				}
			}
			assert.GreaterOrEqual(t, on, time.Duration(0), "On was never sent, and the run is at %s", r.Step)
			assert.LessOrEqual(t, on, r.Limits.PodsGoneTimeout)
		})
	}
}

// A later attempt waits for its back-off, and not for a clock that was ahead.
func TestBackOffOfAClockThatWasAhead(t *testing.T) {
	r, s := begin(PowerOff, time.Second)
	again(&r, &s)
	r.NotBefore = noon.Add(3 * time.Minute)
	got, _, _ := Next(r, s, noon)
	assert.Equal(t, noon.Add(3*time.Minute), got.NotBefore, "one interval ahead is as it should be")
	r.NotBefore = noon.Add(5 * time.Hour)
	got, _, _ = Next(r, s, noon)
	assert.Equal(t, noon.Add(3*time.Minute), got.NotBefore)
}

// While this clock is known to be wrong no deadline expires, in no step, and On is sent. // I16
func TestNoDeadlineExpiresByAWrongClock(t *testing.T) {
	for _, step := range []Step{PowerOn, AwaitNode, RestoreNode, Held} {
		t.Run(string(step), func(t *testing.T) {
			r, s := begin(step, time.Minute)
			s.Clock, s.Paused, s.PausedReason = No, true, "ClockSkew"
			s.Node, s.Power.State, s.Restored = Node{Exists: No}, bmc.Off, No
			if step == AwaitNode || step == RestoreNode {
				s.Power.State = bmc.On
			}
			if step == RestoreNode {
				s.Node = Node{Exists: Yes, UID: "u2", BootID: "b2", SystemUUID: "s"}
			}
			commanded := false
			for d := time.Duration(0); d < 24*time.Hour; d += time.Minute {
				s.At = noon.Add(d)
				var a Action
				r, a, _ = Next(r, s, noon.Add(d))
				assert.Equal(t, step, r.Step, "after %s", d)
				assert.False(t, a.Destructive(), a)
				commanded = commanded || a == SendOn
			}
			assert.Equal(t, step == PowerOn || step == Held, commanded)
		})
	}
}

// A clock that is an hour ahead takes a run over whose host has booted for a minute. What
// it would do waits until it is right, and then has its whole time. // I16
func TestClockAheadErasesNoMachine(t *testing.T) {
	r, s := begin(AwaitNode, time.Minute)
	r.Limits.MaxAttempts, s.Node = 1, Node{Exists: No}
	ahead := noon.Add(time.Hour)
	for _, clock := range []Answer{CannotTell, No} {
		s.Clock, s.Paused, s.At = clock, clock == No, ahead
		for range 3 {
			var a Action
			r, a, _ = Next(r, s, ahead)
			assert.Equal(t, Nothing, a)
			assert.Equal(t, AwaitNode, r.Step)
			assert.True(t, r.WrongClock)
			ahead = ahead.Add(time.Second)
		}
	}
	s.Clock, s.Paused, s.At = Yes, false, noon.Add(10*time.Second)
	r, _, _ = Next(r, s, s.At)
	assert.False(t, r.WrongClock)
	assert.Equal(t, AwaitNode, r.Step)
	assert.Equal(t, s.At.Add(r.Limits.ReadyTimeout), r.Deadline())
}

// One wrong clock after another is not taken for the same. // I7, I16
func TestEachWrongClockBeginsAnew(t *testing.T) {
	r, s := begin(PowerOn, 10*time.Second)
	r.WrongClock, s.Clock, s.ClockSet, s.PodsGone = true, No, true, No
	s.At = noon.Add(2 * time.Hour)
	got, a, _ := Next(r, s, s.At)
	assert.Equal(t, Nothing, a, "pods are bound")
	assert.Equal(t, s.At, got.Isolated)
	s.ClockSet = false
	s.At = s.At.Add(got.Limits.PodsGoneTimeout)
	_, a, _ = Next(got, s, s.At)
	assert.Equal(t, SendOn, a)
}

// What protects a host starts anew with the clock, too.
func TestWaitsStartAnewWithTheClock(t *testing.T) {
	r, s := begin(PowerOff, 20*time.Second)
	r.OffLease.RenewTime, r.OffLease.Seen = ago(30*time.Second), ago(20*time.Second)
	s.Proof = proof(bmc.Off, 20*time.Second, 0)
	r.WrongClock = true
	got, _, _ := Next(r, s, noon)
	assert.Equal(t, PowerOff, got.Step, "the Lease is watched again")
	assert.Equal(t, noon, got.OffLease.Seen)
	r.WrongClock = false
	got, _, _ = Next(r, s, noon)
	assert.Equal(t, DeleteNode, got.Step)
}

// clocks is what the host of the process that decides takes for the time.
type clocks struct {
	ahead    int  // seconds that its clock is ahead, or behind
	wrongFor int8 // seconds until it is set right
	// compared: the API server has answered this process, and named its time. What is
	// monotonic, the age of a look and of a proof, is not touched by a clock that is set.
	compared bool
	set      bool // no record was saved by this clock yet
}

// wrong is by how many seconds a wrong clock is wrong: more than any deadline here lasts.
const wrong, whileWrong = 5000, 20

// time is what the clock of the process shows.
func (w *world) time() time.Time { return clock(w.now + w.ahead) }

func (w *world) setClock(by int) { w.ahead, w.wrongFor, w.set = by, whileWrong, true }

func (c *clocks) tick() {
	if c.wrongFor = max(0, c.wrongFor-1); c.wrongFor == 0 && c.ahead != 0 {
		c.ahead, c.set = 0, true
	}
}

// restartElsewhere is a process that goes on, on another host: its clock may be another.
func (w *world) restartElsewhere(v *variant) {
	if v.clocksDiffer != 0 && w.ahead == 0 {
		w.setClock(v.clocksDiffer)
	} else {
		w.clocks = clocks{set: true}
	}
}

// clocked says whether clocks matter in a world: elsewhere nobody need tell one process
// that has compared its own from one that has not.
func (v *variant) clocked() bool {
	return v.clocksDiffer != 0 || slices.Contains(v.faults, clockAhead) || slices.Contains(v.faults, clockBehind)
}

// agrees is what the process knows about its clock.
func (w *world) agrees(answered bool) Answer {
	if w.compared = w.compared || answered; !w.compared {
		return CannotTell
	}
	return AnswerOf(w.ahead == 0)
}

// proofNow is the proof as a process has it whose clock was set since: its age is monotonic.
func (w *world) proofNow() bmc.Proof {
	if w.ahead == 0 || w.first < 0 {
		return w.proof
	}
	p := bmc.Proof{Spacing: 3 * time.Second, MaxAge: 5 * time.Second}
	for _, at := range []int{w.first, w.last} {
		p = p.Add(bmc.Reading{State: bmc.Off, At: clock(at + w.ahead), Session: w.session})
	}
	return p
}

// onClock judges an answer that was given by a clock that is known to be wrong, or on times
// that one has written. // I16
func (v *variant) onClock(w *world, r, r2 Run, s Observation, a Action) (bad []string) {
	if w.ahead != 0 && w.compared && a.Destructive() {
		bad = append(bad, "I16: "+string(a)+" by a clock that is known to be wrong")
	}
	late := cmp.Or(int(r.Limits.ReadyTimeout/time.Second), 1)
	seen := v.clocked() && !slices.Contains(v.faults, foreignOff) // else it may have been off and on, and nobody saw it
	if seen && r.Step == AwaitNode && (r2.Step == Reprovision || r2.Step == PowerOff) && w.on && w.upFor < late && s.RenamedTo == "" {
		bad = append(bad, "I16: a host that boots is given up before its time")
	}
	return bad
}

// clocksSet are the searches of clocks that are set, or that differ.
var clocksSet = []variant{
	{name: "clock ahead", states: 19_000, badBoots: 1, maxAttempts: 2, faults: join(crashes, []fault{clockAhead, clockBehind, lostAPI}), budget: 2, want: "Done"},
	{name: "clock ahead, the API away", states: 43_100, faults: join(crashes, []fault{clockAhead, clockBehind, outageShort, outageLong}), budget: 2, runTimeout: 5 * time.Minute, want: "Done"},
	{name: "clocks differ: one ahead", states: 34_300, clocksDiffer: wrong, badBoots: 9, faults: join(crashes, []fault{outageShort, outageLong}), budget: 2, want: "Reprovisioned AttemptsExhausted"},
	{name: "clocks differ: one behind", states: 9_300, clocksDiffer: -wrong, faults: join(crashes, []fault{outageShort, lostAPI, foreignOff}), budget: 2, want: "Done"},
	{name: "clocks differ: levels", states: 11_000, clocksDiffer: wrong, levelled: levelled{levels: 2}, ignoresOff: true, faults: join(crashes, []fault{lostPower, outageShort}), budget: 2, want: "Done"},
	{name: "clocks differ: on a confirmation", states: 5_300, clocksDiffer: wrong, confirmedAtStart: true, levelled: levelled{bmc: dead}, faults: join(crashes, []fault{outageShort, unfenceOrder}), budget: 2, want: "Held ConfirmedOff"},
	{name: "clocks differ: Machine", states: 95, clocksDiffer: wrong, deleteOnly: true, faults: join(crashes, []fault{outageShort}), budget: 2, want: "Reprovisioned"},
}

// clockMutants forget what a clock can do.
var clockMutants = []mutant{
	{"does not ask about its clock", "I16: ", variant{name: "m", badBoots: 1, maxAttempts: 2, faults: []fault{clockAhead}, budget: 1}, seeing(func(_ Run, s *Observation, _ time.Time) {
		s.Clock, s.Paused = Yes, s.Paused && s.PausedReason == ""
	})},
	{"lets deadlines expire by a wrong clock", "I16: a host that boots is given up", variant{name: "m", badBoots: 1, maxAttempts: 2, faults: []fault{clockAhead}, budget: 1}, seeing(func(_ Run, s *Observation, _ time.Time) {
		s.Clock = Yes
	})},
	{"trusts what a wrong clock has written", "I16: a host that boots is given up", variant{name: "m", clocksDiffer: -wrong, badBoots: 1, maxAttempts: 2, faults: crashes, budget: 1}, func(r Run, s Observation, now time.Time) (Run, Action, time.Duration) {
		if s.Clock == Yes {
			r.WrongClock = false
		}
		return Next(r, s, now)
	}},
	{"waits for times to come", "L1", variant{name: "m", clocksDiffer: wrong, faults: crashes, budget: 1}, func(r Run, s Observation, now time.Time) (Run, Action, time.Duration) {
		if now.Before(r.StepStarted) {
			return r, Nothing, poll
		}
		return Next(r, s, now)
	}},
}
