package remediate

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/fenced/fenced/internal/bmc"
)

func TestPowerOn(t *testing.T) {
	abandoned := func(r *Run, s *Observation, to Step) {
		r.Isolated, r.Abandon, r.AbandonTo, r.Reason = time.Time{}, "Paused", to, "Paused"
		s.Node = Node{Exists: Yes, UID: "u1", BootID: "b1", Ready: No}
	}
	play(t, []scene{
		{"On is sent", PowerOn, 10 * sec, nil, PowerOn, SendOn, ""},
		{"five seconds after the proof, not earlier", PowerOn, 5*sec - 1, nil, PowerOn, Nothing, ""},
		{"not while pods are bound", PowerOn, 69 * sec, func(r *Run, s *Observation) { s.PodsGone = No }, PowerOn, Nothing, ""},
		{"pods that cannot be read are bound", PowerOn, 69 * sec, func(r *Run, s *Observation) { s.PodsGone = CannotTell }, PowerOn, Nothing, ""},
		{"after 70 s it is", PowerOn, 70 * sec, func(r *Run, s *Observation) { s.PodsGone = No }, PowerOn, SendOn, ""},
		{"sent again after ten seconds", PowerOn, minute, func(r *Run, s *Observation) { r.Intent = Intent{SendOn, ago(10 * sec)} }, PowerOn, SendOn, ""},
		{"not before", PowerOn, minute, func(r *Run, s *Observation) { r.Intent = Intent{SendOn, ago(10*sec - 1)} }, PowerOn, Nothing, ""},
		{"the hold is released first", PowerOn, 10 * sec, func(r *Run, s *Observation) { metal3(r, s, Yes) }, PowerOn, ReleasePowerLock, ""},
		{"a hold that cannot be read does not keep it off", PowerOn, 10 * sec, func(r *Run, s *Observation) { metal3(r, s, CannotTell) }, PowerOn, SendOn, ""},
		{"never to another machine's BMC", PowerOn, 10 * sec, func(r *Run, s *Observation) { s.Identity = No }, PowerOn, Nothing, ""},
		{"read On: on to step 4", PowerOn, 10 * sec, func(r *Run, s *Observation) { on(s) }, AwaitNode, Nothing, ""},
		{"read On under a hold, late: released all the same", PowerOn, time.Hour, func(r *Run, s *Observation) { on(s); metal3(r, s, Yes) }, PowerOn, ReleasePowerLock, ""},
		{"read On under a hold: released first", PowerOn, sec, func(r *Run, s *Observation) { on(s); metal3(r, s, Yes) }, PowerOn, ReleasePowerLock, ""},
		{"read On, the hold unknown: waits", PowerOn, 10 * sec, func(r *Run, s *Observation) { on(s); metal3(r, s, CannotTell) }, PowerOn, Nothing, ""},
		{"never on: step 6", PowerOn, 375 * sec, func(r *Run, s *Observation) {
			r.Isolated, r.Intent = ago(370*sec+1), Intent{SendOn, ago(2 * minute)}
		}, Reprovision, Nothing, "PowerOnFailed"},
		{"nobody has commanded On for longer: its whole time anew", PowerOn, 375 * sec, func(r *Run, s *Observation) {
			r.Isolated, r.Intent = ago(370*sec+1), Intent{SendOn, ago(2*minute + 1)}
		}, PowerOn, Nothing, ""},
		{"nor ever", PowerOn, 375 * sec, func(r *Run, s *Observation) { r.Isolated = ago(370*sec + 1) }, PowerOn, Nothing, ""},
		{"nobody ever will command another machine's BMC: step 6", PowerOn, 375 * sec, func(r *Run, s *Observation) {
			r.Isolated, s.Identity = ago(370*sec+1), No
		}, Reprovision, Nothing, "PowerOnFailed"},
		{"its owner switches it off again: no Machine is deleted for that", PowerOn, 375 * sec, func(r *Run, s *Observation) {
			r.Isolated, r.Intent, s.OwnerWantsOff = ago(370*sec+1), Intent{SendOn, ago(2 * minute)}, true
		}, Held, Nothing, "PowerForbidden"},
		{"its owner wants it off: On is tried all the same", PowerOn, 10 * sec, func(r *Run, s *Observation) { s.OwnerWantsOff = true }, PowerOn, SendOn, ""},
		{"the time counts from the pods", PowerOn, 370 * sec, nil, PowerOn, SendOn, ""},
		{"a Node comes back before On: FalseOff", PowerOn, sec, func(r *Run, s *Observation) {
			s.Node = Node{Exists: Yes, UID: "u2", BootID: "b1", SystemUUID: "s", Created: noon}
		}, Held, Nothing, "FalseOff"},
		{"a Node from Git comes before On: none of ours", PowerOn, 6 * sec, func(r *Run, s *Observation) { s.Node = Node{Exists: Yes, UID: "u2"} }, PowerOn, SendOn, ""},
		{"the Lease moves once before On: perhaps another machine registers", PowerOn, sec, func(r *Run, s *Observation) { s.Lease.ResourceVersion = "v2" }, PowerOn, Nothing, ""},
		{"the Lease moves again before On: FalseOff", PowerOn, sec, func(r *Run, s *Observation) { r.OffLease.Unregistered, s.Lease.ResourceVersion = true, "v2" }, Held, Nothing, "FalseOff"},
		{"after On was sent it may", PowerOn, minute, func(r *Run, s *Observation) {
			s.Lease.ResourceVersion, r.Intent = "v2", Intent{SendOn, ago(sec)}
		}, PowerOn, Nothing, ""},
		{"after the hold was released it may", PowerOn, minute, func(r *Run, s *Observation) {
			s.Lease.ResourceVersion, r.Intent = "v2", Intent{ReleasePowerLock, ago(sec)}
		}, PowerOn, SendOn, ""},
		{"in a second power-on it may", PowerOn, minute, func(r *Run, s *Observation) { s.Lease.ResourceVersion, r.OnSeen = "v2", ago(minute) }, PowerOn, SendOn, ""},
		{"paused after the isolation: completes", PowerOn, 10 * sec, func(r *Run, s *Observation) { s.Paused = true }, PowerOn, SendOn, ""},
		{"over the whole time: On all the same", PowerOn, 10 * sec, func(r *Run, s *Observation) { r.Started = ago(2*time.Hour + 1) }, PowerOn, SendOn, ""},
		{"over the whole time, and On: a human", PowerOn, 10 * sec, func(r *Run, s *Observation) { on(s); r.Started = ago(2*time.Hour + 1) }, Held, Nothing, "RunTimeout"},
		{"given up: On without waiting for pods", PowerOn, 10 * sec, func(r *Run, s *Observation) { abandoned(r, s, Aborted); s.PodsGone = No }, PowerOn, SendOn, "Paused"},
		{"given up and On, but an Off may come late: waits", PowerOn, 15*sec - 1, func(r *Run, s *Observation) { abandoned(r, s, Aborted); on(s) }, PowerOn, Nothing, "Paused"},
		{"not longer than half the deadline", PowerOn, 5 * sec, func(r *Run, s *Observation) { abandoned(r, s, Aborted); on(s); r.Limits.OnDeadline = 10 * sec }, Aborted, Nothing, "Paused"},
		{"our hold does not wait for that", PowerOn, sec, func(r *Run, s *Observation) { abandoned(r, s, Aborted); on(s); metal3(r, s, Yes) }, PowerOn, ReleasePowerLock, "Paused"},
		{"given up and On: the end", PowerOn, 15 * sec, func(r *Run, s *Observation) { abandoned(r, s, Aborted); on(s) }, Aborted, Nothing, "Paused"},
		{"given up and On: a human where that is said", PowerOn, 15 * sec, func(r *Run, s *Observation) { abandoned(r, s, Held); on(s) }, Held, Nothing, "Paused"},
		{"given up, late, and On: the end", PowerOn, 3 * time.Hour, func(r *Run, s *Observation) { abandoned(r, s, Aborted); on(s) }, Aborted, Nothing, "Paused"},
		{"read On, the Node not read: on to step 4", PowerOn, 10 * sec, func(r *Run, s *Observation) { on(s); noAPI(s) }, AwaitNode, Nothing, ""},
		{"given up, the Node not read: stays open", PowerOn, time.Hour, func(r *Run, s *Observation) { abandoned(r, s, Aborted); on(s); noAPI(s) }, PowerOn, Nothing, "Paused"},
		{"given up, the Node still going: stays open", PowerOn, time.Hour, func(r *Run, s *Observation) { abandoned(r, s, Aborted); on(s); s.Node.Deleting = true }, PowerOn, Nothing, "Paused"},
		{"given up, a finalizer for ever: a human", PowerOn, 2 * time.Hour, func(r *Run, s *Observation) { abandoned(r, s, Aborted); on(s); s.Node.Deleting = true }, Held, Nothing, "NodeFinalizer"},
		{"given up, and the delete had gone through", PowerOn, minute, func(r *Run, s *Observation) { abandoned(r, s, Aborted); on(s); s.Node = Node{Exists: No} }, AwaitNode, Nothing, ""},
		{"the pods of a Node deleted after all are waited for", PowerOn, minute, func(r *Run, s *Observation) {
			abandoned(r, s, Aborted)
			s.Node, s.PodsGone = Node{Exists: No}, No
		}, PowerOn, Nothing, ""},
		{"given up, and the taint had gone through", PowerOn, minute, func(r *Run, s *Observation) {
			abandoned(r, s, Aborted)
			taint(r)
			on(s)
			s.Node.OutOfService = true
		}, AwaitNode, Nothing, ""},
		{"given up, and there never was a Node", PowerOn, minute, func(r *Run, s *Observation) {
			abandoned(r, s, Aborted)
			on(s)
			r.Target.NodeUID, s.Node = "", Node{Exists: No}
		}, Aborted, Nothing, "Paused"},
		{"given up, and never on: a human", PowerOn, 301 * sec, func(r *Run, s *Observation) { abandoned(r, s, Aborted); r.Intent = Intent{SendOn, ago(sec)} }, Held, Nothing, "PowerOnFailed"},
		{"given up, late, the hold stands: released", PowerOn, 301 * sec, func(r *Run, s *Observation) { abandoned(r, s, Held); metal3(r, s, Yes); on(s) }, PowerOn, ReleasePowerLock, "Paused"},
		{"given up, forbidden, to be Aborted: stays open", PowerOn, 301 * sec, func(r *Run, s *Observation) {
			abandoned(r, s, Aborted)
			metal3(r, s, CannotTell)
			on(s)
			s.API = APIForbidden
		}, PowerOn, Nothing, "Paused"},
		{"given up, forbidden for ever: a human", PowerOn, 301 * sec, func(r *Run, s *Observation) {
			abandoned(r, s, Held)
			metal3(r, s, Yes)
			on(s)
			s.API = APIForbidden
		}, Held, Nothing, "Paused"},
	})
}

// withoutNode makes the target a Machine that never had a Node.
func withoutNode(r *Run) {
	r.Target.Node, r.Target.NodeUID, r.Target.BootID, r.Target.SystemUUID = "", "", "", ""
	r.Target.ReportedUUID, r.Limits.MaxAttempts = "4c4c4544-0042-3510-8054-b4c04f4d3132", 1
}

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
		{"alone: deleted", Reprovision, sec, alone, Reprovision, DeleteTargetMachine, ""},
		{"alone: recovered", Reprovision, sec, func(r *Run, s *Observation) { alone(r, s); s.Justified = No }, Aborted, Nothing, "Recovered"},
		{"alone: cannot tell: waits", Reprovision, sec, func(r *Run, s *Observation) { alone(r, s); s.Justified = CannotTell }, Reprovision, Nothing, ""},
		{"alone: contested", Reprovision, sec, func(r *Run, s *Observation) { alone(r, s); s.Contested = Yes }, Aborted, Nothing, "Contested"},
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

func TestNextAttempt(t *testing.T) {
	r, s := begin(AwaitNode, 11*minute)
	r.Limits.MaxAttempts, r.Attempt, r.FoundOff, s.Node = 3, 2, true, Node{Exists: No}
	got, _, _ := Next(r, s, noon)
	assert.Equal(t, 3, got.Attempt)
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
