package remediate

import (
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

func TestBeforePowerOff(t *testing.T) {
	play(t, []scene{
		{"a fresh reason sends Off", PowerOff, 0, fresh, PowerOff, SendOff, ""},
		{"Metal3 gets the hold first", PowerOff, 0, func(r *Run, s *Observation) { fresh(r, s); metal3(r, s, No) }, PowerOff, SetPowerLock, ""},
		{"a hold that stands is not set again", PowerOff, 0, func(r *Run, s *Observation) { fresh(r, s); metal3(r, s, Yes) }, PowerOff, SendOff, ""},
		{"recovered: dropped", PowerOff, 0, func(r *Run, s *Observation) { fresh(r, s); s.Justified = No }, Aborted, Nothing, "Recovered"},
		{"cannot tell: waits", PowerOff, 0, func(r *Run, s *Observation) { fresh(r, s); s.Justified = CannotTell }, PowerOff, Nothing, ""},
		{"reads two seconds old are fresh", PowerOff, 0, func(r *Run, s *Observation) { fresh(r, s); s.At = ago(2 * sec) }, PowerOff, SendOff, ""},
		{"older reads are not", PowerOff, 0, func(r *Run, s *Observation) { fresh(r, s); s.At = ago(2*sec + 1) }, PowerOff, Nothing, ""},
		{"paused: dropped", PowerOff, 0, func(r *Run, s *Observation) { fresh(r, s); s.Paused = true }, Aborted, Nothing, "Paused"},
		{"unfenced: dropped", PowerOff, 0, func(r *Run, s *Observation) { fresh(r, s); unfence(r) }, Aborted, Nothing, "Unfenced"},
		{"another machine's BMC: dropped", PowerOff, 0, func(r *Run, s *Observation) { fresh(r, s); s.Identity = No }, Aborted, Nothing, "IdentityMismatch"},
		{"identity unknown: waits", PowerOff, 0, func(r *Run, s *Observation) { fresh(r, s); s.Identity = CannotTell }, PowerOff, Nothing, ""},
		{"contested: dropped", PowerOff, 0, func(r *Run, s *Observation) { fresh(r, s); s.Contested = Yes }, Aborted, Nothing, "Contested"},
		{"contest unknown: waits", PowerOff, 0, func(r *Run, s *Observation) { fresh(r, s); s.Contested = CannotTell }, PowerOff, Nothing, ""},
		{"forbidden by the power owner: dropped", PowerOff, 0, func(r *Run, s *Observation) { fresh(r, s); s.PowerForbidden = "disablePowerOff" }, Aborted, Nothing, "PowerForbidden"},
		{"a control plane without quorum to spare: dropped", PowerOff, 0, func(r *Run, s *Observation) { fresh(r, s); r.ControlPlane, s.Quorum = true, No }, Aborted, Nothing, "QuorumLost"},
		{"a control plane of unknown quorum: waits", PowerOff, 0, func(r *Run, s *Observation) { fresh(r, s); r.ControlPlane = true }, PowerOff, Nothing, ""},
		{"a control plane with quorum to spare", PowerOff, 0, func(r *Run, s *Observation) { fresh(r, s); r.ControlPlane, s.Quorum = true, Yes }, PowerOff, SendOff, ""},
		{"another Node: dropped", PowerOff, 0, func(r *Run, s *Observation) { fresh(r, s); s.Node.UID = "u2" }, Aborted, Nothing, "TargetChanged"},
		{"Ready, but sick in another way", PowerOff, 0, func(r *Run, s *Observation) { fresh(r, s); s.Node.Ready = Yes }, PowerOff, SendOff, ""},
		{"no Node: goes on", PowerOff, 0, func(r *Run, s *Observation) { fresh(r, s); s.Node = Node{Exists: No} }, PowerOff, SendOff, ""},
		{"Node unknown: waits", PowerOff, 0, func(r *Run, s *Observation) { fresh(r, s); s.Node = Node{} }, PowerOff, Nothing, ""},
		{"API gone: waits", PowerOff, 0, func(r *Run, s *Observation) { fresh(r, s); noAPI(s) }, PowerOff, Nothing, ""},
		{"API forbids: waits", PowerOff, 0, func(r *Run, s *Observation) { fresh(r, s); s.API = APIForbidden }, PowerOff, Nothing, ""},
		{"could not begin in time: dropped", PowerOff, 61 * sec, func(r *Run, s *Observation) { fresh(r, s); noAPI(s) }, Aborted, Nothing, "NotJudged"},
		{"BMC not reached in time: dropped, says why", PowerOff, 61 * sec, func(r *Run, s *Observation) { fresh(r, s); unread(s, bmc.KindUnreachable) }, Aborted, Nothing, "BMCUnreachable"},
	})
}

func TestSecondAttempt(t *testing.T) {
	play(t, []scene{
		{"waits for its back-off", PowerOff, 0, func(r *Run, s *Observation) { again(r, s); r.NotBefore = noon.Add(1) }, PowerOff, Nothing, ""},
		{"begins after it", PowerOff, 0, func(r *Run, s *Observation) { again(r, s); r.NotBefore = noon }, PowerOff, SendOff, ""},
		{"needs no reason but the missed deadline", PowerOff, 0, func(r *Run, s *Observation) { again(r, s); s.Justified = CannotTell }, PowerOff, SendOff, ""},
		{"is not dropped for want of a reason", PowerOff, 0, func(r *Run, s *Observation) { again(r, s); s.Justified = No }, PowerOff, SendOff, ""},
		{"takes the Node that registered", PowerOff, 0, func(r *Run, s *Observation) { again(r, s); s.Node.UID = "u2" }, PowerOff, SendOff, ""},
		{"a Node that is Ready after all is restored", PowerOff, 0, func(r *Run, s *Observation) { again(r, s); s.Node.UID, s.Node.Ready = "u2", Yes }, AwaitNode, Nothing, ""},
		{"paused: waits", PowerOff, 0, func(r *Run, s *Observation) { again(r, s); s.Paused = true }, PowerOff, Nothing, ""},
		{"contested: waits", PowerOff, 0, func(r *Run, s *Observation) { again(r, s); s.Contested = Yes }, PowerOff, Nothing, ""},
		{"forbidden by the power owner: waits", PowerOff, 0, func(r *Run, s *Observation) { again(r, s); s.PowerForbidden = "online: false" }, PowerOff, Nothing, ""},
		{"no quorum to spare: waits", PowerOff, 0, func(r *Run, s *Observation) { again(r, s); r.ControlPlane, s.Quorum = true, No }, PowerOff, Nothing, ""},
		{"another machine's BMC: waits", PowerOff, 0, func(r *Run, s *Observation) { again(r, s); s.Identity = No }, PowerOff, Nothing, ""},
		{"could not begin in time: a human", PowerOff, 61 * sec, func(r *Run, s *Observation) { again(r, s); noAPI(s) }, Held, Nothing, "NotJudged"},
		{"the time to begin counts from the back-off", PowerOff, 4 * minute, func(r *Run, s *Observation) { again(r, s); noAPI(s); r.NotBefore = ago(59 * sec) }, PowerOff, Nothing, ""},
		{"unfenced: on, and whatever Node stands there", PowerOff, 0, func(r *Run, s *Observation) { again(r, s); unfence(r) }, PowerOn, Nothing, ""},
		{"over the whole time, untouched: a human", PowerOff, 0, func(r *Run, s *Observation) { again(r, s); r.Started = ago(2*time.Hour + 1) }, Held, Nothing, "RunTimeout"},
		{"an abandoned one ends with a human", PowerOff, sec, func(r *Run, s *Observation) { r.Attempt, s.Proof = 2, proof(bmc.Off); s.Paused = true }, PowerOn, Nothing, "Paused"},
	})
}

func TestPowerOff(t *testing.T) {
	one := func(s *Observation) { s.Proof = proof(bmc.Off, 0) }
	recent := func(r *Run, since time.Duration) {
		r.OffLease.RenewTime, r.OffLease.Seen = ago(since+59*sec), ago(since)
	}
	long := func(r *Run, s *Observation, since time.Duration) {
		r.OffLease.Duration, r.OffLease.RenewTime, r.OffLease.Seen, s.Proof = 2*minute, ago(since+sec), ago(since), proof(bmc.Off, since, 0)
	}
	play(t, []scene{
		{"proven off: on to step 2", PowerOff, 4 * sec, nil, DeleteNode, Nothing, ""},
		{"one Off read is no proof", PowerOff, 4 * sec, func(r *Run, s *Observation) { one(s) }, PowerOff, Nothing, ""},
		{"an On read sends Off again", PowerOff, 12 * sec, func(r *Run, s *Observation) { on(s) }, PowerOff, SendOff, ""},
		{"but not within ten seconds", PowerOff, 12 * sec, func(r *Run, s *Observation) { on(s); r.Intent = Intent{SendOff, ago(9 * sec)} }, PowerOff, Nothing, ""},
		{"a clock set back does not hinder it", PowerOff, 12 * sec, func(r *Run, s *Observation) { on(s); r.Intent = Intent{SendOff, noon.Add(time.Hour)} }, PowerOff, SendOff, ""},
		{"a restart sends Off again", PowerOff, 12 * sec, func(r *Run, s *Observation) { s.OffAccepted = false }, PowerOff, SendOff, ""},
		{"Off without identity is not sent", PowerOff, 12 * sec, func(r *Run, s *Observation) { on(s); s.Identity = CannotTell }, PowerOff, Nothing, ""},
		{"another machine's BMC: a human", PowerOff, 12 * sec, func(r *Run, s *Observation) { on(s); s.Identity = No }, Held, Nothing, "IdentityMismatch"},
		{"password refused: a human at once", PowerOff, sec, func(r *Run, s *Observation) { unread(s, bmc.KindAuth) }, Held, Nothing, "BMCAuth"},
		{"privilege refused: a human at once", PowerOff, sec, func(r *Run, s *Observation) { unread(s, bmc.KindPrivilege) }, Held, Nothing, "BMCPrivilege"},
		{"never off: a human", PowerOff, minute + 1, func(r *Run, s *Observation) { on(s) }, Held, Nothing, "PowerOffFailed"},
		{"not yet at the deadline", PowerOff, minute, func(r *Run, s *Observation) { on(s) }, PowerOff, SendOff, ""},
		{"never read: a human, and why", PowerOff, minute + 1, func(r *Run, s *Observation) { unread(s, bmc.KindUnreachable) }, Held, Nothing, "BMCUnreachable"},
		{"the Lease moved: FalseOff", PowerOff, 4 * sec, func(r *Run, s *Observation) { s.Lease.ResourceVersion = "v2" }, Held, Nothing, "FalseOff"},
		{"the Lease is gone: fine", PowerOff, 4 * sec, func(r *Run, s *Observation) { s.Lease.ResourceVersion = "" }, DeleteNode, Nothing, ""},
		{"the Lease cannot be read: waits", PowerOff, 4 * sec, func(r *Run, s *Observation) { s.Lease.Known = false }, PowerOff, Nothing, ""},
		{"there never was a Lease", PowerOff, 4 * sec, func(r *Run, s *Observation) {
			r.OffLease.ResourceVersion, s.Lease.ResourceVersion = "", ""
			recent(r, 3*sec)
		}, DeleteNode, Nothing, ""},
		{"a Lease renewed 59 s before waits 15 s", PowerOff, 4 * sec, func(r *Run, s *Observation) { recent(r, 3*sec) }, PowerOff, Nothing, ""},
		{"not less", PowerOff, 15 * sec, func(r *Run, s *Observation) { recent(r, 15*sec-1); s.Proof = proof(bmc.Off, 15*sec-1, 0) }, PowerOff, Nothing, ""},
		{"and then goes on", PowerOff, 16 * sec, func(r *Run, s *Observation) { recent(r, 15*sec); s.Proof = proof(bmc.Off, 15*sec, 0) }, DeleteNode, Nothing, ""},
		{"a Lease of two minutes waits one", PowerOff, 4 * sec, func(r *Run, s *Observation) { long(r, s, 60*sec-1) }, PowerOff, Nothing, ""},
		{"and then goes on, though the usual time is over", PowerOff, 149 * sec, func(r *Run, s *Observation) { long(r, s, 60*sec) }, DeleteNode, Nothing, ""},
		{"if not for ever", PowerOff, 151 * sec, func(r *Run, s *Observation) { long(r, s, 59*sec) }, Held, Nothing, "PowerOffFailed"},
		{"a long Lease may be renewed again when a usual one is lost", PowerOff, 4 * sec, func(r *Run, s *Observation) { long(r, s, 3*sec); r.OffLease.RenewTime = ago(100 * sec) }, PowerOff, Nothing, ""},
		{"a Lease that was heard late waits from then", PowerOff, 30 * sec, func(r *Run, s *Observation) {
			recent(r, 20*sec)
			r.OffLease.Seen = ago(14 * sec)
			s.Proof = proof(bmc.Off, 20*sec, 0)
		}, PowerOff, Nothing, ""},
		{"one that was heard waits, too, if its clock is an hour behind", PowerOff, 4 * sec, func(r *Run, _ *Observation) { r.OffLease.KubeletReporting = true }, PowerOff, Nothing, ""},
		{"a Lease renewed 60 s before does not wait", PowerOff, 4 * sec, func(r *Run, s *Observation) { r.OffLease.RenewTime = ago(63 * sec) }, DeleteNode, Nothing, ""},
		{"proven, but the hold was taken away", PowerOff, 4 * sec, func(r *Run, s *Observation) { metal3(r, s, No) }, PowerOff, SetPowerLock, ""},
		{"proven, but the hold cannot be read", PowerOff, 4 * sec, func(r *Run, s *Observation) { metal3(r, s, CannotTell) }, PowerOff, Nothing, ""},
		{"paused: back to On", PowerOff, sec, func(r *Run, s *Observation) { one(s); s.Paused = true }, PowerOn, Nothing, "Paused"},
		{"unfenced: back to On", PowerOff, sec, func(r *Run, s *Observation) { one(s); unfence(r) }, PowerOn, Nothing, "Unfenced"},
		{"contested: back to On", PowerOff, sec, func(r *Run, s *Observation) { one(s); s.Contested = Yes }, PowerOn, Nothing, "Contested"},
		{"on again, and contest unknown: no Off is repeated", PowerOff, sec, func(r *Run, s *Observation) { on(s); s.Contested = CannotTell }, PowerOff, Nothing, ""},
		{"nor the lock set again", PowerOff, sec, func(r *Run, s *Observation) { metal3(r, s, No); on(s); s.Contested = CannotTell }, PowerOff, Nothing, ""},
		{"what reads Off is proven again all the same", PowerOff, sec, func(r *Run, s *Observation) { s.OffAccepted, s.Contested = false, CannotTell }, PowerOff, SendOff, ""},
		{"off, but the API is gone: back to On", PowerOff, minute + 1, func(r *Run, s *Observation) { noAPI(s) }, PowerOn, Nothing, "APIUnreachable"},
		{"off, and the API gone for now: waits", PowerOff, sec, func(r *Run, s *Observation) { noAPI(s) }, PowerOff, Nothing, ""},
		{"never off, and the API is gone: a human", PowerOff, minute + 1, func(r *Run, s *Observation) { noAPI(s); on(s) }, Held, Nothing, "PowerOffFailed"},
		{"off, but the Lease too recent at the deadline: a human", PowerOff, minute + 1, func(r *Run, s *Observation) { recent(r, 3*sec) }, Held, Nothing, "PowerOffFailed"},
		{"recovered before Off was taken: dropped", PowerOff, sec, func(r *Run, s *Observation) { on(s); s.OffAccepted, s.Justified = false, No }, PowerOn, Nothing, "Recovered"},
		{"recovered behind a BMC that does not answer: dropped", PowerOff, sec, func(r *Run, s *Observation) { unread(s, bmc.KindUnreachable); s.OffAccepted, s.Justified = false, No }, PowerOn, Nothing, "Recovered"},
		{"forbidden before Off was taken: dropped", PowerOff, sec, func(r *Run, s *Observation) { on(s); s.OffAccepted, s.PowerForbidden = false, "online: false" }, PowerOn, Nothing, "PowerForbidden"},
		{"no quorum to spare before Off was taken: dropped", PowerOff, sec, func(r *Run, s *Observation) { on(s); s.OffAccepted, r.ControlPlane, s.Quorum = false, true, No }, PowerOn, Nothing, "QuorumLost"},
		{"cannot tell before Off was taken: waits", PowerOff, 12 * sec, func(r *Run, s *Observation) { on(s); s.OffAccepted, s.Justified = false, CannotTell }, PowerOff, Nothing, ""},
		{"recovered after Off: completes", PowerOff, sec, func(r *Run, s *Observation) { on(s); s.Justified = No }, PowerOff, SendOff, ""},
		{"over the whole time: back to On", PowerOff, sec, func(r *Run, s *Observation) { r.Started = ago(2*time.Hour + 1) }, PowerOn, Nothing, "RunTimeout"},
	})
}

// A Node that a lost run has left tainted may have booted since the decision. That boot ends with this Off. // I6
func TestTaintOfALostRunEndsThePresentBoot(t *testing.T) {
	r, s := begin(DeleteNode, sec)
	taint(&r)
	s.Backup, s.Node.OutOfService, s.Node.BootID = Backup{}, true, "b2"
	r, _, _ = Next(r, s, noon)
	assert.Equal(t, []any{PowerOn, "b2"}, []any{r.Step, r.Target.BootID})
}

func TestDeleteNode(t *testing.T) {
	late := func(r *Run, s *Observation) { noAPI(s); r.APILost = ago(2*minute + 1) }
	leftTaint := func(r *Run, s *Observation) {
		taint(r)
		s.Backup, s.Node.OutOfService, s.Node.Ready = Backup{}, true, Yes
	}
	play(t, []scene{
		{"backed up and proven: deleted", DeleteNode, sec, nil, DeleteNode, IsolateNode, ""},
		{"no backup: saved first", DeleteNode, sec, func(r *Run, s *Observation) { s.Backup = Backup{} }, DeleteNode, BackupNode, ""},
		{"a conflict saves again", DeleteNode, sec, func(r *Run, s *Observation) { s.Node.ResourceVersion = "2"; r.Intent = Intent{IsolateNode, ago(sec)} }, DeleteNode, BackupNode, ""},
		{"a backup of another Node does not count", DeleteNode, sec, func(r *Run, s *Observation) { s.Backup.UID = "u0" }, DeleteNode, BackupNode, ""},
		{"gone: on to step 3", DeleteNode, sec, func(r *Run, s *Observation) { s.Node = Node{Exists: No} }, PowerOn, Nothing, ""},
		{"tainted: on to step 3", DeleteNode, sec, func(r *Run, s *Observation) { taint(r); s.Node.OutOfService = true }, PowerOn, Nothing, ""},
		{"tainted by a lost run, Ready until it times out: waits", DeleteNode, sec, leftTaint, DeleteNode, Nothing, ""},
		{"timed out: on to step 3", DeleteNode, sec, func(r *Run, s *Observation) { leftTaint(r, s); s.Node.Ready = No }, PowerOn, Nothing, ""},
		{"tainted by a lost run, Ready, and given up: the end", PowerOn, minute, func(r *Run, s *Observation) {
			s.Node = Node{Exists: Yes, UID: "u1", BootID: "b1", SystemUUID: "s"}
			leftTaint(r, s)
			on(s)
			r.Isolated, r.Abandon, r.AbandonTo, r.Reason = time.Time{}, reason.Paused, Aborted, reason.Paused
		}, Aborted, Nothing, "Paused"},
		{"a taint isolates nothing that is to be deleted", DeleteNode, sec, func(r *Run, s *Observation) { s.Node.OutOfService = true }, DeleteNode, IsolateNode, ""},
		{"the proof is six seconds old", DeleteNode, sec, func(r *Run, s *Observation) { s.Proof = proof(bmc.Off, 9*sec, 6*sec) }, DeleteNode, Nothing, ""},
		{"identity not read", DeleteNode, sec, func(r *Run, s *Observation) { s.Identity = CannotTell }, DeleteNode, Nothing, ""},
		{"an On read goes back to step 1", DeleteNode, sec, func(r *Run, s *Observation) { on(s) }, PowerOff, Nothing, ""},
		{"a restart goes back to step 1", DeleteNode, sec, func(r *Run, s *Observation) { s.OffAccepted = false }, PowerOff, Nothing, ""},
		{"a lost hold goes back to step 1", DeleteNode, sec, func(r *Run, s *Observation) { metal3(r, s, No) }, PowerOff, Nothing, ""},
		{"a hold that cannot be read waits", DeleteNode, sec, func(r *Run, s *Observation) { metal3(r, s, CannotTell) }, DeleteNode, Nothing, ""},
		{"another Node of that name, made since Off was read: FalseOff", DeleteNode, sec, func(r *Run, s *Observation) { s.Node.UID, s.Node.Created = "u2", noon }, Held, Nothing, "FalseOff"},
		{"that cannot be said while the clocks differ", DeleteNode, sec, func(r *Run, s *Observation) { s.Node.UID, s.Node.Created, s.Clock = "u2", noon, CannotTell }, PowerOn, Nothing, ""},
		{"another Node of that name, made before: back to On", DeleteNode, sec, func(r *Run, s *Observation) { s.Node.UID, s.Backup = "u2", Backup{} }, PowerOn, Nothing, "TargetChanged"},
		{"another Node of that name, and the store does not say whether the target's was saved", DeleteNode, sec, func(r *Run, s *Observation) { s.Node.UID, s.Backup = "u2", Backup{Unread: true} }, PowerOn, Nothing, ""},
		{"another Node of that name, and the target's was saved: it was isolated", DeleteNode, sec, func(r *Run, s *Observation) { s.Node.UID = "u2" }, PowerOn, Nothing, ""},
		{"the same with another machine's Node: back to On", DeleteNode, sec, func(r *Run, s *Observation) { s.Node.SystemUUID = "x" }, PowerOn, Nothing, "TargetChanged"},
		{"another machine's Lease moved: no FalseOff", DeleteNode, sec, func(r *Run, s *Observation) { s.Node.SystemUUID, s.Lease.ResourceVersion = "x", "v2" }, PowerOn, Nothing, "TargetChanged"},
		{"another Machine: back to On", DeleteNode, sec, func(r *Run, s *Observation) { s.Machine.UID = "mx" }, PowerOn, Nothing, "TargetChanged"},
		{"no Machine: back to On", DeleteNode, sec, func(r *Run, s *Observation) { s.Machine = Machine{Exists: No} }, PowerOn, Nothing, "TargetChanged"},
		{"another BareMetalHost: back to On", DeleteNode, sec, func(r *Run, s *Observation) {
			metal3(r, s, Yes)
			r.Target.BareMetalHostUID, s.BareMetalHostUID = "h1", "h2"
		}, PowerOn, Nothing, "TargetChanged"},
		{"the Machine names a BareMetalHost by now: back to On", DeleteNode, sec, func(_ *Run, s *Observation) { s.MachineMetal = "ns/h" }, PowerOn, Nothing, "TargetChanged"},
		{"another cluster is no answer", DeleteNode, sec, func(r *Run, s *Observation) { r.Target.ClusterUID, s.ClusterUID = "c1", "c2" }, DeleteNode, Nothing, ""},
		{"nor is one that cannot be told", DeleteNode, sec, func(r *Run, s *Observation) { r.Target.ClusterUID = "c1" }, DeleteNode, Nothing, ""},
		{"a Node that a cluster does not have is not isolated if nobody knows which cluster that is", DeleteNode, sec, func(r *Run, s *Observation) {
			r.Target.ClusterUID, s.API, s.Node = "c1", APIForbidden, Node{Exists: No}
		}, DeleteNode, Nothing, ""},
		{"the cluster of the record isolates", DeleteNode, sec, func(r *Run, s *Observation) { r.Target.ClusterUID, s.ClusterUID = "c1", "c1" }, DeleteNode, IsolateNode, ""},
		{"a Node from Git took its place: on to step 3", DeleteNode, sec, func(r *Run, s *Observation) { s.Node.UID, s.Node.BootID = "u2", "" }, PowerOn, Nothing, ""},
		{"another Node, tainted by whomever: FalseOff", DeleteNode, sec, func(r *Run, s *Observation) {
			taint(r)
			s.Node.UID, s.Node.OutOfService, s.Node.Created = "u2", true, noon
		}, Held, Nothing, "FalseOff"},
		{"the Lease moved since a proof before a restart: Off is proven again", DeleteNode, sec, func(r *Run, s *Observation) { r.OffLease.Seen, s.Lease.ResourceVersion = ago(minute), "v2" }, PowerOff, Nothing, ""},
		{"the Lease of another boot moved: Off is proven again", DeleteNode, sec, func(r *Run, s *Observation) { s.Node.BootID, s.Lease.ResourceVersion = "b2", "v2" }, PowerOff, Nothing, ""},
		{"the Lease moved: FalseOff", DeleteNode, sec, func(r *Run, s *Observation) { s.Lease.ResourceVersion = "v2" }, Held, Nothing, "FalseOff"},
		{"the Lease cannot be read", DeleteNode, sec, func(r *Run, s *Observation) { s.Lease.Known = false }, DeleteNode, Nothing, ""},
		{"contest cannot be read", DeleteNode, sec, func(r *Run, s *Observation) { s.Contested = CannotTell }, DeleteNode, Nothing, ""},
		{"contested: back to On", DeleteNode, sec, func(r *Run, s *Observation) { s.Contested = Yes }, PowerOn, Nothing, "Contested"},
		{"paused: back to On", DeleteNode, sec, func(r *Run, s *Observation) { s.Paused = true }, PowerOn, Nothing, "Paused"},
		{"unfenced: back to On", DeleteNode, sec, func(r *Run, s *Observation) { unfence(r) }, PowerOn, Nothing, "Unfenced"},
		{"still Ready: waits", DeleteNode, sec, func(r *Run, s *Observation) { s.Node.Ready = Yes }, DeleteNode, Nothing, ""},
		{"still Ready too long: back to On", DeleteNode, 2*minute + 1, func(r *Run, s *Observation) { s.Node.Ready = Yes }, PowerOn, Nothing, "NodeStillReady"},
		{"the Node cannot be read: waits", DeleteNode, sec, func(r *Run, s *Observation) { s.Node, s.Backup = Node{}, Backup{} }, DeleteNode, Nothing, ""},
		{"API gone: waits", DeleteNode, sec, func(r *Run, s *Observation) { noAPI(s) }, DeleteNode, Nothing, ""},
		{"API gone 120 s: back to On", DeleteNode, 3 * minute, late, PowerOn, Nothing, "APIUnreachable"},
		{"the time counts from the loss", DeleteNode, 3 * minute, func(r *Run, s *Observation) { late(r, s); r.APILost = ago(2 * minute) }, DeleteNode, Nothing, ""},
		{"API back: the time starts over", DeleteNode, 3 * minute, func(r *Run, s *Observation) { r.APILost = ago(minute) }, DeleteNode, IsolateNode, ""},
		{"API forbids 120 s: back to On", DeleteNode, 3 * minute, func(r *Run, s *Observation) { late(r, s); s.API = APIForbidden }, PowerOn, Nothing, "APIForbidden"},
		{"a finalizer: waits", DeleteNode, sec, func(r *Run, s *Observation) { s.Node.Deleting = true }, DeleteNode, Nothing, ""},
		{"a finalizer for ever: a human, and off", DeleteNode, 2*minute + 1, func(r *Run, s *Observation) { s.Node.Deleting = true }, Held, Nothing, "NodeFinalizer"},
		{"never isolated: back to On", DeleteNode, 2*minute + 1, nil, PowerOn, Nothing, "IsolationFailed"},
		{"off only: a human", DeleteNode, sec, func(r *Run, s *Observation) { r.OffOnly = true; s.Node = Node{Exists: No} }, Held, Nothing, "OperatorOff"},
		{"found off, to stay off: a human", DeleteNode, sec, func(r *Run, s *Observation) {
			r.FoundOff, r.Limits.PowerOnFoundOff, s.Node = true, false, Node{Exists: No}
		}, Held, Nothing, "FoundOff"},
		{"not found off: on to step 3", DeleteNode, sec, func(r *Run, s *Observation) { r.Limits.PowerOnFoundOff, s.Node = false, Node{Exists: No} }, PowerOn, Nothing, ""},
		{"found off: on to step 3", DeleteNode, sec, func(r *Run, s *Observation) { r.FoundOff, s.Node = true, Node{Exists: No} }, PowerOn, Nothing, ""},
	})
}

// What cannot isolate in time goes back to On, and ends by itself only where nobody has
// to mend anything.
func TestNotIsolatedInTime(t *testing.T) {
	for _, c := range []struct {
		name string
		seen func(s *Observation)
		to   Step
		off  bool
	}{
		{"the API does not answer", func(s *Observation) { noAPI(s) }, Aborted, false},
		{"it forbids", func(s *Observation) { noAPI(s); s.API = APIForbidden }, Held, false},
		{"still Ready", func(s *Observation) { s.Node.Ready = Yes }, Held, false},
		{"never deleted", func(*Observation) {}, Held, false},
		{"a finalizer: a kubelet that starts would not register", func(s *Observation) { s.Node.Deleting = true }, Held, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, s := begin(DeleteNode, 3*minute)
			c.seen(&s)
			if s.API != APIReachable {
				r.APILost = ago(3 * minute)
			}
			got, _, _ := Next(r, s, noon)
			assert.Equal(t, c.off, got.LeaveOff)
			if c.off {
				assert.Equal(t, c.to, got.Step)
				return
			}
			assert.Equal(t, PowerOn, got.Step)
			assert.Equal(t, c.to, got.AbandonTo)
		})
	}
}
