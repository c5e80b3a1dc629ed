package remediate

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/reason"
)

func abort(r *Run) { r.Abort = &Order{Actor: "ann", Reason: "enough"} }

func asIs(r *Run) { r.Abort = &Order{Actor: "ann", Reason: "mine", AsIs: true} }

func retry(r *Run) { r.Retry = &Order{Actor: "ann", Reason: "mended"} }

func isolatedRun(r *Run, code string) { r.Isolated, r.Reason = ago(minute), reason.Code(code) }

func TestAbort(t *testing.T) {
	play(t, []scene{
		{"before anything: dropped", PowerOff, 0, func(r *Run, s *Observation) { fresh(r, s); abort(r) }, Aborted, Nothing, "Aborted"},
		{"in step 1: back to On", PowerOff, sec, func(r *Run, s *Observation) { abort(r); on(s) }, PowerOn, Nothing, "Aborted"},
		{"in step 2: back to On", DeleteNode, sec, func(r *Run, s *Observation) { abort(r) }, PowerOn, Nothing, "Aborted"},
		{"in step 2, and the Node is gone: forward", DeleteNode, sec, func(r *Run, s *Observation) { abort(r); s.Node = Node{Exists: No} }, PowerOn, Nothing, ""},
		{"in step 3: completed", PowerOn, 10 * sec, func(r *Run, s *Observation) { abort(r) }, PowerOn, SendOn, ""},
		{"in step 4: completed", AwaitNode, sec, func(r *Run, s *Observation) { abort(r) }, RestoreNode, Nothing, ""},
		{"in step 4, not registered: no other attempt", AwaitNode, 11 * minute, func(r *Run, s *Observation) { abort(r); s.Node = Node{Exists: No} }, Reprovision, Nothing, "AttemptsExhausted"},
		{"in step 5: completed", RestoreNode, sec, func(r *Run, s *Observation) { abort(r) }, Done, Nothing, ""},
		{"in step 6: back to step 3", Reprovision, sec, func(r *Run, s *Observation) { abort(r) }, PowerOn, Nothing, ""},
		{"of a Machine's deletion", Reprovision, sec, func(r *Run, s *Observation) { abort(r); r.Strategy = DeleteMachine }, Aborted, Nothing, "Aborted"},
		{"while a second attempt waits: on, and whatever Node stands there", PowerOff, 0, func(r *Run, s *Observation) { again(r, s); abort(r) }, PowerOn, Nothing, ""},
		{"from Held, before the isolation: back to On", Held, minute, func(r *Run, s *Observation) { abort(r) }, PowerOn, Nothing, "Aborted"},
		{"from Held, untouched: dropped", Held, minute, func(r *Run, s *Observation) { abort(r); r.Intervened = false }, Aborted, Nothing, "Aborted"},
		{"from Held, after it: on at step 3", Held, minute, func(r *Run, s *Observation) { abort(r); isolatedRun(r, "OperatorOff"); r.LeaveOff = true }, PowerOn, Nothing, ""},
		{"a pause does not hinder it", Held, minute, func(r *Run, s *Observation) { abort(r); s.Paused = true }, PowerOn, Nothing, "Aborted"},
	})
}

func TestAbortOnTheWayBack(t *testing.T) {
	r, s := begin(PowerOn, minute)
	r.Isolated, r.Abandon, r.AbandonTo, r.Reason = time.Time{}, "NodeStillReady", Held, "NodeStillReady"
	s.Node = Node{Exists: Yes, UID: "u1", BootID: "b1", Ready: Yes}
	on(&s)
	abort(&r)
	got, _, _ := Next(r, s, noon)
	assert.Equal(t, Aborted, got.Step, "not Held: a person has seen it")
	assert.Equal(t, "Aborted aborted by ann: enough", string(got.Reason)+" "+got.Note)
	assert.Nil(t, got.Abort)

	s.Node = Node{Exists: No}
	got, _, _ = Next(r, s, noon)
	assert.Equal(t, AwaitNode, got.Step, "the delete had gone through")
	assert.False(t, got.Limits.Reprovision, "and nothing that hurts follows")
	assert.Equal(t, 1, got.Limits.MaxAttempts)

	r.Attempt = 2
	s.Node = Node{Exists: Yes, UID: "u1", BootID: "b1", Ready: Yes}
	got, _, _ = Next(r, s, noon)
	assert.Equal(t, Held, got.Step, "a Node was isolated before")
	got, _, _ = Next(got, s, noon)
	assert.Equal(t, PowerOn, got.Step, "from there the order is carried out")
}

func TestAbortedRunCompletesWithoutAnotherAttempt(t *testing.T) {
	r, s := begin(AwaitNode, sec)
	abort(&r)
	s.Node = Node{Exists: No}
	r, _, _ = Next(r, s, noon)
	assert.Nil(t, r.Abort, "carried out once")
	r.OnSeen, r.StepStarted = ago(time.Hour), ago(time.Hour)
	r, _, _ = Next(r, s, noon)
	r, _, _ = Next(r, s, noon)
	assert.Equal(t, Held, r.Step)
	assert.Equal(t, "AttemptsExhausted", string(r.Reason))
}

func TestClosedAsIs(t *testing.T) {
	play(t, []scene{
		{"ends, whatever the host does", Held, minute, func(r *Run, s *Observation) { asIs(r); s.Power.State = bmc.Off }, Aborted, Nothing, "ClosedAsIs"},
		{"off on purpose", Held, minute, func(r *Run, s *Observation) {
			asIs(r)
			isolatedRun(r, "OperatorOff")
			r.LeaveOff = true
			unread(s, bmc.KindAuth)
		}, Aborted, Nothing, "ClosedAsIs"},
		{"our hold is not left behind", Held, minute, func(r *Run, s *Observation) { asIs(r); metal3(r, s, Yes); r.LeaveOff = true }, Held, ReleasePowerLock, "PowerOffFailed"},
		{"nor one that cannot be read", Held, minute, func(r *Run, s *Observation) { asIs(r); metal3(r, s, CannotTell) }, Held, Nothing, "PowerOffFailed"},
		{"not while On is pending at another machine", Held, minute, func(r *Run, s *Observation) {
			asIs(r)
			r.Contradicted = []Contradiction{{Level: 0, OnPending: true}}
			s.Power.Contradicted = true
		}, Held, Nothing, "PowerOffFailed"},
		{"too early: not carried out", PowerOff, sec, func(r *Run, s *Observation) { asIs(r); on(s) }, PowerOff, SendOff, ""},
	})
	r, s := begin(Held, minute)
	asIs(&r)
	got, _, _ := Next(r, s, noon)
	assert.Equal(t, "closed as it is by ann: mine; last power read: On", got.Note)
	assert.Nil(t, got.Abort)

	r, s = begin(PowerOff, sec)
	asIs(&r)
	got, _, _ = Next(r, s, noon)
	assert.Nil(t, got.Abort, "it does not wait for the run to be Held")
}

func TestRetry(t *testing.T) {
	play(t, []scene{
		{"an attempt that waits goes at once", PowerOff, 0, func(r *Run, s *Observation) { again(r, s); retry(r); r.NotBefore = noon.Add(time.Hour) }, PowerOff, SendOff, ""},
		{"but not through a pause", PowerOff, 0, func(r *Run, s *Observation) {
			again(r, s)
			retry(r)
			r.NotBefore, s.Paused = noon.Add(time.Hour), true
		}, PowerOff, Nothing, ""},
		{"Held before the isolation: step 1", Held, minute, func(r *Run, s *Observation) { retry(r) }, PowerOff, Nothing, ""},
		{"Held after it: step 3", Held, minute, func(r *Run, s *Observation) { retry(r); isolatedRun(r, "PowerOnFailed") }, PowerOn, Nothing, ""},
		{"attempts used up: one more", Held, minute, func(r *Run, s *Observation) { retry(r); isolatedRun(r, "AttemptsExhausted") }, PowerOff, Nothing, ""},
		{"off on purpose: not this way", Held, minute, func(r *Run, s *Observation) { retry(r); isolatedRun(r, "OperatorOff"); r.LeaveOff = true }, Held, Nothing, "OperatorOff"},
		{"frozen: not before that is released", Held, minute, func(r *Run, s *Observation) { retry(r); r.Reason, s.PowerForbidden = "FalseOff", "frozen" }, Held, Nothing, "FalseOff"},
		{"FalseOff that was released: step 1", Held, minute, func(r *Run, s *Observation) { retry(r); r.Reason = "FalseOff" }, PowerOff, Nothing, ""},
		{"paused: stays Held", Held, minute, func(r *Run, s *Observation) { retry(r); s.Paused = true }, Held, Nothing, "PowerOffFailed"},
		{"contested: stays Held", Held, minute, func(r *Run, s *Observation) { retry(r); s.Contested = Yes }, Held, Nothing, "PowerOffFailed"},
		{"On is pending at another machine: stays Held", Held, minute, func(r *Run, s *Observation) {
			retry(r)
			r.Contradicted = []Contradiction{{Level: 0, OnPending: true}}
			s.Power.Contradicted = true
		}, Held, Nothing, "PowerOffFailed"},
	})
	r, s := begin(Held, minute)
	retry(&r)
	s.Paused = true
	got, _, _ := Next(r, s, noon)
	assert.Nil(t, got.Retry, "it does not wait for the pause to end")
}

// again1 is a first attempt that a person began over, with the host in whatever state.
func again1(r *Run, s *Observation) {
	r.Revalidate, r.OffLease = true, nil
	s.OffAccepted, s.Proof, s.Power.State = false, proof(bmc.Off), bmc.On
}

func TestRetriedStepOneAsksEverythingAfresh(t *testing.T) {
	play(t, []scene{
		{"a fresh reason sends Off", PowerOff, 0, again1, PowerOff, SendOff, ""},
		{"recovered: back to On", PowerOff, 0, func(r *Run, s *Observation) { again1(r, s); s.Power.State, s.Justified = bmc.Off, No }, PowerOn, Nothing, "Recovered"},
		{"cannot tell: waits", PowerOff, 0, func(r *Run, s *Observation) { again1(r, s); s.Power.State, s.Justified = bmc.Off, CannotTell }, PowerOff, Nothing, ""},
		{"old reads: waits", PowerOff, 0, func(r *Run, s *Observation) { again1(r, s); s.Power.State, s.At = bmc.Off, ago(3*sec) }, PowerOff, Nothing, ""},
		{"quorum lost: back to On", PowerOff, 0, func(r *Run, s *Observation) { again1(r, s); r.ControlPlane, s.Quorum = true, No }, PowerOn, Nothing, "QuorumLost"},
		{"contested: back to On", PowerOff, 0, func(r *Run, s *Observation) { again1(r, s); s.Contested = Yes }, PowerOn, Nothing, "Contested"},
		{"another Node: back to On", PowerOff, 0, func(r *Run, s *Observation) { again1(r, s); s.Node.UID = "u2" }, PowerOn, Nothing, "TargetChanged"},
		{"aborted: back to On", PowerOff, 0, func(r *Run, s *Observation) { again1(r, s); abort(r) }, PowerOn, Nothing, "Aborted"},
		{"cannot begin in time: a human again", PowerOff, 61 * sec, func(r *Run, s *Observation) { again1(r, s); unread(s, bmc.KindUnreachable) }, Held, Nothing, "BMCUnreachable"},
	})
	r, s := begin(PowerOff, 0)
	again1(&r, &s)
	s.Power.State = bmc.Off
	got, action, _ := Next(r, s, noon)
	assert.Equal(t, SendOff, action)
	assert.False(t, got.Revalidate)
	assert.False(t, got.FoundOff, "it may be off because of us")
}

func TestRetryBeginsOver(t *testing.T) {
	r, s := begin(Held, time.Hour)
	at(&r, &s, 1, 1)
	retry(&r)
	got, _, _ := Next(r, s, noon)
	assert.Equal(t, "0 1", string(rune('0'+got.Level))+" "+string(rune('0'+got.OffLevel)), "at the first level; both are taken back in the end")
	assert.Equal(t, noon, got.Started, "with the whole time")
	assert.True(t, got.Revalidate && got.Intervened)
	assert.Nil(t, got.Retry)
	assert.Equal(t, "retried by ann: mended", got.Steps[len(got.Steps)-2].Note)

	r, s = begin(Held, time.Hour)
	isolatedRun(&r, "AttemptsExhausted")
	r.Attempt, r.Limits.MaxAttempts = 2, 2
	retry(&r)
	got, _, _ = Next(r, s, noon)
	assert.Equal(t, 3, got.Attempt)
	assert.Equal(t, 3, got.Limits.MaxAttempts, "one more, not two")
	assert.Equal(t, noon, got.NotBefore, "at once")
	assert.False(t, got.Intervened)
}

func TestOrdersThatMakeNoSense(t *testing.T) {
	held := func(change func(*Run)) Run {
		r, _ := begin(Held, minute)
		change(&r)
		return r
	}
	owing := func(r *Run) { r.Contradicted = []Contradiction{{OnPending: true}} }
	ended := held(func(r *Run) { r.Step = Done })
	working, _ := begin(PowerOff, sec)
	waiting := working
	waiting.Intervened, waiting.NotBefore = false, noon
	leftOff := held(func(r *Run) { isolatedRun(r, "OperatorOff"); r.LeaveOff = true })
	for _, c := range []struct {
		name                          string
		run                           Run
		abort, closes, retry, confirm bool
	}{
		{"ended", ended, false, false, false, false},
		{"at work", working, true, false, false, false},
		{"waits for its next attempt", waiting, true, false, true, false},
		{"Held", held(func(*Run) {}), true, true, true, true},
		{"Held, isolated", held(func(r *Run) { isolatedRun(r, "PowerOnFailed") }), true, true, true, false},
		{"Held, left off", leftOff, true, true, false, false},
		{"Held, a finalizer", held(func(r *Run) { r.LeaveOff = true }), true, true, true, false},
		{"Held, On pending", held(owing), true, false, false, false},
		{"Held, deletes a Machine", held(func(r *Run) { r.Strategy = DeleteMachine }), true, true, true, false},
	} {
		for name, can := range map[string]func(Run) (bool, string){"abort": CanAbort, "close": CanClose, "retry": CanRetry, "confirm": CanConfirm} {
			ok, why := can(c.run)
			want := map[string]bool{"abort": c.abort, "close": c.closes, "retry": c.retry, "confirm": c.confirm}[name]
			assert.Equal(t, want, ok, c.name+": "+name)
			assert.Equal(t, !want, why != "", c.name+": a refusal says why: "+name)
		}
	}
}

func TestUnfenceFromHeld(t *testing.T) {
	r, s := begin(Held, time.Hour)
	unfence(&r)
	r.Isolated, r.LeaveOff, r.OffOnly, r.Reason = ago(minute), true, true, "OperatorOff"
	r.Steps = []Visit{{Step: PowerOff, Started: ago(2 * time.Hour)}, {Step: Held, Started: ago(time.Hour)}}
	got, _, _ := Next(r, s, noon)
	assert.Equal(t, ago(2*time.Hour), got.Began(), "which it does not for who reads the record")
	assert.Equal(t, noon, got.Started, "the whole time starts over")
	assert.Equal(t, noon, got.OnSeen, "a Node that stands there is no FalseOff")
	assert.False(t, got.LeaveOff || got.OffOnly || got.Unfence != nil, "the order is carried out once")
	assert.Equal(t, "u1", got.Target.NodeUID, "the first attempt keeps its Node")

	r.Reason = "FalseOff"
	got, _, _ = Next(r, s, noon)
	assert.Empty(t, got.Target.NodeUID+got.Target.BootID, "a human vouches for the Node that stands there")
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
