package remediate

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/reason"
)

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
