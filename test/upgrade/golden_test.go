package upgrade_test

import (
	"time"

	"github.com/fenced/fenced/internal/audit"
	"github.com/fenced/fenced/internal/escalate"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/request"
	"github.com/fenced/fenced/internal/state"
)

// storeID is the ID of the golden state file.
const storeID = "P3TFXE5OQNJQXPPYKAUKGALMSU"

// records are all that a state file holds.
type records struct {
	Runs     []remediate.Run
	Backups  []state.Backup
	Clusters []state.Cluster
	Pins     []state.Pin
	Freezes  []state.Freeze
	Holds    []state.Hold
	Slots    []state.Slot
	Asked    []escalate.Record
	Refused  state.RefusedAccounts
}

// at is a time of its own for each number.
func at(n int) time.Time { return time.Date(2026, 1, 2, 3, 4, n, 5, time.UTC) }

// order is an order of its own for each actor.
func order(actor string, n int) *remediate.Order {
	return &remediate.Order{Actor: actor, Reason: "reason of " + actor, At: at(n), AsIs: true, Admin: true}
}

var goldenTarget = remediate.Target{
	Cluster: "prod", ClusterUID: "cluster-uid", ManagementUID: "management-uid", Node: "worker-1", NodeUID: "node-uid", BootID: "boot-1",
	SystemUUID: "4c4c4544-0042-3510-8054-b4c04f4d3101", Namespace: "ns", Machine: "machine-1", MachineUID: "machine-uid",
	MachineAPI: "machine.openshift.io/v1beta1", Host: "prod/ns/worker-1", Address: "ipmi://192.0.2.11:623", Devices: "192.0.2.11\n192.0.2.200 7",
	Choice: "293a4ee5baad8721\nc81c35093a2df5dc", ReportedUUID: "4c4c4544-0042-3510-8054-b4c04f4d3102", ByHardware: true,
	Secret: "prod/ns/bmc-worker-1", BareMetalHost: "ns/worker-1", BareMetalHostUID: "bmh-uid",
}

var goldenLease = remediate.Lease{Known: true, ResourceVersion: "2530", RenewTime: at(1), Duration: 40 * time.Second, Seen: at(2), BootID: "boot-0",
	Unregistered: true, KubeletReporting: true}

var goldenNames = remediate.NodeNames{OpenShiftMachine: "ns/machine-1", ClusterMachine: "machine-2", ProviderID: "metal3://ns/worker-1/machine-1"}

// golden has every field that is stored, each with a value of its own.
var golden = records{
	Runs: []remediate.Run{{
		ID: "c2wfqk94-b92936", Target: goldenTarget, Origin: &remediate.Origin{Controller: "machineset-uid", Created: at(3), NeverReady: true},
		Strategy: remediate.PowerCycle, Isolation: remediate.IsolateTaint, ControlPlane: true, TakesNoTurn: true,
		Limits: remediate.Limits{OffDeadline: 1, APITimeout: 2, PodsGoneTimeout: 3, OnDeadline: 4, ReadyTimeout: 5, RestoreTimeout: 6, RunTimeout: 7,
			MinPowerInterval: 8, MaxAttempts: 9, RetryInterval: 10, SessionTimeout: 11, Levels: 12, PowerOnFoundOff: true, ReleasePods: true,
			Reprovision: true, ReplaceControlPlane: true},
		NodeLabels: map[string]string{"zone": "a"}, NodeNames: goldenNames,
		Trigger: "Ready is Unknown", Check: "ns/workers", CheckID: "MachineHealthCheck.machine.openshift.io ns/workers", Manual: order("manual", 4),
		Request: &remediate.Request{Kind: "FencedRemediation", Namespace: "ns", Name: "request", UID: "request-uid", OnManagementAPI: true,
			Check: "MachineHealthCheck.cluster.x-k8s.io ns/of-request"},
		IsolatedAsked: true, OffOnly: true, Unfence: order("unfence", 5), Abort: order("abort", 6), Retry: order("retry", 7),
		Confirmed: order("confirmed", 8), Confirmation: &remediate.OffConfirmation{Given: at(9), Lease: goldenLease, Since: at(10), Expired: true},
		Step: remediate.Waiting, Attempt: 13, Started: at(11), StepStarted: at(12), Ended: at(13), Reason: "RunTimeout", Note: "the note",
		Intent: remediate.Intent{Action: remediate.SendOff, At: at(14)},
		Steps: []remediate.Visit{
			{Step: remediate.PowerOff, Attempt: 14, Started: at(15), Ended: at(16), Note: "of step 1"},
			{Step: remediate.DeleteNode}, {Step: remediate.PowerOn}, {Step: remediate.AwaitNode}, {Step: remediate.RestoreNode}, {Step: remediate.Reprovision},
			{Step: remediate.Held}, {Step: remediate.Done}, {Step: remediate.Aborted}, {Step: remediate.Reprovisioned}, {Step: remediate.Waiting},
		},
		Level: 15, OffLevel: 16, Contradicted: []remediate.Contradiction{{Level: 17, Since: at(17), OnPending: true}}, Proof: remediate.ProofDevice,
		Intervened: true, Revalidate: true, FoundOff: true, OffLease: &goldenLease, NewNodeUID: "new-node-uid",
		Restored: map[string]string{"label zone": "new-node-uid"}, LeaveOff: true, Isolated: at(18), Abandon: "Recovered", AbandonTo: remediate.Aborted,
		APILost: at(19), BusySince: at(20), Sessions: remediate.Sessions{Open: true, Left: []time.Time{at(21)}}, OnSeen: at(22), WrongClock: true,
		NotBefore: at(23), HealthySince: at(24), Wait: &remediate.Wait{Since: at(25), Code: "Unreachable", Count: 18, CauseSeen: true, Due: true},
		SwitchedOff: true, Tries: []time.Time{at(26)}, OtherPowerLock: "reboot.metal3.io/other", NoMoreAttempts: true,
	}},
	Backups: []state.Backup{{RunID: "c2wfqk94-b92936", NodeUID: "node-uid", ResourceVersion: "2531", Saved: at(27), Node: []byte(`{"name": "worker-1"}`)}},
	Clusters: []state.Cluster{
		{Name: state.AllClusters, ResumedAt: at(28)},
		{Name: "prod", Armed: true, ArmedBy: "ada (uid 1000)", ArmedReason: "try it", ArmedAt: at(29), Paused: true, PausedBy: "bob (uid 1001)",
			PausedReason: "new switches", PausedAt: at(30), PausedUntil: at(31), ResumedAt: at(32),
			Scope: state.Scope{Mode: "evaluate", Checks: map[string]string{"MachineHealthCheck ns/workers": "e85d6da29396"}, Requests: []string{"machines"}}},
	},
	Pins: []state.Pin{{Host: "prod/ns/worker-1", Node: "worker-1", MachineUID: "machine-uid", Address: goldenTarget.Address, Devices: goldenTarget.Devices,
		Choice: goldenTarget.Choice, Secret: goldenTarget.Secret, SystemUUID: goldenTarget.SystemUUID, BMCUUID: "44454c4c-4200-1035-8054-b4c04f4d3101",
		Serial: "SN-1", Class: "maker m-1 1.0", At: at(33), EnrolledBy: "ada (uid 1000)", Reported: "outlet 7", Revoked: "another device",
		Contradicted: "seen on another machine"}},
	Freezes: []state.Freeze{{RunID: "c2wfqk94-b92936", Host: "prod/ns/worker-1", Cluster: "prod", Node: "worker-1", Devices: "192.0.2.11", Class: "maker m-1 1.0",
		Reason: "the Lease was renewed", At: at(34), ReleasedBy: "bob (uid 1001)", ReleasedReason: "new firmware", ReleasedAt: at(35)}},
	Holds: []state.Hold{{Cluster: "prod", Node: "worker-1", By: "carol (uid 1002)", Reason: "a fan is changed", At: at(36), Until: at(37), Quarantine: true,
		ReleasedBy: "dan (uid 1003)", ReleasedReason: "the fan is in", ReleasedAt: at(38)}},
	Slots: []state.Slot{{Cluster: "prod", Run: "c2wfqk94-b92936"}},
	Asked: []escalate.Record{{ID: "asked-1", Check: "FencePolicy.fenced.io workers", Target: goldenTarget, ControlPlane: true, TakesNoTurn: true,
		Objects: []request.Object{{APIVersion: "remediation.example/v1", Kind: "Remediation", Namespace: "ns", Name: "worker-1", OnManagementAPI: true,
			On: "cluster-uid", UID: "object-uid", Template: "template", Mark: "store/prod/asked-1", Made: at(39), TimedOut: at(40), Gone: at(41)}},
		Started: at(42), Labels: map[string]string{"rack": "b"}, Names: goldenNames, Idle: at(43), Ended: at(44), Recovered: true, GivenUp: order("given up", 45)}},
	Refused: state.RefusedAccounts{Instance: "fenced-1", Accounts: []state.RefusedAccount{{Service: "192.0.2.11", Part: "Sessions", User: "fence", Kind: "Auth",
		Salt: "X2VW4AANVTKLZGXR4HKZXAS44N", Mark: "60", Until: at(46)}}},
}

// began is the first moment of virtual time.
var began = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// goldenEntries are those of the audit log: that it was opened, and one with every other field.
var goldenEntries = []audit.Entry{
	{Seq: 1, At: began, Type: audit.Opened, Origin: &audit.Origin{Version: "test", Host: "fenced-1", Store: storeID}},
	{Seq: 2, At: began, Type: "Decision", Cluster: "prod", Node: "worker-1", Machine: "ns/machine-1", Run: "c2wfqk94-b92936", Step: "PowerOff",
		Action: "SendOff", Reason: "RunTimeout", Message: "the message", Check: "ns/workers", Actor: "ada (uid 1000)", Why: "it answers nobody", Inputs: "inputs",
		Gates:  []audit.Gate{{Name: "frozen", Pass: true, Reason: "Frozen", Value: "1", Threshold: "2"}},
		Origin: &audit.Origin{Version: "test", Host: "fenced-1", Store: storeID}},
}
