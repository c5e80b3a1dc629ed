package remediate

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/reason"
)

// Somebody else requests that the bare-metal operator keeps the host off, and may delete its Node because of that. An
// abort removes only fenced's own lock; so does a run that has isolated the Node. // I20, I22
func TestPowerIsLeftToAnothersRequest(t *testing.T) {
	asked := func(r *Run, s *Observation) {
		metal3(r, s, No)
		s.OtherPowerLock, s.Contested = "reboot.metal3.io/metal3-remediation-1", Yes
	}
	abandoned := func(r *Run, s *Observation) {
		asked(r, s)
		r.Abandon, r.AbandonTo, r.Reason, r.Isolated = reason.Contested, Aborted, reason.Contested, time.Time{}
		s.Node = Node{Exists: Yes, UID: "u1", BootID: "b1", SystemUUID: "s", Ready: No}
	}
	play(t, []scene{
		{"fenced's own lock goes", PowerOn, 6 * sec, func(r *Run, s *Observation) { abandoned(r, s); s.PowerLock = Yes }, PowerOn, ReleasePowerLock, "Contested"},
		{"then it waits", PowerOn, 6 * sec, abandoned, Held, Nothing, "PowerForbidden"},
		{"also with a lock that cannot be removed in time", PowerOn, 20 * minute, func(r *Run, s *Observation) { abandoned(r, s); s.PowerLock = Yes }, Held, Nothing, "PowerForbidden"},
		{"the host reads On: nothing to give back", PowerOn, minute, func(r *Run, s *Observation) { abandoned(r, s); on(s) }, Aborted, Nothing, "Contested"},
		{"nobody else wants it off", PowerOn, 6 * sec, func(r *Run, s *Observation) { abandoned(r, s); s.OtherPowerLock = "" }, PowerOn, SendOn, "Contested"},
		{"the API never said: the host comes back", PowerOn, 6 * sec, func(r *Run, s *Observation) {
			abandoned(r, s)
			noAPI(s)
			s.OtherPowerLock = ""
		}, PowerOn, SendOn, "Contested"},
		{"the API said it, and does not answer now", PowerOn, 6 * sec, func(r *Run, s *Observation) {
			abandoned(r, s)
			r.OtherPowerLock = s.OtherPowerLock
			noAPI(s)
		}, PowerOn, Nothing, "Contested"},
		{"nor in time", PowerOn, 20 * minute, func(r *Run, s *Observation) {
			abandoned(r, s)
			r.OtherPowerLock = s.OtherPowerLock
			noAPI(s)
			s.OtherPowerLock = ""
		}, Held, Nothing, "PowerForbidden"},
		{"the operator cannot feed an outlet", PowerOn, 6 * sec, func(r *Run, s *Observation) {
			abandoned(r, s)
			r.Limits.Levels, r.Level, r.OffLevel, s.Level = 2, 1, 1, 1
		}, PowerOn, SendOn, "Contested"},
		{"after the isolation, too", PowerOn, 6 * sec, asked, Held, Nothing, "PowerForbidden"},
		{"no Machine is replaced because of that", PowerOn, 20 * minute, func(r *Run, s *Observation) { asked(r, s); r.Intent = Intent{SendOn, ago(sec)} }, Held, Nothing, "PowerForbidden"},
		{"a Held run sends no On", Held, minute, func(r *Run, s *Observation) {
			asked(r, s)
			s.Power.State, s.Node.Ready = bmc.Off, No
		}, Held, Nothing, "PowerOffFailed"},
	})
}

// The run waits for as long as that lasts, and ends by itself: when the annotation is gone, or when the host reads On.
func TestRunWaitsForAnothersRequest(t *testing.T) { // L5
	r, s := begin(PowerOn, 6*sec)
	metal3(&r, &s, No)
	r.Limits.RetryInterval, r.Isolated = minute, time.Time{}
	r.Abandon, r.AbandonTo, r.Reason = reason.Contested, Aborted, reason.Contested
	s.Node = Node{Exists: Yes, UID: "u1", BootID: "b1", SystemUUID: "s", Ready: No}
	s.Contested, s.OtherPowerLock = Yes, "reboot.metal3.io/metal3-remediation-1"
	r, action, _ := Next(r, s, noon)
	assert.Equal(t, []any{Waiting, reason.PowerForbidden, Nothing}, []any{r.Step, r.Reason, action})
	assert.Contains(t, r.Note, "abandoned (Contested); BareMetalHost ns/h carries the power request reboot.metal3.io/metal3-remediation-1 of somebody else")
	assert.False(t, r.Settled(), "the host is off")

	later := func(d time.Duration, change func(s *Observation)) (Run, Action) {
		now, s := noon.Add(d), s
		s.At, s.Power.At = now, now
		change(&s)
		got, action, _ := Next(r, s, now)
		return got, action
	}
	r, action = later(24*time.Hour, func(*Observation) {})
	assert.Equal(t, []any{Waiting, Nothing, true}, []any{r.Step, action, r.Wait.CauseSeen}, "however long")

	got, action := later(25*time.Hour, func(s *Observation) { s.OtherPowerLock, s.Contested = "", No })
	assert.Equal(t, []any{PowerOn, Nothing, reason.Contested}, []any{got.Step, action, got.Reason}, "On as usual")
	got, _ = later(25*time.Hour, func(s *Observation) { s.Power.State = bmc.On })
	assert.Equal(t, PowerOn, got.Step, "which ends it as its abort wanted")
}

// otherRequests are the searches of another remediator that starts in the middle of a run.
var otherRequests = []variant{
	{name: "another's power request", states: 32_000, bmh: true, retry: 200 * time.Millisecond, faults: join(engine, []fault{otherRequest, otherDone, lostAPI, lostPower}), budget: 3, want: "Done"},
	{name: "another's power request, taint, Held", states: 4_100, isolation: IsolateTaint, bmh: true, faults: join(crashes, people5, []fault{otherRequest, otherDone}), budget: 2, want: "Done"},
	{name: "another's power request, API away", states: 14_500, bmh: true, retry: 200 * time.Millisecond, faults: []fault{otherRequest, otherDone, outageShort, outageLong, crashAfterSave}, budget: 2, want: "Done"},
	{name: "another's power request, later attempts", states: 15_500, bmh: true, noReplace: true, retry: 200 * time.Millisecond, badBoots: 1, maxAttempts: 2, faults: join(crashes, []fault{otherRequest, otherDone, unfenceOrder}), budget: 2, want: "Done"},
}

// otherRequestMutants are broken forms of the rule about them.
var otherRequestMutants = []mutant{
	{"gives power back against another's request", "I22: On while somebody else", variant{name: "m", bmh: true, faults: []fault{otherRequest}, budget: 1}, seeing(func(_ Run, s *Observation, _ time.Time) {
		s.OtherPowerLock = ""
	})},
	{"forgets another's request while the API does not answer", "I22: On while somebody else", variant{name: "m", bmh: true, faults: []fault{otherRequest, outageLong}, budget: 2}, func(r Run, s Observation, now time.Time) (Run, Action, time.Duration) {
		if s.API != APIReachable {
			r.OtherPowerLock = ""
		}
		return Next(r, s, now)
	}},
	{"leaves its own lock beside another's request", "Waiting PowerForbidden: the hold stays", variant{name: "m", bmh: true, retry: time.Second, faults: []fault{otherRequest}, budget: 1}, seeing(func(r Run, s *Observation, _ time.Time) {
		if s.OtherPowerLock != "" && (r.Step == PowerOn || r.Step.Idle()) {
			s.PowerLock = No
		}
	})},
	{"ends while another keeps its host off", "Aborted PowerForbidden: the host is off", variant{name: "m", bmh: true, retry: time.Second, faults: []fault{otherRequest}, budget: 1}, saying(func(_ Run, _ Observation, r2 *Run, _ *Action, now time.Time) {
		if r2.Step == Waiting && r2.Reason == reason.PowerForbidden {
			*r2, _, _ = finish(*r2, Aborted, r2.Reason, "", now)
		}
	})},
}
