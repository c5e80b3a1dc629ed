package remediate

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/reason"
)

const (
	sec    = time.Second
	minute = time.Minute
)

// scene is one question to Next: a step in its good course, at a time since it
// was entered, with what is changed about it.
type scene struct {
	name   string
	in     Step
	at     time.Duration
	change func(r *Run, s *Observation)
	step   Step // the expected answer
	action Action
	reason string
}

// noon is the time of every scene.
var noon = clock(12 * 3600)

func ago(d time.Duration) time.Time { return noon.Add(-d) }

// proof is what readings in one state, so long ago each, prove.
func proof(state bmc.PowerState, ages ...time.Duration) bmc.Proof {
	p := bmc.Proof{Spacing: 3 * time.Second, MaxAge: 5 * time.Second}
	for _, a := range ages {
		p = p.Add(bmc.Reading{State: state, At: ago(a)})
	}
	return p
}

// begin is a run in the good course of a step, with the look that belongs to it.
func begin(in Step, at time.Duration) (Run, Observation) {
	l := Limits{
		OffDeadline: time.Minute, APITimeout: 2 * time.Minute, PodsGoneTimeout: 70 * time.Second, OnDeadline: 5 * time.Minute,
		ReadyTimeout: 10 * time.Minute, RestoreTimeout: time.Minute, RunTimeout: 2 * time.Hour, MinPowerInterval: 3 * time.Minute,
		MaxAttempts: 2, PowerOnFoundOff: true, Reprovision: true,
	}
	r := Run{Step: in, StepStarted: ago(at), Started: ago(at + time.Minute), Attempt: 1, Intervened: true, Limits: l,
		Isolation: IsolateDelete, Strategy: PowerCycle, OffLease: &Lease{Known: true, ResourceVersion: "v1", RenewTime: ago(time.Hour), Seen: ago(2 * sec), BootID: "b1"},
		Target: Target{Node: "n", NodeUID: "u1", BootID: "b1", SystemUUID: "s", Machine: "m", MachineUID: "mu", Host: "h"},
		Steps:  []Visit{{Step: in, Attempt: 1, Started: ago(at)}},
	}
	s := Observation{At: noon, Clock: Yes, Power: bmc.Reading{State: bmc.Off, At: noon}, Proof: proof(bmc.Off, 3*time.Second, 0), OffAccepted: true,
		Identity: Yes, API: APIReachable, Justified: Yes, Withdrawn: No, Contested: No, PowerLock: No, PodsGone: Yes, Restored: Yes,
		Node:    Node{Exists: Yes, UID: "u1", ResourceVersion: "1", BootID: "b1", SystemUUID: "s", Ready: No},
		Lease:   Lease{Known: true, ResourceVersion: "v1", RenewTime: ago(time.Hour)},
		Machine: Machine{Exists: Yes, UID: "mu", Replaceable: Yes},
		Backup:  Backup{UID: "u1", ResourceVersion: "1"},
	}
	switch in {
	case PowerOn:
		r.Isolated, s.Node = ago(at), Node{Exists: No}
	case AwaitNode, RestoreNode, Reprovision:
		r.Isolated, r.OnSeen, r.NewNodeUID = ago(at+time.Minute), ago(at), "u2"
		s.Power.State, s.Proof, s.OffAccepted = bmc.On, proof(bmc.Off), false
		s.Node = Node{Exists: Yes, UID: "u2", ResourceVersion: "2", BootID: "b2", SystemUUID: "s", Ready: Yes}
		if in == Reprovision {
			s.Node = Node{Exists: No}
		}
	case Held:
		r.Reason, s.Power.State, s.Node.Ready = "PowerOffFailed", bmc.On, Yes
	}
	return r, s
}

func (c scene) test(t *testing.T) { c.ask(t) }

// ask plays the scene and gives the answer's record for more questions.
func (c scene) ask(t *testing.T) Run {
	r, s := begin(c.in, c.at)
	if c.change != nil {
		c.change(&r, &s)
	}
	got, action, wait := Next(r, s, noon)
	assert.Equal(t, c.step, got.Step, "step")
	assert.Equal(t, c.action, action, "action")
	assert.Equal(t, c.reason, string(got.Reason), "reason")
	if action != Nothing {
		assert.Equal(t, Intent{Action: action, At: noon}, got.Intent, "I19")
	}
	assert.GreaterOrEqual(t, wait, time.Duration(0), "wait")
	if action == Nothing && c.step == c.in && got.Level == r.Level {
		assert.Positive(t, wait, "an idle answer must wait")
	}
	return got
}

func play(t *testing.T, scenes []scene) {
	for _, c := range scenes {
		t.Run(string(c.in)+": "+c.name, c.test)
	}
}

func fresh(r *Run, s *Observation) { // nothing was touched yet
	r.Intervened, r.OffLease = false, nil
	s.OffAccepted, s.Proof, s.Power.State = false, proof(bmc.Off), bmc.On
}

func again(r *Run, s *Observation) { fresh(r, s); r.Attempt = 2 }

func on(s *Observation) { s.Power.State, s.Proof = bmc.On, proof(bmc.Off) }

func unread(s *Observation, k bmc.Kind) {
	s.Power.State, s.Power.Raw, s.PowerError, s.Identity, s.Proof = bmc.Unknown, "", k, CannotTell, proof(bmc.Off)
}

func noAPI(s *Observation) {
	s.API, s.Node, s.Lease, s.Machine, s.PowerLock, s.Justified, s.Contested = APIUnreachable, Node{}, Lease{}, Machine{}, CannotTell, CannotTell, CannotTell
	s.Withdrawn = CannotTell
	s.PodsGone, s.Restored = CannotTell, CannotTell
}

func metal3(r *Run, s *Observation, hold Answer) { r.Target.BareMetalHost, s.PowerLock = "ns/h", hold }

func unfence(r *Run) { r.Unfence = &Order{Actor: "ann", Reason: "back"} }

func taint(r *Run) { r.Isolation = IsolateTaint }

func TestHeldForgetsWhatWasGivenUp(t *testing.T) {
	r, s := begin(PowerOn, 6*minute)
	r.Isolated, r.Abandon, r.AbandonTo, r.Reason = time.Time{}, "Paused", Aborted, "Paused"
	r.Intent = Intent{SendOn, ago(sec)}
	s.Node = Node{Exists: Yes, UID: "u1"}
	visits := len(r.Steps)
	got, _, _ := Next(r, s, noon)
	assert.Equal(t, Held, got.Step)
	assert.Empty(t, string(got.Abandon)+string(got.AbandonTo))
	assert.Contains(t, got.Note, "abandoned (Paused)")
	assert.Len(t, got.Steps, visits+1, "the stay in Held is noted, too")
	why := got.Steps[visits-1].Note
	assert.Contains(t, why, "PowerOnFailed: abandoned (Paused)")
	got.Unfence = &Order{Actor: "ann", Reason: "mended"}
	s.Power.State = bmc.On
	later, _, _ := Next(got, s, noon.Add(time.Hour))
	assert.NotEqual(t, Held, later.Step)
	assert.Equal(t, why, later.Steps[visits-1].Note, "and what follows does not overwrite why the step was left")
	assert.Equal(t, noon, later.Steps[visits-1].Ended)

	s.Node = Node{Exists: No}
	r.AbandonTo = Held
	got, _, _ = Next(r, s, noon)
	assert.Empty(t, string(got.Abandon)+string(got.AbandonTo)+got.Note, "isolated after all: nothing is given up")
	assert.Equal(t, noon, got.Isolated)
}

func TestNotesSayWhatWasRead(t *testing.T) {
	r, s := begin(PowerOff, minute+1)
	for _, c := range []struct {
		power bmc.Reading
		kind  bmc.Kind
		want  string
	}{
		{bmc.Reading{State: bmc.On}, "", "last read: On"},
		{bmc.Reading{Raw: "PoweringOff"}, "", "last read: Unknown (PoweringOff)"},
		{bmc.Reading{}, bmc.KindProtocol, "last read: failed (Protocol)"},
	} {
		s.Power, s.PowerError, s.Proof = c.power, c.kind, proof(bmc.Off)
		got, _, _ := Next(r, s, noon)
		assert.Contains(t, got.Note, c.want)
	}
}

func TestFirstCommandStartsTheTime(t *testing.T) {
	r, s := begin(PowerOff, 50*sec)
	fresh(&r, &s)
	s.Power.State = bmc.Off
	r, _, _ = Next(r, s, noon)
	assert.Equal(t, noon, r.StepStarted)
	assert.True(t, r.Intervened && r.FoundOff)
	assert.Nil(t, r.OffLease, "the Lease is noted after Off was sent")
}

func TestFirstOffReadNotesTheLease(t *testing.T) { // I5
	r, s := begin(PowerOff, sec)
	r.OffLease = nil
	got, _, _ := Next(r, s, noon)
	want := s.Lease
	want.Seen, want.BootID = noon, "b1"
	assert.Equal(t, &want, got.OffLease)

	s.Lease.Known = false
	got, _, _ = Next(r, s, noon)
	assert.Nil(t, got.OffLease, "not read")

	s.Lease.Known = true
	unread(&s, bmc.KindUnreachable)
	got, _, _ = Next(r, s, noon)
	assert.Nil(t, got.OffLease, "a host that may be on may renew its Lease")
}

func TestOnReadForgetsTheLease(t *testing.T) {
	r, s := begin(DeleteNode, sec)
	on(&s)
	r, _, _ = Next(r, s, noon)
	assert.Nil(t, r.OffLease, "a host that is on may renew its Lease")
}

func TestIsolatedIsNotedForTheSteps(t *testing.T) {
	r, s := begin(DeleteNode, sec)
	s.Node = Node{Exists: No}
	r, _, _ = Next(r, s, noon)
	assert.Equal(t, noon, r.Isolated, "the clock of the pods")
	assert.False(t, r.LeaveOff, "a later attempt that is Held must be powered on")
	assert.Zero(t, r.Intent, "the interval of a command belongs to one step")
}

func TestOffOnlyStaysOff(t *testing.T) {
	r, s := begin(DeleteNode, sec)
	r.OffOnly, s.Node = true, Node{Exists: No}
	r, _, _ = Next(r, s, noon)
	assert.True(t, r.LeaveOff)
}

func TestIsolationNotesTheBootThatItEnds(t *testing.T) {
	r, s := begin(DeleteNode, sec)
	s.Node.BootID = "b9"
	got, action, _ := Next(r, s, noon)
	assert.Equal(t, IsolateNode, action)
	assert.Equal(t, "b9", got.Target.BootID, "I6: the next boot must differ from this one")
}

func TestJournal(t *testing.T) {
	r := Begin(Run{Limits: Limits{RunTimeout: time.Hour}}, ago(minute))
	assert.Equal(t, []Visit{{Step: PowerOff, Attempt: 1, Started: ago(minute)}}, r.Steps)
	_, s := begin(PowerOff, 0)
	s.Justified, s.Why, s.Node.UID = No, "Ready again", ""
	got, _, _ := Next(r, s, noon)
	assert.Equal(t, []Visit{{Step: PowerOff, Attempt: 1, Started: ago(minute), Ended: noon, Note: "Ready again"}}, got.Steps)
	assert.Equal(t, noon, got.Ended)
	assert.True(t, r.Steps[0].Ended.IsZero(), "the record asked about is as it was")
	assert.False(t, got.Open())
	assert.Equal(t, Reprovision, Begin(Run{Strategy: DeleteMachine}, noon).Step)

	upper := Begin(Run{Level: 1}, noon)
	assert.Equal(t, Visit{Step: PowerOff, Attempt: 1, Started: noon}, upper.Steps[1])
	assert.Equal(t, "power level 1 did not answer before the run; it begins at level 2", upper.Steps[0].Note)
	assert.Equal(t, noon, upper.Steps[0].Ended)

	same, action, wait := Next(got, s, noon.Add(time.Hour))
	assert.Equal(t, got, same, "an ended run stays as it is")
	assert.Equal(t, Nothing, action)
	assert.Zero(t, wait)
}

// The journal says for which reason a step was left, also in the records of versions before.
func TestVisitTellsItsReason(t *testing.T) {
	for note, want := range map[string]reason.Code{
		leftFor(reason.AttemptsExhausted, "reprovisioning is not allowed here"): reason.AttemptsExhausted,
		"NodeRenamed: the host registered as Node x":                            reason.NodeRenamed,
		"PowerOffFailed: ":                      reason.PowerOffFailed,
		"the Node is Ready after all":           "",
		"confirmed off by ada: NodeRenamed: no": "",
		"NoSuchCode: x":                         "",
		"":                                      "",
	} {
		assert.Equal(t, want, Visit{Note: note}.Reason(), note)
	}
	held, _, _ := stop(Begin(Run{Limits: Limits{OffDeadline: minute}}, noon), reason.PowerOffFailed, "the account is refused", noon)
	assert.Equal(t, reason.PowerOffFailed, held.Steps[0].Reason())
}

// What is measured of a step comes from the record, so that a restart loses nothing of it.
func TestNewestStayThatIsOver(t *testing.T) {
	r := Begin(Run{}, noon)
	assert.Zero(t, r.Left())
	r, _, _ = enter(r, DeleteNode, "", noon.Add(minute))
	assert.Equal(t, Visit{Step: PowerOff, Attempt: 1, Started: noon, Ended: noon.Add(minute)}, r.Left())
	r, _, _ = finish(r, Aborted, reason.Recovered, "", noon.Add(3*minute))
	assert.Equal(t, DeleteNode, r.Left().Step)
	assert.Equal(t, 2*minute, r.Left().Ended.Sub(r.Left().Started))
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
