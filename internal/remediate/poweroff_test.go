package remediate

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/times"
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

// offUnanswered is a later attempt whose first Off was saved, and not given: the daemon was
// killed, the BMC did not answer, or the claim ran out. By now the Node is Ready.
func offUnanswered(r *Run, s *Observation) {
	on(s)
	r.Attempt, r.OffLease, r.Intent = 2, nil, Intent{Action: SendOff, At: ago(minute)}
	s.OffAccepted, s.Justified, s.Why = false, No, "the target is Healthy now"
	s.Node.UID, s.Node.BootID, s.Node.Ready = "u2", "b2", Yes
}

// retargeted is one that had taken the Node for its target while that was not Ready.
func retargeted(r *Run, s *Observation) {
	offUnanswered(r, s)
	s.Node.Ready = No
	*r = retargetNode(*r, *s)
	s.Node.Ready = Yes
}

func TestLaterAttemptGivesNoFirstOffToAReadyNode(t *testing.T) { // I4
	play(t, []scene{
		{"registered after the cycle: on", PowerOff, 20 * sec, offUnanswered, PowerOn, Nothing, ""},
		{"taken for the target already: on", PowerOff, 20 * sec, retargeted, PowerOn, Nothing, ""},
		{"the hold is released first", PowerOff, 20 * sec, func(r *Run, s *Observation) { offUnanswered(r, s); metal3(r, s, Yes) }, PowerOff, ReleasePowerLock, ""},
		{"the hold cannot be read: waits", PowerOff, 20 * sec, func(r *Run, s *Observation) { offUnanswered(r, s); metal3(r, s, CannotTell) }, PowerOff, Nothing, ""},
		{"an Off may have been taken: waits", PowerOff, 20 * sec, func(r *Run, s *Observation) { offUnanswered(r, s); r.Intent.At = ago(15*sec - 1) }, PowerOff, Nothing, ""},
		{"it was taken: goes on", PowerOff, 20 * sec, func(r *Run, s *Observation) { offUnanswered(r, s); s.Power.State = bmc.Off }, PowerOff, SendOff, ""},
		{"it was taken in this process: goes on", PowerOff, 20 * sec, func(r *Run, s *Observation) { offUnanswered(r, s); s.OffAccepted = true }, PowerOff, SendOff, ""},
		{"the power is unknown: waits", PowerOff, 20 * sec, func(r *Run, s *Observation) { offUnanswered(r, s); s.Power.State = bmc.Unknown }, PowerOff, Nothing, ""},
		{"not Ready: Off", PowerOff, 20 * sec, func(r *Run, s *Observation) { offUnanswered(r, s); s.Node.Ready = No }, PowerOff, SendOff, ""},
		{"Ready cannot be read: waits", PowerOff, 20 * sec, func(r *Run, s *Observation) { offUnanswered(r, s); noAPI(s) }, PowerOff, Nothing, ""},
		{"forbidden meanwhile: waits", PowerOff, 20 * sec, func(r *Run, s *Observation) { offUnanswered(r, s); s.Node.Ready, s.PowerForbidden = No, "frozen" }, PowerOff, Nothing, ""},
		{"works under another name: a human", PowerOff, 20 * sec, func(r *Run, s *Observation) { offUnanswered(r, s); s.Node, s.RenamedTo = Node{Exists: No}, "n-new" }, Held, Nothing, "NodeRenamed"},
		{"never rebooted: its BMC has lied", PowerOff, 20 * sec, func(r *Run, s *Observation) { offUnanswered(r, s); s.Node.UID, s.Node.BootID = "u1", "b1" }, Held, Nothing, string(reason.FalseOff)},
		{"after a retry: on", PowerOff, 20 * sec, func(r *Run, s *Observation) { retargeted(r, s); r.Revalidate = true }, PowerOn, Nothing, ""},
	})
}

// What it has taken for its target meanwhile is the Node that step 4 accepts. // I6
func TestNodeOfALaterAttemptIsAccepted(t *testing.T) {
	for _, isolation := range []Isolation{IsolateDelete, IsolateTaint} {
		for name, change := range map[string]func(*Run, *Observation){"at once": offUnanswered, "taken for the target already": retargeted} {
			r, s := begin(PowerOff, 20*sec)
			r.Isolation = isolation
			change(&r, &s)
			now := noon
			for range 5 {
				var wait time.Duration
				r, _, wait = Next(r, s, now)
				now = now.Add(wait)
			}
			assert.Equal(t, Done, r.Step, "%s, %s: %s %s", isolation, name, r.Reason, r.Note)
		}
	}
	r, s := begin(PowerOff, 20*sec)
	retargeted(&r, &s)
	s.Node.UID = "u3" // deleted, and registered again under the same new boot
	r = retargetNode(r, s)
	got, _, _ := Next(r, s, noon)
	assert.Equal(t, PowerOn, got.Step, "%s: %s", got.Reason, got.Note)
	r, s = begin(PowerOff, 20*sec)
	offUnanswered(&r, &s)
	s.Node.SystemUUID = "another machine"
	r = retargetNode(r, s)
	got, _, _ = Next(r, s, noon)
	assert.Equal(t, PowerOn, got.Step)
	assert.Equal(t, reason.TargetChanged, got.Reason)
}

// stuckInBoot says whether the host was cycled, and its kubelet did not come up.
func (w *world) stuckInBoot() bool { return w.on && w.hung && w.upFor < 1000 && w.upFor >= bootDelay }

// bootsAfterAll lets it register now; it is Ready a second later.
func (w *world) bootsAfterAll() {
	w.hung, w.upFor, w.downFor = false, bootDelay+readyDelay-1, 0
	w.boots++
	w.register()
}

// slowBoots are the searches of kubelets that come up after their time.
var slowBoots = []variant{
	{name: "second attempt, slow kubelet", states: 4_000, badBoots: 1, maxAttempts: 2, faults: []fault{slowBoot, actFails, crashAfterSave, answerLost, deaf, lostPower, lostAPI}, budget: 2, want: "Done"},
	{name: "second attempt, slow kubelet, taint, Metal3", states: 2_100, isolation: IsolateTaint, bmh: true, badBoots: 1, maxAttempts: 2, faults: []fault{slowBoot, actFails, crashAfterSave, reregister}, budget: 2, want: "Done"},
	{name: "second attempt, slow kubelet, slow BMC", states: 1_300, levelled: levelled{bmc: slow}, badBoots: 1, maxAttempts: 2, faults: []fault{slowBoot, actFails, answerLost, crashAfterAct}, budget: 2, want: "Done"},
	{name: "second attempt, slow kubelet, outlets", states: 5_300, levelled: levelled{levels: 2, bmc: dead}, badBoots: 1, maxAttempts: 2, faults: []fault{slowBoot, actFails, answerLost, crashAfterSave}, budget: 2, want: "Done"},
	{name: "second attempt, slow kubelet, a long lie", states: 107_000, lieFor: 100, badBoots: 1, maxAttempts: 2, faults: []fault{slowBoot, lie, deaf, actFails, reregister}, budget: 3, want: "Done"},
}

// attemptMutants are broken forms of the rules about later attempts.
var attemptMutants = []mutant{
	{"presses a later Off home", "I4: SendOff to a Node that is Ready", variant{name: "m", badBoots: 1, maxAttempts: 2, faults: []fault{slowBoot, actFails}, budget: 2}, seeing(func(r Run, s *Observation, _ time.Time) {
		if r.Step == PowerOff && r.Intervened {
			s.Node.Ready = No
		}
	})},
	{"takes a late Off for none", "Done", variant{name: "m", levelled: levelled{bmc: slow}, badBoots: 1, maxAttempts: 2, faults: []fault{slowBoot, answerLost}, budget: 2}, func(r Run, s Observation, now time.Time) (Run, Action, time.Duration) {
		if r.Attempt > 1 && r.Step == PowerOff && s.Node.Ready == Yes {
			r.Intent.At = time.Time{}
		}
		return Next(r, s, now)
	}},
}

// The pause doubles, and no number of attempts makes it wrap around.
func TestPauseBeforeALaterAttempt(t *testing.T) {
	r := Run{Limits: Limits{MinPowerInterval: 24 * time.Hour}}
	last := time.Duration(0)
	for r.Attempt = 2; r.Attempt < 100; r.Attempt++ {
		next := pauseBefore(r)
		assert.GreaterOrEqual(t, next, max(last, r.Limits.MinPowerInterval), r.Attempt)
		last = next
	}
	r.Attempt = 4
	assert.Equal(t, 4*24*time.Hour, pauseBefore(r))
}

// crowds are the searches of BMCs without a free session.
var crowds = []variant{
	{name: "no session for a while", states: 99_000, levelled: levelled{bmc: crowded}, faults: join(engine, []fault{lostPower, newSession, pause, unfenceOrder}), budget: 2, runTimeout: 5 * time.Minute, want: "Done"},
	{name: "no session for a while, sick, Metal3", levelled: levelled{bmc: crowded}, sick: true, bmh: true, faults: join(crashes, []fault{lostAPI, foreignOn}), budget: 1, want: "Done"},
	{name: "no session for a while, with outlets", levelled: levelled{levels: 2, bmc: crowded}, faults: join(crashes, []fault{lostPower}), budget: 1, want: "Done"},
	{name: "no session ever again", levelled: levelled{bmc: full}, faults: join(crashes, []fault{pause, unfenceOrder}), budget: 1, want: "Held BMCSessions"},
	{name: "waits: no session ever again", retry: 200 * time.Millisecond, levelled: levelled{bmc: full}, faults: crashes, budget: 1, want: "Waiting BMCSessions"},
}

// A BMC that has no session free, or asks to be tried later, does not use up the time of step 1. The
// run goes on where it was, or stops after ten minutes. Another power level is not waited for.
func TestBusyBMCStopsTheClock(t *testing.T) {
	for _, kind := range []bmc.Kind{bmc.KindSessions, bmc.KindBusy, bmc.KindUnreachable} {
		for _, levels := range []int{1, 2} {
			r, s := begin(PowerOff, 0)
			r.Intervened, r.Limits.Levels = true, levels
			s.Power, s.Proof, s.PowerError = bmc.Reading{}, bmc.Proof{}, kind
			at := noon
			for ; r.Step == PowerOff && r.Level == 0 && at.Sub(noon) < time.Hour; at = at.Add(sec) {
				s.At = at
				r, _, _ = Next(r, s, at)
			}
			lasted := at.Sub(noon).Round(5 * sec)
			if kind == bmc.KindUnreachable || levels > 1 {
				assert.Equal(t, r.Limits.OffDeadline, lasted, "%s %d", kind, levels)
				continue
			}
			assert.Equal(t, r.Limits.OffDeadline+busyAtMost, lasted, kind)
			assert.Equal(t, reason.OfBMC(string(kind)), r.Reason)
		}
	}
}

func TestTimeAfterABusyBMC(t *testing.T) {
	r, s := begin(PowerOff, 10*sec)
	r.Intervened = true
	s.Power, s.Proof, s.PowerError = bmc.Reading{}, bmc.Proof{}, bmc.KindSessions
	before := r.Deadline()
	r, _, _ = Next(r, s, noon)
	assert.Equal(t, before.Add(busyAtMost), r.Deadline(), "at the latest")
	s.At, s.PowerError = noon.Add(minute), bmc.KindUnreachable
	r, _, _ = Next(r, s, noon.Add(minute))
	assert.Equal(t, before.Add(minute), r.Deadline(), "what was left is left still")
	require.Zero(t, r.BusySince)

	untouched, s := begin(PowerOff, 0)
	untouched.Intervened = false
	s.Power, s.PowerError = bmc.Reading{}, bmc.KindBusy
	untouched, _, _ = Next(untouched, s, noon)
	assert.Zero(t, untouched.BusySince, "a run that has done nothing is dropped, and begins again later")
}

// Whatever is written into a Lease, waits and deadlines that depend on it stay bounded, also those of a record of an
// older fenced. // I5, L1
func TestDurationOfALeaseIsCapped(t *testing.T) {
	for _, d := range []time.Duration{0, 40 * time.Second, times.LongestLease, times.LongestLease + sec, (1<<31 - 1) * time.Second} {
		l := Lease{Duration: d}
		assert.LessOrEqual(t, l.quietFor(), times.LongestLease/2)
		assert.LessOrEqual(t, l.recentFor(), times.LongestLease)
		assert.GreaterOrEqual(t, l.quietFor(), leaseQuietFor)
		assert.Equal(t, d > times.LongestLease, times.LeaseTooLong(l.Duration) != "")
		r, s := begin(PowerOff, sec)
		r.OffLease = &Lease{Known: true, ResourceVersion: "v1", RenewTime: noon.AddDate(900, 0, 0), Duration: d, Seen: noon}
		s.Lease = *r.OffLease
		assert.LessOrEqual(t, r.Deadline().Sub(noon), r.Limits.OffDeadline+times.LongestLease)
		later := noon.Add(l.quietFor())
		s.At, s.Proof = later, provenBy(noon).Add(bmc.Reading{State: bmc.Off, At: later})
		r, _, _ = Next(r, s, later)
		assert.Equal(t, DeleteNode, r.Step, "%s: %s: %s", d, r.Reason, r.Note)
	}
}

// FalseOff freezes a BMC, and from the second host on all BMCs of its model. It must not be concluded about a BMC
// that nobody has read, nor about a host that is On and has booted anew: somebody has switched it on while the daemon, its
// store or the API was away. // I5
func TestHostThatWasSwitchedOnIsNoFalseOff(t *testing.T) {
	anew := Node{Exists: Yes, UID: "u2", BootID: "b2", SystemUUID: "", Ready: Yes}
	for name, c := range map[string]struct {
		step Step
		set  func(r *Run, s *Observation)
	}{
		"step 2, On, another boot":                         {DeleteNode, func(r *Run, s *Observation) { on(s); s.Node = anew }},
		"step 2, the BMC cannot be read, another boot":     {DeleteNode, func(r *Run, s *Observation) { unread(s, bmc.KindSessions); s.Node = anew }},
		"step 2, the BMC cannot be read, renewed Lease":    {DeleteNode, func(r *Run, s *Observation) { unread(s, bmc.KindSessions); s.Lease.ResourceVersion = "v2" }},
		"step 1, the BMC cannot be read, renewed Lease":    {PowerOff, func(r *Run, s *Observation) { unread(s, bmc.KindSessions); s.Lease.ResourceVersion = "v2" }},
		"step 3, the BMC cannot be read yet, another boot": {PowerOn, func(r *Run, s *Observation) { unread(s, bmc.KindSessions); s.Node = anew }},
	} {
		r, s := begin(c.step, sec)
		c.set(&r, &s)
		s.Node.SystemUUID = r.Target.SystemUUID
		got, _, _ := Next(r, s, noon)
		assert.NotEqual(t, reason.FalseOff, got.Reason, "%s: %s", name, got.Note)
	}
}

// A Lease that this process saw renewed must stand still after that, whatever time the host's clock wrote into
// it, and although the Node was not read when the host first read Off. // I5
func TestRenewedLeaseMustStandStillWhateverItsTime(t *testing.T) {
	r, s := begin(PowerOff, sec)
	r.OffLease.BootID = ""
	s.Lease.ResourceVersion = "v2"
	r, action, _ := Next(r, s, noon)
	assert.Equal(t, PowerOff, r.Step)
	assert.Equal(t, Nothing, action)
	later := noon.Add(leaseQuietFor)
	s.At, s.Proof = later, provenBy(later)
	r, _, _ = Next(r, s, later)
	assert.Equal(t, DeleteNode, r.Step, "%s: %s", r.Reason, r.Note)
}

// One UUID in another writing is the same machine: Linux writes product_uuid in small letters since 4.17, and a
// power cycle boots the kernel that was installed last. // I6
func TestSameUUIDInOtherLettersIsTheSameMachine(t *testing.T) {
	r, s := begin(AwaitNode, sec)
	r.Target.SystemUUID = "4C4C4544-0042-3510-8054-B4C04F4D3132"
	s.Node = Node{Exists: Yes, UID: "u2", BootID: "b2", SystemUUID: strings.ToLower(r.Target.SystemUUID), Ready: No}
	got, _, _ := Next(r, s, noon)
	assert.NotEqual(t, reason.FalseOff, got.Reason, got.Note)
	assert.Equal(t, RestoreNode, got.Step)
}

// A later attempt proves the target's machine off. A Node that another machine has registered under the name since
// is not isolated for that: nothing was said about that machine. // I1, I8
func TestLaterAttemptIsolatesNoOtherMachinesNode(t *testing.T) {
	other := func(r *Run, s *Observation) {
		s.Node.UID, s.Node.BootID, s.Node.SystemUUID, s.Backup.UID = "u2", "b9", "another machine", "u2"
	}
	r, s := begin(PowerOff, sec)
	again(&r, &s)
	other(&r, &s)
	got, action, _ := Next(r, s, noon)
	assert.NotEqual(t, SendOff, action, "the Node is not that of the machine that would be switched off")

	r, s = begin(DeleteNode, sec)
	r.Attempt, r.Target.NodeUID = 2, "u2" // as step 1 takes it
	other(&r, &s)
	got, action, _ = Next(r, s, noon)
	assert.NotEqual(t, IsolateNode, action, "%s %s", got.Step, got.Note)

	r, s = begin(DeleteNode, sec) // the first attempt: the disks were moved to another chassis while the run waited
	s.Node.SystemUUID = "another machine"
	_, action, _ = Next(r, s, noon)
	assert.NotEqual(t, IsolateNode, action)
}

// Several machines report one placeholder of a system UUID, or none. A Node that has registered since may then be a
// spare machine's as well as the target's: no later attempt switches or isolates anything for it. It only comes back
// by itself. // I27
func TestLaterAttemptIsolatesNoUnknownMachinesNode(t *testing.T) {
	const placeholder, serial = "00000000-0000-0000-0000-000000000000", "4c4c4544-0042-3510-8054-b4c04f4d3132"
	for name, c := range map[string]struct {
		own, reported, node string
		goesOn              bool
	}{
		"no UUID":                             {"", "", "", false},
		"a placeholder":                       {placeholder, "", placeholder, false},
		"a placeholder of the BMC":            {"", placeholder, placeholder, false},
		"the BMC tells none":                  {"", "", serial, false},
		"the BMC tells that of the Node":      {"", serial, serial, true},
		"the Node before told that, too":      {serial, "", serial, true},
		"the Node tells none any more":        {"", serial, "", false},
		"the record has a placeholder":        {placeholder, "", serial, false},
		"only the record's is one of its own": {serial, "", placeholder, false},
	} {
		registered := func(r *Run, s *Observation) {
			r.Target.SystemUUID, r.Target.ReportedUUID, r.Limits.RetryInterval = c.own, c.reported, minute
			s.Node.UID, s.Node.BootID, s.Node.SystemUUID, s.Backup.UID = "u2", "b9", c.node, "u2"
		}
		r, s := begin(PowerOff, sec)
		again(&r, &s)
		registered(&r, &s)
		got, action, _ := Next(r, s, noon)
		assert.Equal(t, c.goesOn, action == SendOff, name)
		if c.goesOn {
			assert.Equal(t, "u2", got.Target.NodeUID, name)
			continue
		}
		assert.Equal(t, []any{Waiting, reason.TargetChanged, "u1"}, []any{got.Step, got.Reason, got.Target.NodeUID}, name)
		assert.NotEmpty(t, TargetReplaced(r, s), "%s: no order begins it again", name)

		now := noon
		for range 2000 {
			var wait time.Duration
			got, action, wait = Next(got, s, now)
			assert.False(t, action.Destructive(), "%s: %s in %s", name, action, got.Step)
			now = now.Add(max(wait, sec))
			s.At, s.Power.At = now, now
		}
		assert.Equal(t, []any{Waiting, false}, []any{got.Step, got.Wait.Due}, name)
		if s.Node.Ready = Yes; isOtherMachine(r.Target, s.Node) {
			continue
		}
		for range 100 {
			var wait time.Duration
			got, _, wait = Next(got, s, now)
			now = now.Add(max(wait, sec))
			s.At, s.Power.At = now, now
		}
		assert.Equal(t, Done, got.Step, name)

		r, s = begin(DeleteNode, sec)
		r.Attempt = 2
		registered(&r, &s)
		_, action, _ = Next(r, s, noon)
		assert.NotEqual(t, IsolateNode, action, name)

		// nor is a Node taken that a controller keeps in Git, and that any machine may register
		r, s = begin(PowerOff, sec)
		again(&r, &s)
		registered(&r, &s)
		s.Node.BootID, s.Node.SystemUUID = "", ""
		got, action, _ = Next(r, s, noon)
		assert.Equal(t, SendOff, action, name)
		if own := c.own + c.reported; own == "" || own == placeholder {
			assert.Equal(t, "u1", got.Target.NodeUID, name)
		}
	}
}

// A hold has its owner switch the host off. One that is on record and was not set, as
// after a restart, waits like any Off until the BMC has shown whose it is. // I8
func TestHoldWaitsForTheIdentity(t *testing.T) {
	for identity, want := range map[Answer]Action{Yes: SetPowerLock, CannotTell: Nothing} {
		r, s := begin(PowerOff, 0)
		r.Target.BareMetalHost, s.PowerLock, s.Identity = "ns/h", No, identity
		s.Power.State, s.Proof, s.OffAccepted = bmc.On, proof(bmc.On), false
		_, got, _ := Next(r, s, noon)
		assert.Equal(t, want, got, "%v", identity)
	}
}
