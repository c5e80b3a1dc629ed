// Package upgrade_test keeps what is stored readable: testdata holds one record of each kind, with every field set, in a
// state file, and one entry of the audit log. golden_test.go says what they mean.
package upgrade_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/audit"
	"github.com/fenced/fenced/internal/escalate"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/request"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/state/boltstore"
	"github.com/fenced/fenced/internal/state/statetest"
	"github.com/fenced/fenced/test/must"
	_ "github.com/fenced/fenced/test/oneproc" // the audit log is written in virtual time
)

var update = flag.Bool("update", false, "write testdata anew; testdata/README.md says when")

// The files in testdata.
const (
	stateFile   = "testdata/state.db.gz"
	recordsFile = "testdata/records.txt" // the records of the state file, for people
	auditFile   = "testdata/audit.log"
)

// A record that is stored is read with the same meaning, field by field, and saved again as it was: no key and no value
// is lost, so a version that has no new field reads it after a downgrade. A new field fails here until golden has it.
func TestStoredRecordsKeepTheirMeaning(t *testing.T) {
	assert.Empty(t, unset("", reflect.ValueOf(golden)), "no golden record has it: add it, and write testdata anew")
	if *update {
		writeState(t)
	}
	s := must.Do(boltstore.Open(unpacked(t)))(t)
	defer func() { assert.NoError(t, s.Close()) }()
	require.NoError(t, state.CheckComplete(t.Context(), s))
	id := must.Do(state.ID(t.Context(), s))(t)
	assert.Equal(t, storeID, id)
	want := must.Do(os.ReadFile(recordsFile))(t)
	assert.Equal(t, string(want), text(t, s))
	read := load(t, s)
	save(t, s, read)
	assert.Equal(t, string(want), text(t, s), "saved again")
	assert.Equal(t, golden, unversioned(read))
}

// The audit log is read for ever: its chain is intact, each entry means the same, and a new one follows it.
func TestStoredAuditLogIsContinued(t *testing.T) {
	if *update {
		require.NoError(t, errors.Join(os.RemoveAll(auditFile), os.RemoveAll(auditFile+".head")))
		synctest.Test(t, func(t *testing.T) { appendEntry(t, auditFile) })
	}
	old := must.Do(os.ReadFile(auditFile))(t)
	path := filepath.Join(t.TempDir(), "audit.log")
	require.NoError(t, os.WriteFile(path, old, 0o600))
	remembered := must.Do(os.ReadFile(auditFile + ".head"))(t)
	require.NoError(t, os.WriteFile(path+".head", remembered, 0o600))
	appendEntry(t, path)
	head := must.Do(audit.ParseHead(strings.TrimSpace(string(remembered))))(t)
	must.Do(audit.Verify(path, head))(t)
	both := must.Do(os.ReadFile(path))(t)
	assert.True(t, bytes.HasPrefix(both, old), "the old entries stand as they were written")
	var entries []audit.Entry
	must.Do(audit.Walk(path, func(l audit.Line) error {
		entries = append(entries, l.Entry)
		return nil
	}))(t)
	require.Len(t, entries, 2*len(goldenEntries))
	assert.Equal(t, goldenEntries, entries[:len(goldenEntries)])
	assert.Empty(t, unset("", reflect.ValueOf(goldenEntries[1])))
}

// appendEntry opens the audit log, which records that, and appends the golden entry.
func appendEntry(t *testing.T, path string) {
	log := must.Do(audit.Open(path, audit.Options{Origin: *goldenEntries[0].Origin}))(t)
	entry := goldenEntries[1]
	must.Do(log.Append(t.Context(), entry))(t)
	_, err := log.Export()
	require.NoError(t, errors.Join(err, log.Close()))
}

// unpacked is a copy of the state file.
func unpacked(t *testing.T) string {
	packed := must.Do(os.Open(stateFile))(t)
	defer func() { assert.NoError(t, packed.Close()) }()
	z := must.Do(gzip.NewReader(packed))(t)
	data := must.Do(io.ReadAll(z))(t)
	path := filepath.Join(t.TempDir(), "state.db")
	require.NoError(t, os.WriteFile(path, data, 0o600))
	return path
}

// writeState writes the golden records into a new state file.
func writeState(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := must.Do(boltstore.Open(path))(t)
	id := must.Do(s.Get(t.Context(), state.KindMeta, "store-id"))(t)
	id.Data = []byte(storeID)
	must.Do(s.Put(t.Context(), id))(t)
	save(t, s, golden)
	require.NoError(t, os.WriteFile(recordsFile, []byte(text(t, s)), 0o644))
	require.NoError(t, s.Close())
	data := must.Do(os.ReadFile(path))(t)
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, err := z.Write(data)
	require.NoError(t, errors.Join(err, z.Close(), os.WriteFile(stateFile, packed.Bytes(), 0o644)))
}

// text shows every record of a store: kind, key and data.
func text(t *testing.T, s state.Store) string {
	var b strings.Builder
	for _, r := range statetest.Records(t, s) {
		var data bytes.Buffer
		require.NoError(t, json.Indent(&data, r.Data, "", "  "))
		fmt.Fprintf(&b, "%s %q\n%s\n", r.Kind, r.Key, data.String())
	}
	return b.String()
}

// load reads the records of all kinds.
func load(t *testing.T, s state.Store) (r records) {
	ctx := t.Context()
	r.Runs = list(t, s, state.LoadRuns)
	r.Backups = list(t, s, func(ctx context.Context, s state.Store) ([]state.Backup, error) {
		return state.Backups(ctx, s, r.Runs[0].ID)
	})
	r.Clusters = list(t, s, statetest.LoadClusters)
	r.Pins = list(t, s, func(ctx context.Context, s state.Store) ([]state.Pin, error) { return state.LoadPins(ctx, s, 0) })
	r.Freezes = list(t, s, statetest.LoadFreezes)
	r.Holds = list(t, s, statetest.LoadHolds)
	r.Slots = list(t, s, state.LoadSlots)
	r.Asked = list(t, s, escalate.Load)
	var err error
	r.Refused, err = state.LoadRefusedAccounts(ctx, s, golden.Refused.Instance)
	require.NoError(t, err)
	return r
}

func list[T any](t *testing.T, s state.Store, load func(context.Context, state.Store) ([]T, error)) []T {
	all := must.Do(load(t.Context(), s))(t)
	require.NotEmpty(t, all)
	return all
}

// save writes each record. A backup and a slot that are there stay as they are.
func save(t *testing.T, s state.Store, r records) {
	ctx := t.Context()
	saved := func(_ any, err error) { require.NoError(t, err) }
	for _, each := range r.Runs {
		saved(state.SaveRun(ctx, s, each))
	}
	if there, err := state.Backups(ctx, s, r.Runs[0].ID); len(there) == 0 {
		require.NoError(t, err)
		for _, each := range r.Backups {
			require.NoError(t, state.SaveBackup(ctx, s, each))
		}
	}
	for _, each := range r.Clusters {
		saved(statetest.SaveCluster(ctx, s, each))
	}
	for _, each := range r.Pins {
		saved(state.SavePin(ctx, s, each))
	}
	for _, each := range r.Freezes {
		saved(statetest.SaveFreeze(ctx, s, each))
	}
	for _, each := range r.Holds {
		saved(statetest.SaveHold(ctx, s, each))
	}
	for _, each := range r.Slots {
		saved(statetest.TakeSlot(ctx, s, len(r.Slots), each))
	}
	for _, each := range r.Asked {
		saved(escalate.Save(ctx, s, each))
	}
	saved(state.SaveRefusedAccounts(ctx, s, r.Refused))
}

// unversioned are the records without what only the store they came from gives them.
func unversioned(r records) records {
	for i := range r.Runs {
		r.Runs[i].Version = 0
	}
	for i := range r.Clusters {
		r.Clusters[i].Version = 0
	}
	for i := range r.Pins {
		r.Pins[i].Version = 0
	}
	for i := range r.Freezes {
		r.Freezes[i].Version = 0
	}
	for i := range r.Holds {
		r.Holds[i].Version = 0
	}
	for i := range r.Slots {
		r.Slots[i].Version, r.Slots[i].Key = 0, ""
	}
	for i := range r.Asked {
		r.Asked[i].Version, r.Asked[i].Key = 0, ""
	}
	r.Refused.Version = 0
	return r
}

// unset lists the stored fields that are empty in a value. In a list a field is empty if it is empty in every element.
func unset(path string, v reflect.Value) (empty []string) {
	switch {
	case v.IsZero():
		return []string{path}
	case v.Kind() == reflect.Pointer:
		return unset(path, v.Elem())
	case v.Type() == reflect.TypeFor[time.Time](), v.Type() == reflect.TypeFor[[]byte]():
		return nil
	case v.Kind() == reflect.Slice:
		count := map[string]int{}
		for i := range v.Len() {
			for _, field := range unset(path+"[]", v.Index(i)) {
				if count[field]++; count[field] == v.Len() {
					empty = append(empty, field)
				}
			}
		}
		return empty
	case v.Kind() != reflect.Struct:
		return nil
	}
	for i := range v.NumField() {
		if f := v.Type().Field(i); f.IsExported() && f.Tag.Get("json") != "-" {
			empty = append(empty, unset(path+"."+f.Name, v.Field(i))...)
		}
	}
	return empty
}

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
	Secret: "prod/ns/bmc-worker-1", Unverified: true, BareMetalHost: "ns/worker-1", BareMetalHostUID: "bmh-uid",
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
	Holds: []state.Hold{{Cluster: "prod", Node: "worker-1", By: "carol (uid 1002)", Reason: "a fan is changed", At: at(36), Until: at(37), Selector: "rack=r7", Quarantine: true,
		ReleasedBy: "dan (uid 1003)", ReleasedReason: "the fan is in", ReleasedAt: at(38)}},
	Slots: []state.Slot{{Cluster: "prod", Run: "c2wfqk94-b92936"}},
	Asked: []escalate.Record{{ID: "asked-1", Check: "FencePolicy.fenced.io workers", Target: goldenTarget, ControlPlane: true, TakesNoTurn: true,
		Objects: []request.Object{{APIVersion: "remediation.example/v1", Kind: "Remediation", Namespace: "ns", Name: "worker-1", OnManagementAPI: true,
			On: "cluster-uid", UID: "object-uid", Template: "template", Mark: "store/prod/asked-1", Made: at(39), TimedOut: at(40), Gone: at(41)}},
		Started: at(42), Labels: map[string]string{"rack": "b"}, Names: goldenNames, Idle: at(43), Ended: at(44), Recovered: true, GivenUp: order("given up", 45)}},
	Refused: state.RefusedAccounts{Instance: "fenced-1", Accounts: []state.RefusedAccount{{Service: "192.0.2.11", Part: "Sessions", User: "fence", Kind: "Auth",
		Salt: "X2VW4AANVTKLZGXR4HKZXAS44N", Mark: "60", Until: at(46), CheckUntil: at(47), CheckPause: 5 * time.Minute}}},
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
