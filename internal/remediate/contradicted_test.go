package remediate

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/fenced/fenced/internal/bmc"
)

// against is a second level that reads Off while the first reads On.
func against(r *Run, s *Observation) {
	at(r, s, 1, 1)
	on(s)
	s.Power.Contradicted, s.Power.Raw = true, "ipmi://10.0.0.1 reads On"
}

// since is a second level that began to do so some time ago.
func since(d time.Duration, r *Run, s *Observation) {
	against(r, s)
	r.Contradicted = []Contradiction{{Level: 1, Since: ago(d), OnPending: true}}
}

// before is one that did so once, and reads as it may now.
func before(r *Run, s *Observation) { since(minute, r, s); s.Power.Contradicted = false }

func TestContradictedLevelGetsNoOff(t *testing.T) {
	playLevels(t, []levelScene{
		{scene{"the first time", PowerOff, 20 * sec, against, PowerOff, Nothing, ""}, 1},
		{scene{"after a crash", PowerOff, 20 * sec, func(r *Run, s *Observation) { against(r, s); s.OffAccepted = false }, PowerOff, Nothing, ""}, 1},
		{scene{"a chassis may say Off early", PowerOff, 20 * sec, func(r *Run, s *Observation) { since(10*sec-1, r, s) }, PowerOff, Nothing, ""}, 1},
		{scene{"for long: a human", PowerOff, 20 * sec, func(r *Run, s *Observation) { since(10*sec, r, s) }, Held, Nothing, "OutletContradicted"}, 1},
		{scene{"for long: the next level", PowerOff, 20 * sec, func(r *Run, s *Observation) { since(10*sec, r, s); r.Limits.Levels = 3 }, PowerOff, Nothing, ""}, 2},
		{scene{"reads On again: somebody's machine came back", PowerOff, 20 * sec, before, PowerOff, Nothing, ""}, 1},
		{scene{"reads On again, to the end of its time", PowerOff, minute + 1, before, Held, Nothing, "OutletContradicted"}, 1},
		{scene{"the host went off late: proven", PowerOff, 20 * sec, func(r *Run, s *Observation) { before(r, s); s.Power.State, s.Proof = bmc.Off, proof(bmc.Off, 3*sec, 0) }, DeleteNode, Nothing, ""}, 1},
		{scene{"nobody was heard yet: Off is sent again", PowerOff, 20 * sec, func(r *Run, s *Observation) {
			at(r, s, 1, 1)
			on(s)
			s.Power.State, s.Power.Unwitnessed = bmc.Unknown, true
		}, PowerOff, SendOff, ""}, 1},
		{scene{"untouched: waits", PowerOff, sec, func(r *Run, s *Observation) { against(r, s); fresh(r, s) }, PowerOff, Nothing, ""}, 1},
		{scene{"untouched, to the end of its time: dropped", PowerOff, minute + 1, func(r *Run, s *Observation) { against(r, s); fresh(r, s) }, Aborted, Nothing, "OutletContradicted"}, 1},
		{scene{"untouched, to the end of its time: the next level", PowerOff, minute + 1, func(r *Run, s *Observation) { against(r, s); fresh(r, s); r.Limits.Levels = 3 }, PowerOff, Nothing, ""}, 2},
		{scene{"untouched, nobody was heard yet: it may be found off", PowerOff, sec, func(r *Run, s *Observation) {
			at(r, s, 1, 0)
			fresh(r, s)
			s.Power.State, s.Power.Unwitnessed = bmc.Unknown, true
		}, PowerOff, Nothing, ""}, 1},
		{scene{"nor in a later attempt", PowerOff, sec, func(r *Run, s *Observation) { before(r, s); again(r, s); r.Contradicted[0].OnPending = false }, PowerOff, Nothing, ""}, 1},
		{scene{"nor in a later attempt: a human", PowerOff, minute + 1, func(r *Run, s *Observation) { before(r, s); again(r, s); r.Contradicted[0].OnPending = false }, Held, Nothing, "OutletContradicted"}, 1},
	})
}

func TestContradictionIsNoted(t *testing.T) {
	ask := func(r Run, s Observation) []Contradiction {
		kept := slices.Clone(r.Contradicted)
		got, _, _ := Next(r, s, noon)
		assert.Equal(t, kept, r.Contradicted, "the caller's record is not ours to change")
		return got.Contradicted
	}
	r, s := begin(PowerOff, sec)
	against(&r, &s)
	assert.Equal(t, []Contradiction{{Level: 1, Since: noon, OnPending: true}}, ask(r, s))
	r.OffLevel = 0
	assert.Equal(t, []Contradiction{{Level: 1, Since: noon}}, ask(r, s), "it was given no Off")
	r.Contradicted, r.OffLevel = []Contradiction{{Level: 1, Since: ago(sec)}}, 1
	assert.Equal(t, []Contradiction{{Level: 1, Since: ago(sec), OnPending: true}}, ask(r, s), "since the first time")
	r.Contradicted, r.Intervened = nil, false
	assert.Empty(t, ask(r, s), "nothing was done")
	r.Intervened, s.Level = true, 0
	assert.Empty(t, ask(r, s), "another level read that")

	r, s = begin(PowerOff, 20*sec)
	since(minute, &r, &s)
	s.Devices = "pdu-a#7"
	got, _, _ := Next(r, s, noon)
	assert.Equal(t, "power level 2 (pdu-a#7) reads Off while ipmi://10.0.0.1 reads On: it may feed another machine", got.Note)
}

// Nothing but On, without contradiction, is the end of what is pending. // I20
func TestContradictedLevelIsBroughtBack(t *testing.T) {
	told := func(r *Run) { r.Intent = Intent{SendOn, ago(10 * sec)} }
	back := func(r *Run, s *Observation) { before(r, s); told(r) }
	lowered := func(r *Run) { r.Limits.Levels, r.OffLevel = 3, 2 }
	late := func(r *Run) { r.Isolated = ago(370*sec + 1) }
	playLevels(t, []levelScene{
		{scene{"On again", PowerOn, 100 * sec, func(r *Run, s *Observation) { since(minute, r, s); told(r) }, PowerOn, SendOn, ""}, 1},
		{scene{"not for half its time only", PowerOn, 200 * sec, func(r *Run, s *Observation) { since(minute, r, s); told(r) }, PowerOn, SendOn, ""}, 1},
		{scene{"nor if one of two outlets is on by then", PowerOn, 200 * sec, func(r *Run, s *Observation) { back(r, s); s.Power.Partial = true }, PowerOn, SendOn, ""}, 1},
		{scene{"nor if it does not answer", PowerOn, 200 * sec, func(r *Run, s *Observation) { back(r, s); lowered(r); unread(s, bmc.KindUnreachable) }, PowerOn, SendOn, ""}, 1},
		{scene{"not in time: a human, never step 6", PowerOn, 375 * sec, func(r *Run, s *Observation) { since(minute, r, s); told(r); late(r) }, Held, Nothing, "OutletContradicted"}, 1},
		{scene{"not in time, no answer: a human", PowerOn, 375 * sec, func(r *Run, s *Observation) { back(r, s); late(r); unread(s, bmc.KindUnreachable) }, Held, Nothing, "OutletContradicted"}, 1},
		{scene{"reads On: down", PowerOn, 100 * sec, back, PowerOn, Nothing, ""}, 0},
		{scene{"no end while it is owed", RestoreNode, minute, func(r *Run, s *Observation) { back(r, s); at(r, s, 0, 1); on(s) }, Held, Nothing, "OutletContradicted"}, 1},
		{scene{"no step 6 either", Reprovision, sec, func(r *Run, s *Observation) { back(r, s) }, Held, Nothing, "OutletContradicted"}, 1},
		{scene{"Held: On each minute", Held, time.Hour, func(r *Run, s *Observation) { since(minute, r, s); r.Intent = Intent{SendOn, ago(minute)} }, Held, SendOn, "PowerOffFailed"}, 1},
		{scene{"Held: not more often", Held, time.Hour, func(r *Run, s *Observation) { since(minute, r, s); r.Intent = Intent{SendOn, ago(minute - 1)} }, Held, Nothing, "PowerOffFailed"}, 1},
		{scene{"Held after the isolation: On, too", Held, time.Hour, func(r *Run, s *Observation) { since(minute, r, s); r.Isolated = ago(time.Hour) }, Held, SendOn, "PowerOffFailed"}, 1},
		{scene{"Held off on purpose: nothing", Held, time.Hour, func(r *Run, s *Observation) { since(minute, r, s); r.LeaveOff = true }, Held, Nothing, "PowerOffFailed"}, 1},
		{scene{"Held: no answer, On", Held, time.Hour, func(r *Run, s *Observation) { back(r, s); r.Intent = Intent{}; unread(s, bmc.KindUnreachable) }, Held, SendOn, "PowerOffFailed"}, 1},
		{scene{"Held: never to another machine's BMC", Held, time.Hour, func(r *Run, s *Observation) { since(minute, r, s); s.Identity = No }, Held, Nothing, "PowerOffFailed"}, 1},
		{scene{"Held: nobody was heard yet, On", Held, time.Hour, func(r *Run, s *Observation) {
			at(r, s, 1, 1)
			on(s)
			s.Power.State, s.Power.Unwitnessed = bmc.Unknown, true
		}, Held, SendOn, "PowerOffFailed"}, 1},
		{scene{"Held: one of two outlets is on, On", Held, time.Hour, func(r *Run, s *Observation) { back(r, s); r.Intent = Intent{}; s.Power.Partial = true }, Held, SendOn, "PowerOffFailed"}, 1},
		{scene{"Held: reads On, down", Held, time.Hour, back, Held, Nothing, "PowerOffFailed"}, 0},
		{scene{"Held: all well, but owed", Held, time.Hour, func(r *Run, s *Observation) { back(r, s); at(r, s, 0, 1); r.HealthySince = ago(time.Hour) }, Held, Nothing, "PowerOffFailed"}, 0},
	})
	r, s := begin(PowerOn, 100*sec)
	back(&r, &s)
	got, _, _ := Next(r, s, noon)
	assert.Equal(t, []Contradiction{{Level: 1, Since: ago(minute)}}, got.Contradicted, "remembered, and owed no more")
	r.Step = Held
	got, _, _ = Next(r, s, noon)
	assert.False(t, got.Contradicted[0].OnPending)
}
