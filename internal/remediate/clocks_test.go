package remediate

import (
	"cmp"
	"slices"
	"time"

	"github.com/fenced/fenced/internal/bmc"
)

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

// setClock makes the clock wrong for a while.
func (w *world) setClock(by int) { w.ahead, w.wrongFor, w.set = by, whileWrong, true }

func (c *clocks) tick() {
	if c.wrongFor = max(0, c.wrongFor-1); c.wrongFor == 0 && c.ahead != 0 {
		c.ahead, c.set = 0, true
	}
}

// restartElsewhere is a process that goes on, on another host: its clock may be another.
func (w *world) restartElsewhere(v variant) {
	if v.clocksDiffer != 0 && w.ahead == 0 {
		w.setClock(v.clocksDiffer)
	} else {
		w.clocks = clocks{set: true}
	}
}

// clocked says whether clocks matter in a world: elsewhere nobody need tell one process
// that has compared its own from one that has not.
func (v variant) clocked() bool {
	return v.clocksDiffer != 0 || slices.Contains(v.faults, clockAhead) || slices.Contains(v.faults, clockBehind)
}

// agrees is what the process knows about its clock.
func (w *world) agrees(answered bool) Answer {
	if w.compared = w.compared || answered; !w.compared {
		return CannotTell
	}
	return Ask(w.ahead == 0)
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
func (v variant) onClock(w world, r, r2 Run, s Observation, a Action) (bad []string) {
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
