package remediate

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/reason"
)

func TestAwaitNode(t *testing.T) {
	play(t, []scene{
		{"new UID, new boot, same machine: on to step 5", AwaitNode, sec, nil, RestoreNode, Nothing, ""},
		{"no Node yet: waits", AwaitNode, sec, func(r *Run, s *Observation) { s.Node = Node{Exists: No} }, AwaitNode, Nothing, ""},
		{"no boot ID yet: waits", AwaitNode, sec, func(r *Run, s *Observation) { s.Node.BootID = "" }, AwaitNode, Nothing, ""},
		{"the old UID: waits", AwaitNode, sec, func(r *Run, s *Observation) { s.Node.UID = "u1" }, AwaitNode, Nothing, ""},
		{"the old boot: FalseOff", AwaitNode, sec, func(r *Run, s *Observation) { s.Node.BootID = "b1" }, Held, Nothing, "FalseOff"},
		{"another machine: its BMC told the truth", AwaitNode, sec, func(r *Run, s *Observation) { s.Node.SystemUUID = "x" }, Held, Nothing, "TargetChanged"},
		{"the machine was never known", AwaitNode, sec, func(r *Run, s *Observation) { r.Target.SystemUUID = "" }, RestoreNode, Nothing, ""},
		{"the machine that the BMC reported, in another byte order", AwaitNode, sec, func(r *Run, s *Observation) {
			withoutNode(r)
			s.Node.SystemUUID = "44454c4c-4200-1035-8054-b4c04f4d3132"
		}, RestoreNode, Nothing, ""},
		{"another machine than the BMC reported: a person looks, nothing is frozen", AwaitNode, sec, func(r *Run, s *Observation) {
			withoutNode(r)
			s.Node.SystemUUID = "4c4c4544-0042-3510-8054-b4c04f4d9999"
		}, Held, Nothing, "IdentityMismatch"},
		{"without a Node, and one attempt: step 6", AwaitNode, 10*minute + 1, func(r *Run, s *Observation) {
			withoutNode(r)
			s.Node = Node{Exists: No}
		}, Reprovision, Nothing, "AttemptsExhausted"},
		{"it works under a name that the Machine does not have: not erased", AwaitNode, 10*minute + 1, func(r *Run, s *Observation) {
			withoutNode(r)
			s.Node, s.RenamedTo = Node{Exists: No}, "n-9"
		}, Held, Nothing, "NodeRenamed"},
		{"tainted: the same UID with a new boot", AwaitNode, sec, func(r *Run, s *Observation) { taint(r); s.Node.UID = "u1" }, RestoreNode, Nothing, ""},
		{"tainted: the old boot waits", AwaitNode, sec, func(r *Run, s *Observation) { taint(r); s.Node.BootID, s.Node.Ready = "b1", No }, AwaitNode, Nothing, ""},
		{"tainted: the old boot is Ready: FalseOff", AwaitNode, sec, func(r *Run, s *Observation) { taint(r); s.Node.BootID = "b1" }, Held, Nothing, "FalseOff"},
		{"its owner switched it off again: not fought", AwaitNode, sec, func(r *Run, s *Observation) {
			s.Node, s.Power.State, s.OwnerWantsOff = Node{Exists: No}, bmc.Off, true
		}, Held, Nothing, "PowerForbidden"},
		{"reads Off again: back to step 3", AwaitNode, sec, func(r *Run, s *Observation) { s.Node, s.Power.State = Node{Exists: No}, bmc.Off }, PowerOn, Nothing, ""},
		{"not in time: the next attempt", AwaitNode, 10*minute + 1, func(r *Run, s *Observation) { s.Node = Node{Exists: No} }, PowerOff, Nothing, ""},
		{"not in time, none left: step 6", AwaitNode, 10*minute + 1, func(r *Run, s *Observation) { s.Node, r.Attempt = Node{Exists: No}, 2 }, Reprovision, Nothing, "AttemptsExhausted"},
		{"not in time, but the API was away: waits", AwaitNode, 11 * minute, func(r *Run, s *Observation) { noAPI(s); r.APILost = ago(5 * minute) }, AwaitNode, Nothing, ""},
		{"that time does not count", AwaitNode, 11 * minute, func(r *Run, s *Observation) { s.Node, r.APILost = Node{Exists: No}, ago(5*minute) }, AwaitNode, Nothing, ""},
	})
}

func TestRestoreNode(t *testing.T) {
	play(t, []scene{
		{"restored and Ready: Done", RestoreNode, sec, nil, Done, Nothing, ""},
		{"not restored: restored, before Ready", RestoreNode, sec, func(r *Run, s *Observation) { s.Restored, s.Node.Ready = No, No }, RestoreNode, RestoreTargetNode, ""},
		{"restored before the request is cleared", RestoreNode, sec, func(r *Run, s *Observation) { s.Restored, s.Machine.Requested = No, true }, RestoreNode, RestoreTargetNode, ""},
		{"registered late: restored all the same", RestoreNode, sec, func(r *Run, s *Observation) { s.Restored, r.OnSeen = No, ago(11*minute) }, RestoreNode, RestoreTargetNode, ""},
		{"our taint is removed", RestoreNode, sec, func(r *Run, s *Observation) { s.Node.OutOfService = true }, RestoreNode, RestoreTargetNode, ""},
		{"written again after two seconds", RestoreNode, sec, func(r *Run, s *Observation) { s.Restored = No; r.Intent = Intent{RestoreTargetNode, ago(sec)} }, RestoreNode, Nothing, ""},
		{"the request is cleared before the end", RestoreNode, sec, func(r *Run, s *Observation) { s.Machine.Requested = true }, RestoreNode, ClearRequest, ""},
		{"another Machine's request is not ours", RestoreNode, sec, func(r *Run, s *Observation) { s.Machine.Requested, s.Machine.UID = true, "m9" }, Done, Nothing, ""},
		{"a request that cannot be cleared cycles nothing", RestoreNode, 10*minute + 1, func(r *Run, s *Observation) { s.Machine.Requested = true }, Done, Nothing, "RequestNotCleared"},
		{"a Machine that cannot be read waits", RestoreNode, sec, func(r *Run, s *Observation) { s.Machine = Machine{} }, RestoreNode, Nothing, ""},
		{"a Machine that never was does not", RestoreNode, sec, func(r *Run, s *Observation) { s.Machine, r.Target.Machine = Machine{}, "" }, Done, Nothing, ""},
		{"restored, not Ready: waits", RestoreNode, sec, func(r *Run, s *Observation) { s.Node.Ready = No }, RestoreNode, Nothing, ""},
		{"not Ready in time: the next attempt", RestoreNode, 10*minute + 1, func(r *Run, s *Observation) { s.Node.Ready = No }, PowerOff, Nothing, ""},
		{"not Ready in time, none left: step 6", RestoreNode, 10*minute + 1, func(r *Run, s *Observation) { s.Node.Ready, r.Attempt = No, 2 }, Reprovision, Nothing, "AttemptsExhausted"},
		{"cannot be restored: a human", RestoreNode, minute + 1, func(r *Run, s *Observation) { s.Restored = No }, Held, Nothing, "RestoreFailed"},
		{"cannot be read: waits", RestoreNode, 2 * minute, func(r *Run, s *Observation) { noAPI(s); r.APILost = ago(minute) }, RestoreNode, Nothing, ""},
		{"that time does not count", RestoreNode, 2 * minute, func(r *Run, s *Observation) { s.Restored, r.APILost = No, ago(90*sec) }, RestoreNode, RestoreTargetNode, ""},
		{"the Node went away: back to step 4", RestoreNode, sec, func(r *Run, s *Observation) { s.Node = Node{Exists: No} }, AwaitNode, Nothing, ""},
		{"another Node: back to step 4", RestoreNode, sec, func(r *Run, s *Observation) { s.Node.UID = "u3" }, AwaitNode, Nothing, ""},
		{"the Node cannot be read: waits", RestoreNode, sec, func(r *Run, s *Observation) { noAPI(s) }, RestoreNode, Nothing, ""},
		{"its owner switched it off again: not fought", RestoreNode, sec, func(r *Run, s *Observation) {
			s.Node.Ready, s.Power.State, s.OwnerWantsOff = No, bmc.Off, true
		}, Held, Nothing, "PowerForbidden"},
		{"reads Off again: back to step 3", RestoreNode, sec, func(r *Run, s *Observation) { s.Node.Ready, s.Power.State = No, bmc.Off }, PowerOn, Nothing, ""},
	})
}

func TestReprovision(t *testing.T) {
	alone := func(r *Run, s *Observation) { r.Strategy, r.Target.Host = DeleteMachine, "" }
	backAtOff := func(_ *Run, s *Observation) {
		s.Node, s.Power.State = Node{Exists: Yes, UID: "u2", BootID: "b2", SystemUUID: "s", Ready: Yes}, bmc.Off
	}
	comesUp := func(r *Run, s *Observation) {
		r.Reason, r.NewNodeUID, s.Node = reason.PowerOnFailed, "", Node{Exists: Yes, UID: "u2", BootID: "b2", SystemUUID: "s", Ready: No}
		s.Power, s.PowerError = bmc.Reading{}, bmc.KindUnreachable
	}
	play(t, []scene{
		{"the Machine is deleted", Reprovision, sec, nil, Reprovision, DeleteTargetMachine, ""},
		{"gone: the end", Reprovision, sec, func(r *Run, s *Observation) { s.Machine = Machine{Exists: No} }, Reprovisioned, Nothing, ""},
		{"going: the end", Reprovision, sec, func(r *Run, s *Observation) { s.Machine.Deleting = true }, Reprovisioned, Nothing, ""},
		{"another of that name: the end", Reprovision, sec, func(r *Run, s *Observation) { s.Machine.UID = "x" }, Reprovisioned, Nothing, ""},
		{"our hold cannot be read: waits", Reprovision, sec, func(r *Run, s *Observation) { metal3(r, s, CannotTell); s.Machine.Exists = No }, Reprovision, Nothing, ""},
		{"not allowed: a human", Reprovision, sec, func(r *Run, s *Observation) { r.Limits.Reprovision, r.Reason = false, "PowerOnFailed" }, Held, Nothing, "PowerOnFailed"},
		{"not replaceable: a human", Reprovision, sec, func(r *Run, s *Observation) { s.Machine.Replaceable = No }, Held, Nothing, "AttemptsExhausted"},
		{"a control plane: a human", Reprovision, sec, func(r *Run, s *Observation) { r.ControlPlane = true }, Held, Nothing, "AttemptsExhausted"},
		{"no Machine: a human", Reprovision, sec, func(r *Run, s *Observation) { r.Target.Machine, s.Machine = "", Machine{Exists: No} }, Held, Nothing, "AttemptsExhausted"},
		{"replaceable unknown: waits", Reprovision, sec, func(r *Run, s *Observation) { s.Machine.Replaceable = CannotTell }, Reprovision, Nothing, ""},
		{"old reads: waits", Reprovision, sec, func(r *Run, s *Observation) { s.At = ago(2*sec + 1) }, Reprovision, Nothing, ""},
		{"paused: waits", Reprovision, sec, func(r *Run, s *Observation) { s.Paused = true }, Reprovision, Nothing, ""},
		{"contested: waits", Reprovision, sec, func(r *Run, s *Observation) { s.Contested = Yes }, Reprovision, Nothing, ""},
		{"contest unknown: waits", Reprovision, sec, func(r *Run, s *Observation) { s.Contested = CannotTell }, Reprovision, Nothing, ""},
		{"the Node cannot be read, and may be Ready: waits", Reprovision, sec, func(r *Run, s *Observation) { s.Node = Node{} }, Reprovision, Nothing, ""},
		{"no hold: the Machine is deleted", Reprovision, sec, func(r *Run, s *Observation) { metal3(r, s, No) }, Reprovision, DeleteTargetMachine, ""},
		{"unfenced: back to step 3", Reprovision, sec, func(r *Run, s *Observation) { unfence(r) }, PowerOn, Nothing, ""},
		{"our hold is released first", Reprovision, sec, func(r *Run, s *Observation) { metal3(r, s, Yes) }, Reprovision, ReleasePowerLock, ""},
		{"the Node is Ready, and its host reads Off: perhaps nobody has noticed", Reprovision, sec, backAtOff, Reprovision, Nothing, ""},
		{"it is still Ready: the BMC errs", Reprovision, 91 * sec, backAtOff, AwaitNode, Nothing, ""},
		{"its host reads Off since a moment only", Reprovision, 91 * sec, func(r *Run, s *Observation) {
			backAtOff(r, s)
			s.Proof = proof(bmc.Off, 10*sec, 0)
		}, Reprovision, Nothing, ""},
		{"its host reads Off all the time: the BMC errs", Reprovision, 3 * time.Minute, func(r *Run, s *Observation) {
			backAtOff(r, s)
			s.Proof = proof(bmc.Off, 91*sec, 0)
		}, AwaitNode, Nothing, ""},
		{"the Node is Ready after all: restored", Reprovision, sec, func(r *Run, s *Observation) {
			s.Node, r.Reason = Node{Exists: Yes, UID: "u2", BootID: "b2", SystemUUID: "s", Ready: Yes}, "AttemptsExhausted"
		}, AwaitNode, Nothing, ""},
		{"it was not read On, but has booted: the time of step 4", Reprovision, sec, comesUp, AwaitNode, Nothing, ""},
		{"the tainted Node has booted", Reprovision, sec, func(r *Run, s *Observation) {
			comesUp(r, s)
			r.Isolation, s.Node.UID = IsolateTaint, "u1"
		}, AwaitNode, Nothing, ""},
		{"step 5 has waited for that Node before", Reprovision, sec, func(r *Run, s *Observation) {
			comesUp(r, s)
			r.NewNodeUID = "u2"
		}, Reprovision, DeleteTargetMachine, "PowerOnFailed"},
		{"it has booted, and is Off again", Reprovision, sec, func(r *Run, s *Observation) {
			comesUp(r, s)
			s.Power.State = bmc.Off
		}, Reprovision, DeleteTargetMachine, "PowerOnFailed"},
		{"the Node registered again without a reboot: its host was never off", Reprovision, sec, func(_ *Run, s *Observation) {
			s.Node = Node{Exists: Yes, UID: "u2", BootID: "b1", SystemUUID: "s", Ready: No}
		}, Held, Nothing, "FalseOff"},
		{"the tainted Node is Ready without a reboot: its host was never off", Reprovision, sec, func(r *Run, s *Observation) {
			r.Isolation, s.Node = IsolateTaint, Node{Exists: Yes, UID: "u1", BootID: "b1", SystemUUID: "s", Ready: Yes}
		}, Held, Nothing, "FalseOff"},
		{"the tainted Node stays, and its boot is over", Reprovision, sec, func(r *Run, s *Observation) {
			r.Isolation, s.Node = IsolateTaint, Node{Exists: Yes, UID: "u1", BootID: "b1", SystemUUID: "s", Ready: No}
		}, Reprovision, DeleteTargetMachine, ""},
		{"alone: deleted", Reprovision, sec, alone, Reprovision, DeleteTargetMachine, ""},
		{"alone: recovered", Reprovision, sec, func(r *Run, s *Observation) { alone(r, s); s.Justified = No }, Aborted, Nothing, "Recovered"},
		{"alone: cannot tell: waits", Reprovision, sec, func(r *Run, s *Observation) { alone(r, s); s.Justified = CannotTell }, Reprovision, Nothing, ""},
		{"alone: contested", Reprovision, sec, func(r *Run, s *Observation) { alone(r, s); s.Contested = Yes }, Aborted, Nothing, "Contested"},
		{"alone: the Node cannot be read: waits", Reprovision, sec, func(r *Run, s *Observation) { alone(r, s); s.Node = Node{} }, Reprovision, Nothing, ""},
		{"alone: contest unknown: waits", Reprovision, sec, func(r *Run, s *Observation) { alone(r, s); s.Contested = CannotTell }, Reprovision, Nothing, ""},
		{"alone: paused", Reprovision, sec, func(r *Run, s *Observation) { alone(r, s); s.Paused = true }, Aborted, Nothing, "Paused"},
		{"alone: unfenced", Reprovision, sec, func(r *Run, s *Observation) { alone(r, s); unfence(r) }, Aborted, Nothing, "Unfenced"},
		{"alone: no controller", Reprovision, sec, func(r *Run, s *Observation) { alone(r, s); s.Machine.Replaceable = No }, Aborted, Nothing, "NoController"},
		{"alone: never a control plane", Reprovision, sec, func(r *Run, s *Observation) { alone(r, s); r.ControlPlane = true }, Aborted, Nothing, "ControlPlane"},
		{"alone: a control plane that may be replaced", Reprovision, sec, func(r *Run, s *Observation) {
			alone(r, s)
			r.ControlPlane, r.Limits.ReplaceControlPlane, s.Quorum = true, true, Yes
		}, Reprovision, DeleteTargetMachine, ""},
		{"marked: done", Reprovision, sec, func(r *Run, s *Observation) { alone(r, s); s.Machine.Marked = true }, Reprovisioned, Nothing, ""},
		{"alone: API gone too long", Reprovision, 2*minute + 1, func(r *Run, s *Observation) { alone(r, s); noAPI(s) }, Aborted, Nothing, "APIUnreachable"},
		{"alone: over the whole time, it ends and is not Held", Reprovision, 3 * time.Hour, func(r *Run, s *Observation) { alone(r, s); r.Started = ago(3 * time.Hour) }, Aborted, Nothing, "APIUnreachable"},
		{"alone: needs no fallback allowed", Reprovision, sec, func(r *Run, s *Observation) { alone(r, s); r.Limits.Reprovision = false }, Reprovision, DeleteTargetMachine, ""},
	})
}

func TestNextAttempt(t *testing.T) {
	r, s := begin(AwaitNode, 11*minute)
	at(&r, &s, 0, 1)
	r.Limits.MaxAttempts, r.Attempt, r.FoundOff, s.Node = 3, 2, true, Node{Exists: No}
	got, _, _ := Next(r, s, noon)
	assert.Equal(t, 3, got.Attempt)
	assert.Equal(t, 0, got.Level+got.OffLevel, "at the first level")
	assert.Equal(t, noon.Add(6*minute), got.NotBefore, "the back-off doubles")
	assert.False(t, got.Intervened || got.FoundOff || got.OffLease != nil || got.NewNodeUID != "")
	assert.True(t, got.Isolated.IsZero() && got.OnSeen.IsZero())
}

func TestReadyAfterAllHasItsWholeTime(t *testing.T) {
	r, s := begin(PowerOff, 0)
	again(&r, &s)
	s.Node = Node{Exists: Yes, UID: "u2", BootID: "b2", SystemUUID: "s", Ready: Yes}
	r, _, _ = Next(r, s, noon)
	assert.Equal(t, noon, r.OnSeen)
	r, _, _ = Next(r, s, noon)
	assert.Equal(t, RestoreNode, r.Step, "not the next attempt")
	assert.Equal(t, "u2", r.NewNodeUID)
}

func TestReprovisionGivesTheNodeItsWholeTime(t *testing.T) {
	r, s := begin(Reprovision, sec)
	r.OnSeen, s.Node = ago(time.Hour), Node{Exists: Yes, UID: "u2", BootID: "b2", SystemUUID: "s", Ready: Yes}
	r, _, _ = Next(r, s, noon)
	assert.Equal(t, noon, r.OnSeen)
}

func TestLaterAttemptAdoptsItsNode(t *testing.T) {
	r, s := begin(PowerOff, 0)
	again(&r, &s)
	s.Node.UID, s.Node.BootID = "u2", "b2"
	got, action, _ := Next(r, s, noon)
	assert.Equal(t, SendOff, action)
	assert.Equal(t, "u2 b2", got.Target.NodeUID+" "+got.Target.BootID)

	s.Node = Node{Exists: No}
	got, _, _ = Next(r, s, noon)
	assert.Equal(t, "u1 b1", got.Target.NodeUID+" "+got.Target.BootID, "there is nothing to adopt")

	r, s = begin(PowerOff, sec)
	on(&s)
	s.Node.UID = "u2"
	got, _, _ = Next(r, s, noon)
	assert.Equal(t, "u1", got.Target.NodeUID, "I2: the first attempt keeps the UID it was decided on")
}

func TestRefusedRestoreSaysWhy(t *testing.T) {
	r, s := begin(RestoreNode, minute+1)
	s.Restored, s.RestoreError = No, "no labels here"
	got, _, _ := Next(r, s, noon)
	assert.Equal(t, "no labels here", got.Note)
}

// A Node that could not be restored is Ready and waits, like its run, until the pause is over: step 5
// does not begin again at once, for ever. // L1, L5
func TestRefusedRestoreRests(t *testing.T) {
	for _, outOfService := range []bool{false, true} {
		r, s := begin(RestoreNode, minute+1)
		r.Limits.RetryInterval = time.Minute
		s.Restored, s.RestoreError, s.Node.OutOfService = No, "no labels here", outOfService
		r, _, _ = Next(r, s, noon)
		require.Equal(t, Waiting, r.Step)
		for wait := time.Duration(0); wait < time.Minute; wait += time.Second {
			r, _, _ = Next(r, s, noon.Add(wait))
			require.Equal(t, Waiting, r.Step, "after %s", wait)
		}
		s.Restored, s.Node.OutOfService = Yes, false // what forbade it is gone
		now := noon.Add(2 * time.Minute)
		for range 6 {
			r, _, _ = Next(r, s, now)
			now = now.Add(time.Second)
		}
		assert.Equal(t, Done, r.Step, "%s", r.Note)
	}
}

// The machine is compared as long as the run is not Done: another one may take the
// Node's name over after the registration. // I6
func TestNodeOfAnotherMachineIsNoSuccess(t *testing.T) {
	for _, isolation := range []Isolation{IsolateDelete, IsolateTaint} {
		r, s := begin(RestoreNode, 0)
		if r.Isolation = isolation; isolation == IsolateTaint {
			r.NewNodeUID, s.Node.UID = r.Target.NodeUID, r.Target.NodeUID
		}
		done, _, _ := Next(r, s, noon)
		assert.Equal(t, Done, done.Step, "%s", isolation)

		s.Node.SystemUUID = "of another"
		for range 2 {
			r, _, _ = Next(r, s, noon)
		}
		assert.Equal(t, Held, r.Step, "%s", isolation)
		assert.Equal(t, reason.TargetChanged, r.Reason)
		assert.Contains(t, r.Note, "another machine")
	}
}

// A Node is Ready for up to 90 s after its host went off. So a run whose host reads Off is not Done before that, and
// takes no request off its Machine: if the Node then turns not Ready, the host is switched on. A Node that is still
// Ready has a BMC that lies, and the host works. // I20, L1
func TestReadyNodeOfAHostThatReadsOffIsNotDoneAtOnce(t *testing.T) {
	for name, c := range map[string]struct {
		ready bool // after that time
		want  Step
	}{"the host is off": {false, PowerOn}, "the BMC lies": {true, Done}} {
		t.Run(name, func(t *testing.T) {
			r, s := begin(RestoreNode, 20*time.Minute) // also after its time
			s.Power.State, s.Proof, s.Machine.Requested = bmc.Off, proof(bmc.Off, 3*time.Second, 0), true
			for _, at := range []time.Duration{0, 30 * time.Second, 80 * time.Second} {
				got, action, _ := Next(r, s, noon.Add(at))
				require.Equal(t, []any{RestoreNode, Nothing}, []any{got.Step, action}, "%s", at)
			}
			s.Machine.Requested = false
			s.Node.Ready = AnswerOf(c.ready)
			got, _, _ := Next(r, s, noon.Add(91*time.Second))
			assert.Equal(t, c.want, got.Step)
		})
	}
}

// The owner of a host who wants it off is not fought, and its Node is not taken for working.
func TestReadyNodeOfAHostThatItsOwnerSwitchesOff(t *testing.T) {
	r, s := begin(RestoreNode, 0)
	s.Power.State, s.Proof, s.OwnerWantsOff = bmc.Off, proof(bmc.Off, 3*time.Second, 0), true
	r.Limits.RetryInterval = time.Minute
	got, _, _ := Next(r, s, noon)
	assert.NotEqual(t, Done, got.Step)
	s.Node.Ready = No
	got, _, _ = Next(got, s, noon.Add(time.Minute))
	assert.Equal(t, []any{Waiting, reason.PowerForbidden}, []any{got.Step, got.Reason})
}

// worn is what the search knows of the one label that it saves, on the present Node.
type worn struct {
	answer bool // the answer to the last restore showed it; a crash loses that
	took   bool // its owner took it off
	fought bool // and fenced put it back, which had read it back
}

var wornKeys = []string{"label"}

// restoredOn says whether the record has the label as read back on a Node.
func restoredOn(r Run, node int8) bool { return node != 0 && r.Restored[wornKeys[0]] == uid(node) }

// lookAtLabels is what a look says about the saved label.
func (w *world) lookAtLabels(r Run, s *Observation) {
	s.Restored = AnswerOf(w.labels || restoredOn(r, w.uid))
	if w.labels && !restoredOn(r, w.uid) || w.worn.answer {
		s.ReadBack = wornKeys
	}
}

// putLabels restores the label, unless the record has it as its owner's.
func (w *world) putLabels(r Run) {
	if !restoredOn(r, w.uid) {
		w.worn.fought = w.worn.took && w.worn.answer && !w.labels
		w.labels = true
	}
	w.worn.answer = w.worn.answer || w.labels
}

// owners are the searches in which the owner of a label takes it off after it was restored.
var owners = []variant{
	{name: "a label is taken off", states: 40_000, faults: join(engine, []fault{takenOff, lostAPI, foreignOff, slowLook}), budget: 3, want: "Done"},
	{name: "a label is taken off, taint", states: 18_000, isolation: IsolateTaint, faults: join(crashes, []fault{takenOff, lostAPI, actFails, answerLost, replaced}), budget: 3, want: "Done"},
}

var ownerMutants = []mutant{
	{"forgets what was read back", "I21: a label that its owner took off", variant{name: "m", faults: []fault{takenOff}, budget: 2}, saying(func(_ Run, _ Observation, r2 *Run, _ *Action, _ time.Time) {
		r2.Restored = nil
	})},
	{"does not hear what a restore was answered", "I21: a label that its owner took off", variant{name: "m", faults: []fault{takenOff}, budget: 1}, seeing(func(_ Run, s *Observation, _ time.Time) {
		s.ReadBack = nil
	})},
	{"takes what it wrote for read back", "Done : the labels are not back", variant{name: "m", faults: []fault{actFails}, budget: 1}, saying(func(_ Run, s Observation, r2 *Run, a *Action, _ time.Time) {
		if *a == RestoreTargetNode {
			r2.Restored = map[string]string{wornKeys[0]: s.Node.UID}
		}
	})},
}

// Only what was read back on the Node of step 5 is noted, for that Node; and the record stays small. // I21
func TestReadBackIsNotedForItsNode(t *testing.T) {
	was := map[string]string{"label a": "u1", "label b": "u1"}
	note := func(change func(r *Run, s *Observation)) map[string]string {
		r, s := begin(RestoreNode, sec)
		s.Restored, s.ReadBack, r.Restored = No, []string{"label a", "cordon"}, maps.Clone(was)
		change(&r, &s)
		got, _, _ := Next(r, s, noon)
		assert.Equal(t, was, r.Restored, "the caller's record")
		return got.Restored
	}
	assert.Equal(t, map[string]string{"label a": "u2", "label b": "u1", "cordon": "u2"}, note(func(*Run, *Observation) {}))
	assert.Equal(t, was, note(func(_ *Run, s *Observation) { s.Node.UID = "u3" }), "the new Node went away")
	assert.Equal(t, was, note(func(_ *Run, s *Observation) { s.Node.SystemUUID = "of another" }))
	assert.Equal(t, was, note(func(_ *Run, s *Observation) { s.Node = Node{} }), "it was not read")
	assert.Equal(t, was, note(func(r *Run, s *Observation) { r.Target.ClusterUID, s.ClusterUID = "c1", "c2" }))
	assert.Equal(t, was, note(func(r *Run, _ *Observation) { r.Step = AwaitNode }))
	many := note(func(_ *Run, s *Observation) {
		for i := range 2 * maxRestored {
			s.ReadBack = append(s.ReadBack, fmt.Sprint("label ", i))
		}
	})
	assert.Len(t, many, maxRestored)
	assert.Equal(t, "u2", many["label a"])
	assert.Nil(t, note(func(_ *Run, s *Observation) { s.Restored = Yes }), "the history stays small")
}

// A saved key that its owner took off before the next look costs a look, and no write. // I21
func TestOwnerIsFasterThanTheNextLook(t *testing.T) {
	const key = "taint a:NoExecute"
	r, s := begin(RestoreNode, sec)
	s.Restored = No
	r, action, _ := Next(r, s, noon)
	assert.Equal(t, RestoreTargetNode, action)
	s.ReadBack = []string{key} // as the write was answered
	var actions []Action
	for now := noon.Add(sec / 2); r.Open() && now.Before(noon.Add(minute)); now = now.Add(sec / 2) {
		s.Restored = AnswerOf(r.Restored[key] == "u2")
		r, action, _ = Next(r, s, now)
		actions = append(actions, action)
	}
	assert.NotContains(t, actions, RestoreTargetNode)
	assert.Equal(t, Done, r.Step)
}

func TestRenamedHostIsNotCycled(t *testing.T) { // I6
	gone := func(r *Run, s *Observation) { s.Node, s.RenamedTo = Node{Exists: No}, "n-new" }
	play(t, []scene{
		{"not under its name, in time: waits", AwaitNode, minute, gone, AwaitNode, Nothing, ""},
		{"not in time, and under another: a human", AwaitNode, 11 * minute, gone, Held, Nothing, "NodeRenamed"},
		{"the API cannot be read: waits", AwaitNode, 11 * minute, func(r *Run, s *Observation) { gone(r, s); noAPI(s) }, AwaitNode, Nothing, ""},
		{"during the back-off: a human", PowerOff, 0, func(r *Run, s *Observation) { again(r, s); gone(r, s) }, Held, Nothing, "NodeRenamed"},
		{"before step 6: a human", Reprovision, sec, gone, Held, Nothing, "NodeRenamed"},
	})
}

// While the Nodes cannot be seen, as just after a restart, nobody knows whether the
// host works under another name.
func TestUnseenNodesAreWaitedFor(t *testing.T) { // I6
	gone := func(r *Run, s *Observation) { s.Node, s.NodesUnseen = Node{Exists: No}, true }
	play(t, []scene{
		{"not in time: waits", AwaitNode, 11 * minute, gone, AwaitNode, Nothing, ""},
		{"after the back-off: waits", PowerOff, 0, func(r *Run, s *Observation) { again(r, s); gone(r, s) }, PowerOff, Nothing, ""},
		{"before step 6: waits", Reprovision, sec, gone, Reprovision, Nothing, ""},
		{"the first Off asks for no other Node", PowerOff, 0, func(r *Run, s *Observation) { fresh(r, s); s.NodesUnseen = true }, PowerOff, SendOff, ""},
	})
}
