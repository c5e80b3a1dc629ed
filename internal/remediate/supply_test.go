package remediate

import (
	"cmp"
	"time"

	"github.com/fenced/fenced/internal/bmc"
)

// levelled is a world of two power levels: the host's BMC, and two outlets that
// feed host and BMC.
type levelled struct {
	levels       int
	bmc          flaw
	outlet       flaw
	afterMains   bmc.PowerState // Off: the host stays off when its mains return
	keeps        bool           // the engine keeps its session when the level changes
	trusts       bool           // the engine keeps an accepted Off when the BMC restarts
	feedsAnother bool           // the outlets feed another machine
}

// flaw is what is wrong with a level.
type flaw uint8

const (
	sound   flaw = iota
	dead         // never answers
	refuses      // the account
	dies         // with its mains, for ever
	stuck        // one outlet never goes off
	lame         // one outlet never comes on again
	liar         // says Off and switches nothing
	chokes       // takes an Off, does nothing, and never answers again
	jammed       // takes On and switches nothing
	sleepy       // boots for longer than the way back waits
	booting      // answers only some time after the run has begun
	crowded      // takes an Off, and then has no session free for 90 s
	full         // the same for ever
	slow         // switches off seconds after it said that it did; On in between is dropped by a BMC, and undoes it at an outlet
)

// supply is the truth about the outlets and the BMC behind them.
type supply struct {
	cut  [2]bool // outlets that are off
	says bool    // the liar says Off
	boot int8    // seconds until the BMC answers
	gone bool
	full bool    // the BMC has no session free any more
	late [2]int8 // seconds until a slow level switches off

	feedsAnother bool // what the outlets feed is not the host
	// contradicted: a look was told that the outlets are off and the host is on, and
	// a record was saved after that.
	told, contradicted bool
}

const (
	bmcBoot  = 6 // mains to answer
	slowness = 7
)

func (s supply) mains() bool { return s.feedsAnother || !s.outletsOff() }

func (s supply) outletsOff() bool { return s.cut[0] && s.cut[1] }

// answers says whether a read or command of a level gets an answer, and why not.
func (w *world) answers(v *variant, level int8) bmc.Kind {
	f := v.bmc
	if level == 1 {
		f = v.outlet
	}
	switch {
	case level == 0 && (f == crowded && w.boot > 0 || w.full):
		return bmc.KindSessions
	case f == dead, level == 0 && (!w.mains() || w.boot > 0 || w.gone):
		return bmc.KindUnreachable
	case f == refuses:
		return bmc.KindAuth
	}
	return ""
}

// reads is what a level that answers tells.
func (w *world) reads(v *variant, level int8) bmc.Reading {
	r := bmc.Reading{At: clock(w.now), Session: w.session, State: bmc.On}
	switch {
	case w.lieFor > 0:
		r.State = bmc.Off
	case level == 0 && !w.on:
		r.State = bmc.Off
	case level == 1 && (v.outlet == liar && w.says || w.outletsOff()):
		r.State = bmc.Off
		if w.answers(v, 0) == "" && w.on { // the witness, as power.OpenLevel has it
			r.State, r.Contradicted, w.told = bmc.On, true, true
		}
	case level == 1:
		r.Partial = w.cut[0] != w.cut[1]
	}
	return r
}

// alsoOn is what the engine asks of the level below while a confirmation is on the record.
func (w *world) alsoOn(v *variant, r Run, lost bool) string {
	mute := w.memory.level == 1 && w.answers(v, 1) != ""
	if r.HasConfirmation() && mute && !lost && w.answers(v, 0) == "" && w.reads(v, 0).State == bmc.On {
		return "power level 1 reads On"
	}
	return ""
}

// open is what the engine does before it reads: a session with the run's level.
func (w *world) open(v *variant, r Run) {
	if w.memory.level != int8(r.Level) && !v.keeps {
		w.memory.level = int8(r.Level)
		w.forget()
	}
}

// command is what a level does that takes a command.
func (w *world) command(v *variant, on bool) {
	if w.memory.level == 1 {
		w.switchOutlets(v, on)
		return
	}
	switch {
	case v.bmc == chokes:
		w.gone = w.gone || !on
	case v.bmc == full && !on:
		w.full = true
	case on && !v.ignoresOn:
		w.power(true)
	case !on && v.bmc == slow && w.on:
		w.late[0] = cmp.Or(w.late[0], slowness)
	case !on && !v.ignoresOff && w.on:
		w.off()
		if v.bmc == crowded {
			w.boot = 90
		}
	}
}

func (w *world) off() {
	if w.on {
		w.power(false)
		w.byUs = true
	}
}

// lateness lets one second pass at what is slow.
func (w *world) lateness(v *variant) {
	for level, left := range w.late {
		if left == 0 {
			continue
		}
		if w.late[level]--; left > 1 {
			continue
		}
		if level == 0 {
			w.off()
		} else {
			w.cutMains(v)
		}
	}
}

func (w *world) switchOutlets(v *variant, on bool) {
	w.says = !on
	switch {
	case v.outlet == liar, on && v.outlet == jammed:
	case on:
		w.late[1] = 0
		w.feed(v, v.outlet == lame && w.cut[1])
	case v.outlet == slow && w.mains():
		w.late[1] = cmp.Or(w.late[1], slowness)
	case v.outlet != slow:
		w.cutMains(v)
	}
}

func (w *world) cutMains(v *variant) {
	w.cut = [2]bool{true, v.outlet != stuck}
	if !w.mains() {
		w.late[0] = 0
		w.gone = w.gone || v.bmc == dies
		w.off()
	}
}

// feed gives host and BMC their mains again.
func (w *world) feed(v *variant, lame bool) {
	if !w.mains() {
		w.boot = bmcBoot
		if v.bmc == sleepy {
			w.boot = 60
		}
	}
	w.cut = [2]bool{false, lame}
	if w.boot > 0 && v.afterMains != bmc.Off {
		w.power(true)
	}
}

// neverBack: nothing that fenced can send brings the host back.
func (v *variant) neverBack() bool {
	return v.bmc == chokes || v.bmc == full || v.outlet == jammed || v.bmc == dies && v.afterMains == bmc.Off
}

// twoLevels are the searches of the power levels.
var twoLevels = []variant{
	{name: "levels: the first serves", states: 14_700, levelled: levelled{levels: 2}, faults: join(engine, power, cluster), budget: 2, want: "Done"},
	{name: "levels: BMC accepts and ignores", states: 1_900, levelled: levelled{levels: 2}, ignoresOff: true, faults: join(engine, power), budget: 1, want: "Done"},
	{name: "levels: BMC dead", states: 3_000, levelled: levelled{levels: 2, bmc: dead}, faults: join(engine, power, []fault{unfenceOrder}), budget: 1, want: "Done"},
	{name: "levels: BMC refuses", states: 1_800, levelled: levelled{levels: 2, bmc: refuses}, faults: join(engine, power, []fault{pause}), budget: 1, runTimeout: 5 * time.Minute, want: "Done"},
	{name: "levels: BMC dies with its mains", states: 14_700, levelled: levelled{levels: 2, bmc: dies}, ignoresOff: true, faults: join(engine, power, []fault{pause, unfenceOrder}), budget: 1, runTimeout: 5 * time.Minute, want: "Done"},
	{name: "levels: stays off after mains", states: 9_700, levelled: levelled{levels: 2, afterMains: bmc.Off}, ignoresOff: true, faults: join(engine, power, []fault{pause, unfenceOrder}), budget: 1, runTimeout: 5 * time.Minute, want: "Done"},
	{name: "levels: BMC dies, stays off", states: 8_300, levelled: levelled{levels: 2, bmc: dies, afterMains: bmc.Off}, ignoresOff: true, noReplace: true, faults: join(engine, []fault{lostPower, pause, unfenceOrder}), budget: 2, want: "Held AttemptsExhausted"},
	{name: "levels: BMC boots slowly, stays off", states: 12_900, levelled: levelled{levels: 2, bmc: sleepy, afterMains: bmc.Off}, ignoresOff: true, noReplace: true, faults: join(engine, []fault{lostPower, pause, unfenceOrder}), budget: 2, want: "Done"},
	{name: "levels: one outlet stuck", states: 13_200, levelled: levelled{levels: 2, outlet: stuck}, ignoresOff: true, faults: join(engine, power, []fault{pause}), budget: 1, runTimeout: 5 * time.Minute, want: "Held PowerOffFailed"},
	{name: "levels: one outlet stays off", states: 18_200, levelled: levelled{levels: 2, outlet: lame}, ignoresOff: true, faults: join(engine, []fault{lostPower, deaf, pause}), budget: 2, runTimeout: 5 * time.Minute, want: "Done"},
	{name: "levels: outlets lie, the BMC witnesses", states: 2_900, levelled: levelled{levels: 2, outlet: liar}, ignoresOff: true, faults: join(engine, power), budget: 1, want: "Held OutletContradicted"},
	{name: "levels: another machine's outlets", states: 11_000, levelled: levelled{levels: 2, feedsAnother: true}, ignoresOff: true, faults: join(engine, power, []fault{pause, unfenceOrder}), budget: 1, runTimeout: 5 * time.Minute, want: "Held OutletContradicted"},
	{name: "levels: another machine's outlets, never on again", states: 74_500, levelled: levelled{levels: 2, feedsAnother: true, outlet: jammed}, ignoresOff: true, faults: join(crashes, []fault{foreignOff, foreignOn, unfenceOrder}), budget: 2, want: "Held OutletContradicted"},
	{name: "levels: another machine's outlets, one stays off", states: 27_100, levelled: levelled{levels: 2, feedsAnother: true, outlet: lame}, ignoresOff: true, faults: []fault{lostPower, foreignOff, foreignOn, pause}, budget: 2, want: "Held OutletContradicted"},
	{name: "levels: outlets lie, the BMC is dead", states: 2_500, levelled: levelled{levels: 2, bmc: dead, outlet: liar}, faults: join(engine, []fault{lostPower, reregister}), budget: 2, want: "Reprovisioned AttemptsExhausted"},
	{name: "levels: outlets never on again", states: 4_400, levelled: levelled{levels: 2, outlet: jammed}, ignoresOff: true, faults: join(engine, []fault{lostPower, pause}), budget: 1, runTimeout: 5 * time.Minute, want: "Reprovisioned PowerOnFailed"},
	{name: "levels: outlets refuse", states: 1_400, levelled: levelled{levels: 2, outlet: refuses}, ignoresOff: true, faults: join(engine, power), budget: 1, want: "Held BMCAuth"},
	{name: "levels: nothing answers", states: 460, levelled: levelled{levels: 2, bmc: dead, outlet: dead}, faults: engine, budget: 2, want: "Aborted BMCUnreachable"},
	{name: "levels: outlets are slow", states: 3_500, levelled: levelled{levels: 2, outlet: slow}, ignoresOff: true, faults: join(engine, []fault{lostPower, pause, unfenceOrder}), budget: 1, runTimeout: 5 * time.Minute, want: "Done"},
	{name: "the BMC is slow", states: 7_900, levelled: levelled{bmc: slow}, faults: join(engine, []fault{lostPower, newSession, pause, unfenceOrder}), budget: 2, runTimeout: 5 * time.Minute, want: "Done"},
	{name: "levels: people", states: 23_900, levelled: levelled{levels: 2}, ignoresOff: true, faults: join(crashes, []fault{pause, resume, unfenceOrder, lostPower}), budget: 2, runTimeout: 4 * time.Minute, want: "Done"},
	{name: "levels: sick, Metal3", states: 4_300, levelled: levelled{levels: 2}, ignoresOff: true, sick: true, bmh: true, faults: join(engine, power), budget: 1, want: "Done"},
	{name: "levels: second attempt", states: 3_700, levelled: levelled{levels: 2}, ignoresOff: true, badBoots: 1, maxAttempts: 2, faults: join(crashes, []fault{lostPower, foreignOff}), budget: 1, want: "Done"},
}

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
