package upgrade_test

import (
	"github.com/fenced/fenced/internal/state"
)

// What the old daemon drew at random.
const (
	storeID = "P3TFXE5OQNJQXPPYKAUKGALMSU"
	oldHead = "93:33fb65180b2a18311b6ff60860292b2478645cd8cb3d51fcd7209532ea107f3f" // the end of its audit log

	confirmedRun   = "c2wfqk94-b92936"
	forgivenRun    = "c2wfrujs-37e4a8"
	lyingRun       = "c2wfrujs-548341"
	miswiredRun    = "c2wfrujs-7bf3a8"
	quarantinedRun = "c2wfrujs-d2449a"
	restoredRun    = "c2wfrujs-eb620f"
	isolatedRun    = "c2wg8ly0-ec0476"
	deletingRun    = "c2wg91dk-5f5048"
	cuttingRun     = "c2wg91j4-8b7b5c"
)

// backedUp is the resourceVersion of the Node that the run of isolated saved.
const backedUp = "2531"

// The holds: a person's, one that was released, and a quarantine.
var (
	maintenance = state.Hold{Cluster: "prod", Node: "maintained", By: "carol (uid 1002)", Reason: "a fan is changed",
		At: at("00:00:15"), Until: at("00:00:15").AddDate(0, 0, 3)}
	releasedHold = state.Hold{Cluster: "prod", Node: "handed", By: "carol (uid 1002)", Reason: "a disk is changed", At: at("00:00:15"),
		ReleasedBy: "dan (uid 1003)", ReleasedReason: "the disk is in", ReleasedAt: at("00:00:25")}
	quarantine = state.Hold{Cluster: "prod", Node: "quarantined", By: "fenced", Reason: "fenced again and again: 1 within 24h0m0s",
		At: at("00:12:27.000000001"), Until: at("00:12:27.000000001").AddDate(0, 0, 1), Quarantine: true}
)

// The clusters: a pause of all that is over, one that stands, and what the files said.
var clusters = []state.Cluster{
	{ResumedAt: at("00:00:15")},
	{Name: "lab", Armed: true, ArmedBy: "ada (uid 1000)", ArmedReason: "try it", ArmedAt: at("00:00:05"),
		Paused: true, PausedBy: "bob (uid 1001)", PausedReason: "new switches", PausedAt: at("00:00:05"), PausedUntil: at("00:00:05").AddDate(0, 0, 2),
		Scope: state.Scope{Mode: "observe", Checks: map[string]string{"MachineHealthCheck ns/workers": "e85d6da29396"}}},
	{Name: "prod", Scope: state.Scope{Mode: "evaluate"}},
}

// The freezes: one that stands, and one that a person ended.
var freezes = []state.Freeze{
	{RunID: forgivenRun, Host: "prod/forgiven", Cluster: "prod", Node: "forgiven", Devices: "192.0.2.17", Class: "maker m-forgiven 1.0",
		Reason: "the Node's Lease was renewed although the BMC says Off", At: at("00:02:26.000000001"),
		ReleasedBy: "bob (uid 1001)", ReleasedReason: "its BMC has new firmware", ReleasedAt: at("00:11:27")},
	{RunID: lyingRun, Host: "prod/lying", Cluster: "prod", Node: "lying", Devices: "192.0.2.16", Class: "maker m-lying 1.0",
		Reason: "the Node's Lease was renewed although the BMC says Off", At: at("00:02:26.000000001")},
}

// checkedPin is the pin of a host whose BMC was checked while it was well.
func checkedPin(host, ip, choice, uuid string) state.Pin {
	return state.Pin{Host: "prod/" + host, Node: host, Address: "ipmi://" + ip + ":623", Devices: ip, Choice: choice,
		SystemUUID: uuid, BMCUUID: uuid, Serial: "SN-" + host, Class: "maker m-" + host + " 1.0", At: at("00:00:05")}
}

// The pins, by host: those of the checks, one that a person enrolled, one of a host whose
// password is in a Secret, and the daemon's own host.
var pins = []state.Pin{
	checkedPin("confirmed", "192.0.2.14", "2075f4be8426f70c", "4c4c4544-0042-3510-8054-b4c04f4d3104"),
	checkedPin("cutting", "192.0.2.12", "7bd86bc413844e7f", "4c4c4544-0042-3510-8054-b4c04f4d3102"),
	checkedPin("deleting", "192.0.2.11", "293a4ee5baad8721", "4c4c4544-0042-3510-8054-b4c04f4d3101"),
	checkedPin("forgiven", "192.0.2.17", "55403e6b1bb81ed1", "4c4c4544-0042-3510-8054-b4c04f4d3107"),
	checkedPin("handed", "192.0.2.19", "0ed0a02ceec35d94", "4c4c4544-0042-3510-8054-b4c04f4d3109"),
	checkedPin("locked", "192.0.2.21", "565e3479f3184f77", "4c4c4544-0042-3510-8054-b4c04f4d3111"),
	checkedPin("lying", "192.0.2.16", "500286aa8d9d201d", "4c4c4544-0042-3510-8054-b4c04f4d3106"),
	checkedPin("maintained", "192.0.2.18", "7ac7bed7e9e073b9", "4c4c4544-0042-3510-8054-b4c04f4d3108"),
	{Host: "prod/miswired", Node: "miswired", Address: "ipmi://192.0.2.15:623, then fence_apc://192.0.2.200#7", Devices: "192.0.2.15\n192.0.2.200 7",
		Choice: "32ef442c2d5bc3cc\nc81c35093a2df5dc", SystemUUID: "4c4c4544-0042-3510-8054-b4c04f4d3105",
		BMCUUID: "4c4c4544-0042-3510-8054-b4c04f4d3105", Class: "maker m-miswired 1.0", At: at("00:00:05"), EnrolledBy: "ada (uid 1000)"},
	{Host: "prod/ns/isolated", Node: "isolated", Address: "ipmi://192.0.2.10:623", Devices: "192.0.2.10", Choice: "4950790885be7e30", Secret: "prod/ns/bmc-isolated",
		SystemUUID: "4c4c4544-0042-3510-8054-b4c04f4d3100", BMCUUID: "4c4c4544-0042-3510-8054-b4c04f4d3100", Serial: "SN-isolated", Class: "maker m-isolated 1.0", At: at("00:00:05")},
	checkedPin("quarantined", "192.0.2.20", "a80d4e1cf650906b", "4c4c4544-0042-3510-8054-b4c04f4d3110"),
	checkedPin("restored", "192.0.2.13", "2c57a3413d244001", "4c4c4544-0042-3510-8054-b4c04f4d3103"),
	{Host: "this host fenced-1", SystemUUID: "4c4c4544-0042-3510-8054-b4c04f4d3112"},
}

// The account that a BMC refused.
var refusedAccounts = state.RefusedAccounts{Instance: "fenced-1", Accounts: []state.RefusedAccount{{
	Service: "192.0.2.21", User: "fence", Kind: "Auth", Salt: "X2VW4AANVTKLZGXR4HKZXAS44N", Mark: "60", Until: at("00:17:27.000000001")}}}

// The places of the runs in flight.
var slots = []state.Slot{
	{Cluster: "prod", Run: isolatedRun, Key: "0001"}, {Cluster: "prod", Run: deletingRun, Key: "0002"}, {Cluster: "prod", Run: cuttingRun, Key: "0003"},
}
