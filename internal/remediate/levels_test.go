package remediate

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/fenced/fenced/internal/bmc"
)

// at puts a scene on one of two power levels; off is the highest that was given
// an Off.
func at(r *Run, s *Observation, level, off int) {
	r.Limits.Levels, r.Level, s.Level, r.OffLevel = 2, level, level, off
}

// levelScene is a scene with the power level that is expected.
type levelScene struct {
	scene
	level int
}

func playLevels(t *testing.T, scenes []levelScene) {
	for _, c := range scenes {
		t.Run(string(c.in)+": "+c.name, func(t *testing.T) { assert.Equal(t, c.level, c.ask(t).Level, "level") })
	}
}

func TestLevelsGoUp(t *testing.T) {
	playLevels(t, []levelScene{
		{scene{"never off: the next level", PowerOff, minute + 1, func(r *Run, s *Observation) { at(r, s, 0, 0); on(s) }, PowerOff, Nothing, ""}, 1},
		{scene{"never off at the last: a human", PowerOff, minute + 1, func(r *Run, s *Observation) { at(r, s, 1, 1); on(s) }, Held, Nothing, "PowerOffFailed"}, 1},
		{scene{"password refused: the next level at once", PowerOff, sec, func(r *Run, s *Observation) { at(r, s, 0, 0); unread(s, bmc.KindAuth) }, PowerOff, Nothing, ""}, 1},
		{scene{"password refused at the last: a human", PowerOff, sec, func(r *Run, s *Observation) { at(r, s, 1, 0); unread(s, bmc.KindAuth) }, Held, Nothing, "BMCAuth"}, 0},
		{scene{"unsupported: the next level at once", PowerOff, sec, func(r *Run, s *Observation) { at(r, s, 0, 0); unread(s, bmc.KindUnsupported) }, PowerOff, Nothing, ""}, 1},
		{scene{"unsupported at the last: has its time", PowerOff, sec, func(r *Run, s *Observation) { at(r, s, 1, 0); unread(s, bmc.KindUnsupported) }, PowerOff, Nothing, ""}, 1},
		{scene{"another machine answers: never the next level", PowerOff, sec, func(r *Run, s *Observation) { at(r, s, 0, 0); on(s); s.Identity = No }, Held, Nothing, "IdentityMismatch"}, 0},
		{scene{"paused: no further level", PowerOff, minute + 1, func(r *Run, s *Observation) { at(r, s, 0, 0); on(s); s.Paused = true }, PowerOn, Nothing, "Paused"}, 0},
		{scene{"proven off, only the heartbeat is missing: no further level", PowerOff, minute + 1, func(r *Run, s *Observation) {
			at(r, s, 0, 0)
			r.OffLease.RenewTime = ago(62 * sec)
		}, Held, Nothing, "PowerOffFailed"}, 0},
		{scene{"a further level needs the reason afresh", PowerOff, sec, func(r *Run, s *Observation) { at(r, s, 1, 0); on(s); s.OffAccepted, s.Justified = false, No }, PowerOn, Nothing, "Recovered"}, 0},
		{scene{"and Off of its own", PowerOff, sec, func(r *Run, s *Observation) { at(r, s, 1, 0); on(s); s.OffAccepted = false }, PowerOff, SendOff, ""}, 1},
		{scene{"what another level read proves nothing", PowerOff, 4 * sec, func(r *Run, s *Observation) { at(r, s, 1, 1); s.Level = 0 }, PowerOff, Nothing, ""}, 1},
		{scene{"proven off at the second level", PowerOff, 4 * sec, func(r *Run, s *Observation) { at(r, s, 1, 1) }, DeleteNode, Nothing, ""}, 1},
		{scene{"On again in step 2: the same level", DeleteNode, sec, func(r *Run, s *Observation) { at(r, s, 1, 1); on(s) }, PowerOff, Nothing, ""}, 1},
		{scene{"untouched, no answer in time: the next level", PowerOff, 61 * sec, func(r *Run, s *Observation) { at(r, s, 0, 0); fresh(r, s); unread(s, bmc.KindUnreachable) }, PowerOff, Nothing, ""}, 1},
		{scene{"untouched, no answer yet: waits", PowerOff, minute, func(r *Run, s *Observation) { at(r, s, 0, 0); fresh(r, s); unread(s, bmc.KindUnreachable) }, PowerOff, Nothing, ""}, 0},
		{scene{"untouched, password refused: the next level at once", PowerOff, sec, func(r *Run, s *Observation) { at(r, s, 0, 0); fresh(r, s); unread(s, bmc.KindAuth) }, PowerOff, Nothing, ""}, 1},
		{scene{"untouched, no answer at the last: dropped", PowerOff, 61 * sec, func(r *Run, s *Observation) { at(r, s, 1, 0); fresh(r, s); unread(s, bmc.KindUnreachable) }, Aborted, Nothing, "BMCUnreachable"}, 1},
		{scene{"untouched, the API is gone: no level mends that", PowerOff, 61 * sec, func(r *Run, s *Observation) { at(r, s, 0, 0); fresh(r, s); noAPI(s) }, Aborted, Nothing, "NotJudged"}, 0},
		{scene{"a run may begin at the second level", PowerOff, 0, func(r *Run, s *Observation) { at(r, s, 1, 0); fresh(r, s) }, PowerOff, SendOff, ""}, 1},
		{scene{"the account is not asked again before the back-off is over", PowerOff, sec, func(r *Run, s *Observation) {
			at(r, s, 0, 0)
			again(r, s)
			unread(s, bmc.KindAuth)
			r.NotBefore = noon.Add(1)
		}, PowerOff, Nothing, ""}, 0},
	})
}

func TestTheNextLevelStartsAnew(t *testing.T) {
	r, s := begin(PowerOff, minute+1)
	at(&r, &s, 0, 0)
	unread(&s, bmc.KindBusy)
	s.Devices = "ipmi://10.0.0.1"
	got, _, wait := Next(r, s, noon)
	assert.Equal(t, 1, got.Level)
	assert.Equal(t, noon, got.StepStarted, "offDeadline is per level")
	assert.Nil(t, got.OffLease, "the Lease counts from this level's first Off")
	assert.Zero(t, got.Intent, "the interval of a command belongs to one level")
	assert.Zero(t, wait)
	assert.Contains(t, got.Steps[0].Note, "power level 1 (ipmi://10.0.0.1): the host was not proven off in time")
	assert.Equal(t, Visit{Step: PowerOff, Attempt: 1, Started: noon}, got.Steps[1])

	got, action, _ := Next(got, s, noon)
	assert.Equal(t, Nothing, action, "what was read of the first level says nothing of the second")
	s.Level, s.OffAccepted, s.Identity = 1, false, Yes
	got, action, _ = Next(got, s, noon)
	assert.Equal(t, SendOff, action)
	assert.Equal(t, 1, got.OffLevel, "saved before the command is given") // I19, I20
}

func TestProofIsNoted(t *testing.T) {
	r, s := begin(PowerOff, 4*sec)
	got, _, _ := Next(r, s, noon)
	assert.Equal(t, ProofBMC, got.Proof)
	assert.Empty(t, got.Steps[0].Note)

	at(&r, &s, 1, 1)
	s.ProofKind, s.Devices = ProofDevice, "pdu-a#7 + pdu-b#7"
	got, _, _ = Next(r, s, noon)
	assert.Equal(t, ProofDevice, got.Proof)
	assert.Equal(t, "proven off by power level 2 (pdu-a#7 + pdu-b#7)", got.Steps[0].Note)

	at(&r, &s, 0, 0)
	got, _, _ = Next(r, s, noon)
	assert.Equal(t, "proven off by power level 1 (pdu-a#7 + pdu-b#7)", got.Steps[0].Note)
}

func TestLevelsGoDown(t *testing.T) {
	told := func(r *Run) { r.Intent = Intent{SendOn, ago(sec)} }
	second := func(r *Run, s *Observation) { at(r, s, 1, 1); on(s); told(r) }
	below := func(r *Run, s *Observation) { at(r, s, 0, 1) }
	givenUp := func(r *Run, s *Observation) {
		r.Isolated, r.Abandon, r.AbandonTo, r.Reason = time.Time{}, "Paused", Aborted, "Paused"
		s.Node = Node{Exists: Yes, UID: "u1", BootID: "b1", Ready: No}
	}
	playLevels(t, []levelScene{
		{scene{"the level in use gets On first", PowerOn, 10 * sec, func(r *Run, s *Observation) { at(r, s, 1, 1) }, PowerOn, SendOn, ""}, 1},
		{scene{"also if it reads On: an outlet may switch late", PowerOn, 10 * sec, func(r *Run, s *Observation) { at(r, s, 1, 1); on(s) }, PowerOn, SendOn, ""}, 1},
		{scene{"never to another machine's outlet", PowerOn, 10 * sec, func(r *Run, s *Observation) { at(r, s, 1, 1); on(s); s.Identity = No }, PowerOn, Nothing, ""}, 1},
		{scene{"one outlet still off: On again", PowerOn, 100 * sec, func(r *Run, s *Observation) { second(r, s); s.Power.Partial = true; r.Intent.At = ago(10 * sec) }, PowerOn, SendOn, ""}, 1},
		{scene{"a level below that reads Off gets On", PowerOn, 10 * sec, below, PowerOn, SendOn, ""}, 0},
		{scene{"five seconds after its mains, not earlier", PowerOn, 5*sec - 1, below, PowerOn, Nothing, ""}, 0},
		{scene{"one below that does not answer gets nothing", PowerOn, minute, func(r *Run, s *Observation) { below(r, s); unread(s, bmc.KindUnreachable) }, PowerOn, Nothing, ""}, 0},
		{scene{"for two minutes", PowerOn, 2*minute - 1, func(r *Run, s *Observation) { below(r, s); unread(s, bmc.KindUnreachable) }, PowerOn, Nothing, ""}, 0},
		{scene{"then it is passed over", PowerOn, 2 * minute, func(r *Run, s *Observation) { below(r, s); unread(s, bmc.KindUnreachable) }, AwaitNode, Nothing, ""}, 0},
		{scene{"not with our hold on the BareMetalHost", PowerOn, 2 * minute, func(r *Run, s *Observation) { below(r, s); unread(s, bmc.KindUnreachable); metal3(r, s, Yes) }, PowerOn, ReleasePowerLock, ""}, 0},
		{scene{"one that refuses the account is passed over at once", PowerOn, sec, func(r *Run, s *Observation) { below(r, s); unread(s, bmc.KindAuth) }, AwaitNode, Nothing, ""}, 0},
		{scene{"but not after it got On", PowerOn, sec, func(r *Run, s *Observation) { below(r, s); unread(s, bmc.KindAuth); told(r) }, PowerOn, Nothing, ""}, 0},
		{scene{"one that answered and got On is not passed over", PowerOn, 3 * minute, func(r *Run, s *Observation) { below(r, s); unread(s, bmc.KindUnreachable); told(r) }, PowerOn, Nothing, ""}, 0},
		{scene{"another machine's BMC there is no answer", PowerOn, minute, func(r *Run, s *Observation) { below(r, s); on(s); s.Identity = No }, PowerOn, Nothing, ""}, 0},
		{scene{"and is passed over too", PowerOn, 2 * minute, func(r *Run, s *Observation) { below(r, s); on(s); s.Identity = No }, AwaitNode, Nothing, ""}, 0},
		{scene{"the level in use is never passed over", PowerOn, 2 * minute, func(r *Run, s *Observation) { at(r, s, 1, 1); unread(s, bmc.KindUnreachable) }, PowerOn, SendOn, ""}, 1},
		{scene{"it is waited for, and then step 6", PowerOn, 375 * sec, func(r *Run, s *Observation) {
			at(r, s, 1, 1)
			r.Isolated, r.Intent = ago(370*sec+1), Intent{SendOn, ago(sec)}
		}, Reprovision, Nothing, "PowerOnFailed"}, 1},
		{scene{"all read On: on to step 4", PowerOn, 10 * sec, func(r *Run, s *Observation) { below(r, s); on(s) }, AwaitNode, Nothing, ""}, 0},
		{scene{"a host that boots already is no FalseOff", PowerOn, sec, func(r *Run, s *Observation) { below(r, s); s.Node = Node{Exists: Yes, UID: "u2"} }, PowerOn, Nothing, ""}, 0},
		{scene{"over the whole time, on its way down: completes", PowerOn, 10 * sec, func(r *Run, s *Observation) { second(r, s); r.Started = ago(3 * time.Hour) }, PowerOn, Nothing, ""}, 0},
		{scene{"over the whole time, an outlet still off: completes", PowerOn, 10 * sec, func(r *Run, s *Observation) {
			at(r, s, 0, 0)
			on(s)
			s.Power.Partial, r.Started = true, ago(3*time.Hour)
		}, PowerOn, SendOn, ""}, 0},
		{scene{"given up: an outlet may go off late", PowerOn, 15*sec - 1, func(r *Run, s *Observation) { second(r, s); givenUp(r, s) }, PowerOn, Nothing, "Paused"}, 1},
		{scene{"and then goes down", PowerOn, 15 * sec, func(r *Run, s *Observation) { second(r, s); givenUp(r, s) }, PowerOn, Nothing, "Paused"}, 0},
		{scene{"a level below waited for that already", PowerOn, sec, func(r *Run, s *Observation) { below(r, s); on(s); givenUp(r, s) }, Aborted, Nothing, "Paused"}, 0},
		{scene{"reads Off again: back to step 3", AwaitNode, sec, func(r *Run, s *Observation) { at(r, s, 0, 1); s.Node, s.Power.State = Node{Exists: No}, bmc.Off }, PowerOn, Nothing, ""}, 1},
	})
}

func TestTheWayDown(t *testing.T) {
	r, s := begin(PowerOn, 100*sec)
	at(&r, &s, 1, 1)
	on(&s)
	r.Intent, s.Devices = Intent{SendOn, ago(sec)}, "pdu-a#7"
	got, action, wait := Next(r, s, noon)
	assert.Equal(t, 0, got.Level)
	assert.Equal(t, 1, got.OffLevel, "the level that cut the host off is remembered")
	assert.Equal(t, noon, got.StepStarted, "the next level has its whole time")
	assert.Zero(t, got.Intent)
	assert.Equal(t, Nothing, action)
	assert.Zero(t, wait)
	assert.Equal(t, "power level 2 (pdu-a#7) reads On", got.Steps[0].Note)

	got.StepStarted, s.Level = ago(2*minute), 0
	unread(&s, bmc.KindUnreachable)
	got, _, _ = Next(got, s, noon)
	assert.Equal(t, AwaitNode, got.Step)
	assert.Contains(t, got.Steps[1].Note, "has not answered since the level above it reads On")

	s.Power.State, s.PowerError, s.Identity, s.Node = bmc.Off, "", Yes, Node{Exists: No}
	got, _, _ = Next(got, s, noon)
	assert.Equal(t, PowerOn, got.Step)
	assert.Equal(t, 1, got.Level, "what reads Off again is brought back from the top")

	s.Level, s.Power.State, s.Power.Partial, s.Power.Raw = 1, bmc.On, true, "on + off"
	got.StepStarted, got.Isolated = ago(150*sec), ago(time.Hour)
	got, _, _ = Next(got, s, noon)
	assert.Equal(t, 0, got.Level, "one outlet feeds the whole host")
	assert.Contains(t, got.Steps[len(got.Steps)-2].Note, "reads On only in part: on + off")
}

func TestGivenUpAtTheSecondLevel(t *testing.T) {
	r, s := begin(PowerOff, sec)
	at(&r, &s, 1, 1)
	s.Paused, s.Proof = true, proof(bmc.Off)
	r, _, _ = Next(r, s, noon)
	assert.Equal(t, 1, r.Level, "the way back begins where Off was sent")

	r, s = begin(PowerOff, sec)
	at(&r, &s, 1, 0)
	unread(&s, bmc.KindAuth)
	r, _, _ = Next(r, s, noon)
	assert.Equal(t, Held, r.Step)
	assert.Equal(t, 0, r.Level, "a level that took no Off has nothing to be taken back")

	r, s = begin(PowerOn, 2*minute)
	at(&r, &s, 0, 1)
	unread(&s, bmc.KindUnreachable)
	r.Isolated, r.Abandon, r.AbandonTo, r.Reason, r.Note = time.Time{}, "Paused", Aborted, "Paused", "paused"
	s.Node = Node{Exists: Yes, UID: "u1", Ready: No}
	r, _, _ = Next(r, s, noon)
	assert.Equal(t, Held, r.Step, "nothing else would tell that the host stayed off")
	assert.Contains(t, r.Note, "abandoned (Paused), and power level 1 has not answered")
	assert.Equal(t, 1, r.Level)
}

func TestHeldWalksThroughTheLevels(t *testing.T) {
	off := func(s *Observation) { s.Power.State, s.Node.Ready = bmc.Off, No }
	play(t, []scene{
		{"the level that was given Off gets On", Held, minute, func(r *Run, s *Observation) { at(r, s, 1, 1); off(s) }, Held, SendOn, "PowerOffFailed"},
		{"one outlet still off: On", Held, minute, func(r *Run, s *Observation) {
			at(r, s, 1, 1)
			s.Power.Partial, r.Intent = true, Intent{SendOn, ago(minute)}
		}, Held, SendOn, "PowerOffFailed"},
		{"On once, also if it reads On", Held, minute, func(r *Run, s *Observation) { at(r, s, 1, 1) }, Held, SendOn, "PowerOffFailed"},
		{"nothing to one that does not answer", Held, minute, func(r *Run, s *Observation) { at(r, s, 1, 1); unread(s, bmc.KindAuth) }, Held, Nothing, "PowerOffFailed"},
		{"nothing to a level that was not asked", Held, minute, func(r *Run, s *Observation) { at(r, s, 1, 1); off(s); s.Level = 0 }, Held, Nothing, "PowerOffFailed"},
		{"healthy only where the first level reads On", Held, time.Hour, func(r *Run, s *Observation) {
			at(r, s, 1, 1)
			r.HealthySince, r.Intent = ago(5*minute), Intent{SendOn, ago(sec)}
		}, Held, Nothing, "PowerOffFailed"},
		{"healthy there: the end", Held, time.Hour, func(r *Run, s *Observation) { at(r, s, 0, 1); r.HealthySince = ago(5 * minute) }, Aborted, Nothing, "PowerOffFailed"},
	})
	for _, c := range []struct {
		name       string
		level, off int
		since      time.Duration
		change     func(r *Run, s *Observation)
		to         int
	}{
		{"reads On: down", 1, 1, sec, func(r *Run, s *Observation) { r.Intent.Action = SendOn }, 0},
		{"not before On was sent", 1, 1, sec, func(r *Run, s *Observation) {}, 1},
		{"reads Off: stays", 1, 1, time.Hour, func(r *Run, s *Observation) { off(s) }, 1},
		{"partly On: stays", 1, 1, 5*minute - 1, func(r *Run, s *Observation) { r.Intent.Action, s.Power.Partial = SendOn, true }, 1},
		{"partly On for long: down", 1, 1, 5 * minute, func(r *Run, s *Observation) { r.Intent.Action, s.Power.Partial = SendOn, true }, 0},
		{"no answer: stays", 1, 1, 5*minute - 1, func(r *Run, s *Observation) { unread(s, bmc.KindAuth) }, 1},
		{"no answer for five minutes: down", 1, 1, 5 * minute, func(r *Run, s *Observation) { unread(s, bmc.KindAuth) }, 0},
		{"no answer at the first: back to the top", 0, 1, 5 * minute, func(r *Run, s *Observation) { unread(s, bmc.KindUnreachable) }, 1},
		{"On at the first: stays", 0, 1, time.Hour, func(r *Run, s *Observation) {}, 0},
		{"only one level: stays", 0, 0, time.Hour, func(r *Run, s *Observation) { unread(s, bmc.KindUnreachable) }, 0},
		{"untouched: stays", 1, 1, time.Hour, func(r *Run, s *Observation) { r.Intervened = false; unread(s, bmc.KindUnreachable) }, 1},
		{"off on purpose: stays", 1, 1, time.Hour, func(r *Run, s *Observation) { r.LeaveOff = true; unread(s, bmc.KindUnreachable) }, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, s := begin(Held, c.since)
			at(&r, &s, c.level, c.off)
			c.change(&r, &s)
			got, action, _ := Next(r, s, noon)
			assert.Equal(t, c.to, got.Level)
			if c.to != c.level {
				assert.Equal(t, Nothing, action, "the other level was not asked yet")
				assert.Zero(t, got.Intent)
				assert.Zero(t, got.HealthySince)
				assert.Equal(t, noon, got.StepStarted)
			}
			assert.Len(t, got.Steps, len(r.Steps), "the walk is no journal")
		})
	}
}

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
		{scene{"no end while it is pending", RestoreNode, minute, func(r *Run, s *Observation) { back(r, s); at(r, s, 0, 1); on(s) }, Held, Nothing, "OutletContradicted"}, 1},
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
		{scene{"Held: all well, but pending", Held, time.Hour, func(r *Run, s *Observation) { back(r, s); at(r, s, 0, 1); r.HealthySince = ago(time.Hour) }, Held, Nothing, "PowerOffFailed"}, 0},
	})
	r, s := begin(PowerOn, 100*sec)
	back(&r, &s)
	got, _, _ := Next(r, s, noon)
	assert.Equal(t, []Contradiction{{Level: 1, Since: ago(minute)}}, got.Contradicted, "remembered, and pending no more")
	r.Step = Held
	got, _, _ = Next(r, s, noon)
	assert.False(t, got.Contradicted[0].OnPending)
}
