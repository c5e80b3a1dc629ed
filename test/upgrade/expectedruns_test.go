package upgrade_test

import (
	"time"

	"github.com/fenced/fenced/internal/remediate"
)

// limitsOf are those of all runs of the story, but for the number of power levels.
func limitsOf(levels int) remediate.Limits {
	return remediate.Limits{OffDeadline: time.Minute, APITimeout: 2 * time.Minute, PodsGoneTimeout: time.Minute, OnDeadline: 3 * time.Minute,
		ReadyTimeout: 10 * time.Minute, RestoreTimeout: 10 * time.Minute, RunTimeout: 2 * time.Hour, MinPowerInterval: time.Minute,
		MaxAttempts: 3, Levels: levels, PowerOnFoundOff: true}
}

// The runs in which most kinds of field are set: after the isolation, after a manual confirmation,
// at a miswired outlet, and in mid-command.
var openRuns = []remediate.Run{
	{
		ID: isolatedRun,
		Target: remediate.Target{Cluster: "prod", Node: "isolated", NodeUID: "uid-1", BootID: "isolated-boot-1",
			SystemUUID: "4c4c4544-0042-3510-8054-b4c04f4d3100", Namespace: "ns", Machine: "machine-isolated",
			MachineUID: "machine-uid-isolated", MachineAPI: "machine.openshift.io/v1beta1", Host: "prod/ns/isolated",
			Address: "ipmi://192.0.2.10:623", Devices: "192.0.2.10", Choice: "4950790885be7e30", Secret: "prod/ns/bmc-isolated",
			BareMetalHost: "ns/isolated"},
		Strategy: "PowerCycle", Isolation: "deleteNode", Limits: limitsOf(1),
		Trigger: "check ns/workers: Ready is Unknown since 2000-01-01T00:14:27Z, longer than 1m0s", Check: "ns/workers",
		CheckID: "MachineHealthCheck.machine.openshift.io ns/workers", Step: "PowerOn", Attempt: 1,
		Started: at("00:15:27.000000001"), StepStarted: at("00:15:30.000000001"), Proof: "BMC", Intervened: true,
		OffLease: &remediate.Lease{Known: true, ResourceVersion: "2530", RenewTime: at("00:13:37"), Duration: 40 * time.Second, Seen: at("00:15:27.000000001")},
		Isolated: at("00:15:30.000000001"), APILost: at("00:15:51.000000001"),
		Steps: []remediate.Visit{
			{Step: "PowerOff", Attempt: 1, Started: at("00:15:27.000000001"), Ended: at("00:15:30.000000001")},
			{Step: "DeleteNode", Attempt: 1, Started: at("00:15:30.000000001"), Ended: at("00:15:30.000000001")},
			{Step: "PowerOn", Attempt: 1, Started: at("00:15:30.000000001")},
		},
	},
	{
		ID: confirmedRun,
		Target: remediate.Target{Cluster: "prod", Node: "confirmed", NodeUID: "uid-5", BootID: "confirmed-boot-1",
			SystemUUID: "4c4c4544-0042-3510-8054-b4c04f4d3104", Namespace: "ns", Machine: "machine-confirmed",
			MachineUID: "machine-uid-confirmed", MachineAPI: "machine.openshift.io/v1beta1", Host: "prod/confirmed",
			Address: "ipmi://192.0.2.14:623", Devices: "192.0.2.14", Choice: "2075f4be8426f70c"},
		Strategy: "PowerCycle", Isolation: "deleteNode", Limits: limitsOf(1),
		Trigger:      "confirmed off by ada (uid 1000): its power supply burnt",
		Manual:       &remediate.Order{Actor: "ada (uid 1000)", Reason: "its power supply burnt", At: at("00:01:25")},
		Confirmed:    &remediate.Order{Actor: "ada (uid 1000)", Reason: "its power supply burnt", At: at("00:01:25")},
		Confirmation: &remediate.OffConfirmation{Given: at("00:01:25"), Lease: remediate.Lease{Known: true, ResourceVersion: "168", RenewTime: at("00:01:20"), Duration: 40 * time.Second}, Since: at("00:01:25"), Expired: true},
		Step:         "Held", Attempt: 1, Started: at("00:01:25"), StepStarted: at("00:01:45"), Reason: "ConfirmedOff",
		Note: "confirmed off by ada (uid 1000): its power supply burnt; unfence brings it back, or a new boot", Proof: "Human",
		Intervened: true,
		OffLease:   &remediate.Lease{Known: true, ResourceVersion: "168", RenewTime: at("00:01:20"), Duration: 40 * time.Second},
		LeaveOff:   true, Isolated: at("00:01:45"),
		Steps: []remediate.Visit{
			{Step: "PowerOff", Attempt: 1, Started: at("00:01:25"), Ended: at("00:01:45"),
				Note: "off by the word of ada (uid 1000): its power supply burnt"},
			{Step: "DeleteNode", Attempt: 1, Started: at("00:01:45"), Ended: at("00:01:45"),
				Note: "ConfirmedOff: confirmed off by ada (uid 1000): its power supply burnt; unfence brings it back, or a new boot"},
			{Step: "Held", Attempt: 1, Started: at("00:01:45")},
		},
	},
	{
		ID: miswiredRun,
		Target: remediate.Target{Cluster: "prod", Node: "miswired", NodeUID: "uid-6", BootID: "miswired-boot-1",
			SystemUUID: "4c4c4544-0042-3510-8054-b4c04f4d3105", Namespace: "ns", Machine: "machine-miswired",
			MachineUID: "machine-uid-miswired", MachineAPI: "machine.openshift.io/v1beta1", Host: "prod/miswired",
			Address: "ipmi://192.0.2.15:623, then fence_apc://192.0.2.200#7", Devices: "192.0.2.15\n192.0.2.200 7",
			Choice: "32ef442c2d5bc3cc\nc81c35093a2df5dc"},
		Strategy: "PowerCycle", Isolation: "deleteNode", Limits: limitsOf(2),
		Trigger: "check ns/workers: Ready is Unknown since 2000-01-01T00:01:25Z, longer than 1m0s", Check: "ns/workers",
		CheckID: "MachineHealthCheck.machine.openshift.io ns/workers", Step: "Held", Attempt: 1, Started: at("00:02:25.000000001"),
		StepStarted: at("00:03:36.000000001"), Reason: "OutletContradicted",
		Note:   "power level 2 (fence_apc://192.0.2.200#7) reads Off while ipmi://192.0.2.15:623 reads On: it may feed another machine",
		Intent: remediate.Intent{Action: "SendOn", At: at("00:15:36.000000001")}, Level: 1, OffLevel: 1,
		Contradicted: []remediate.Contradiction{{Level: 1, Since: at("00:03:26.000000001"), OnPending: true}}, Intervened: true,
		APILost: at("00:15:51.000000001"),
		Steps: []remediate.Visit{
			{Step: "PowerOff", Attempt: 1, Started: at("00:02:25.000000001"), Ended: at("00:03:26.000000001"),
				Note: "power level 1 (ipmi://192.0.2.15:623): the host was not proven off in time; last read: On; on to the next level"},
			{Step: "PowerOff", Attempt: 1, Started: at("00:03:26.000000001"), Ended: at("00:03:36.000000001"),
				Note: "OutletContradicted: power level 2 (fence_apc://192.0.2.200#7) reads Off while ipmi://192.0.2.15:623 reads On: it may feed another machine"},
			{Step: "Held", Attempt: 1, Started: at("00:03:36.000000001")},
		},
	},
	{
		ID: cuttingRun,
		Target: remediate.Target{Cluster: "prod", Node: "cutting", NodeUID: "uid-3", BootID: "cutting-boot-1",
			SystemUUID: "4c4c4544-0042-3510-8054-b4c04f4d3102", Namespace: "ns", Machine: "machine-cutting",
			MachineUID: "machine-uid-cutting", MachineAPI: "machine.openshift.io/v1beta1", Host: "prod/cutting",
			Address: "ipmi://192.0.2.12:623", Devices: "192.0.2.12", Choice: "7bd86bc413844e7f"},
		Strategy: "PowerCycle", Isolation: "deleteNode", Limits: limitsOf(1),
		Trigger: "manual fence by ada (uid 1000): it answers nobody",
		Manual:  &remediate.Order{Actor: "ada (uid 1000)", Reason: "it answers nobody", At: at("00:15:47.2")}, Step: "PowerOff",
		Attempt: 1, Started: at("00:15:47.2"), StepStarted: at("00:15:47.2"),
		Intent: remediate.Intent{Action: "SendOff", At: at("00:15:47.2")}, Intervened: true,
		OffLease: &remediate.Lease{Known: true, ResourceVersion: "2690", RenewTime: at("00:14:57.2"), Duration: 40 * time.Second, Seen: at("00:15:47.2")},
		APILost:  at("00:15:50.2"),
		Steps: []remediate.Visit{
			{Step: "PowerOff", Attempt: 1, Started: at("00:15:47.2")},
		},
	},
}
