package remediate

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/reason"
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

// What was sent before nobody was there is not forgotten: a Node that registers while
// the host reads Off again is no lie of its BMC.
func TestTimeForOnBeginsAnew(t *testing.T) {
	r, s := begin(PowerOn, 10*minute)
	r.Isolated, r.Intent = ago(9*minute), Intent{SendOn, ago(8 * minute)}
	s.Node = Node{Exists: Yes, UID: "u2", BootID: "b2", SystemUUID: r.Target.SystemUUID}
	visits := len(r.Steps)
	next, action, _ := Next(r, s, noon)
	require.Equal(t, PowerOn, next.Step)
	assert.Equal(t, Nothing, action)
	assert.Equal(t, noon.Add(r.Limits.OnDeadline), next.Deadline())
	assert.Len(t, next.Steps, visits+1)
	assert.Equal(t, daemonAwayNote, next.Steps[visits-1].Note)

	s.At = noon.Add(pauseBeforeOn)
	next, action, _ = Next(next, s, s.At)
	assert.Equal(t, SendOn, action, "and not Held for a false Off: %s", next.Reason)
}

// No command reaches an outlet that hosts.d no longer names: the time for On does not begin anew for ever, and a
// person is called. // I10, L1
func TestTimeForOnEndsWhereTheAddressHasChanged(t *testing.T) {
	r, s := begin(PowerOn, 10*minute)
	r.Isolated = ago(9 * minute)
	s.Node = Node{Exists: Yes, UID: "u2", BootID: "b2", SystemUUID: r.Target.SystemUUID}
	s.LevelRefusal, s.Power, s.PowerError = reason.AddressChanged, bmc.Reading{}, bmc.KindUnreachable
	next, action, _ := Next(r, s, noon)
	assert.Equal(t, Held, next.Step)
	assert.Equal(t, reason.AddressChanged, next.Reason)
	assert.Equal(t, Nothing, action)
}

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

// releases are worlds whose pods are deleted at once.
var releases = []variant{
	{name: "pods released", states: 27_000, podsStay: true, releases: true, faults: join(engine, power, cluster, []fault{pause, resume}), budget: 2, want: "Done"},
	{name: "pods released, taint, Metal3", states: 13_900, isolation: IsolateTaint, bmh: true, podsStay: true, releases: true, faults: join(engine, power, cluster), budget: 2, want: "Done"},
	{name: "pods released, second attempt, Nodes from Git", states: 26_000, badBoots: 1, maxAttempts: 2, releases: true, faults: join(crashes, []fault{recreated, lie, foreignOn}), budget: 2, want: "Done"},
	{name: "pods released, on a confirmation", states: 2_200, releases: true, confirmedAtStart: true, faults: join(crashes, []fault{unfenceOrder}), budget: 2, want: "Held ConfirmedOff"},
}

// onRelease: a pod is deleted only if the Node that it is bound to is isolated, and off.
func (v *variant) onRelease(w *world, r Run, s Observation) (bad []string) {
	switch {
	case r.Isolated.IsZero():
		bad = append(bad, "I7: pods are deleted before the isolation is on the record")
	case r.Abandon != "":
		bad = append(bad, "I7: pods are deleted in an abandoned run")
	case s.Paused:
		bad = append(bad, "I23: pods are deleted while paused")
	case v.isolation == IsolateTaint && (s.Node.UID != r.Target.NodeUID || !s.Node.OutOfService || s.Node.BootID != r.Target.BootID):
		bad = append(bad, "I7: pods are deleted of a Node that is not the isolated one")
	case v.isolation != IsolateTaint && s.Node.Exists != No:
		bad = append(bad, "I7: pods are deleted of a Node that exists")
	case !w.ack || w.first < 0 || w.last-w.first < 3 || w.now-w.last > 5:
		bad = append(bad, "I1: pods are deleted without a proof of off")
	case w.on && !w.lied && !w.sincePower:
		bad = append(bad, "I7: pods are deleted while the host is on")
	}
	return bad
}

// releaseMutants are broken forms of the rule about pods.
var releaseMutants = []mutant{
	{"deletes pods before the isolation", "I7: pods are deleted before the isolation", variant{name: "m", releases: true}, saying(func(r Run, s Observation, r2 *Run, a *Action, now time.Time) {
		if r.Step == DeleteNode && *a == BackupNode {
			*a, r2.Intent = ReleasePods, Intent{Action: ReleasePods, At: now}
		}
	})},
	{"deletes the pods of a Node that is back", "I7: pods are deleted of a Node that exists", variant{name: "m", releases: true, podsStay: true, faults: []fault{foreignOn, lie}, budget: 2}, func(r Run, s Observation, now time.Time) (Run, Action, time.Duration) {
		if back := s; r.Step == PowerOn && s.Node.Exists == Yes {
			back.Node, back.Power.State, back.OffAccepted, back.Proof = Node{Exists: No}, bmc.Off, true, provenBy(s.Power.At)
			back.Lease = *cmpLease(r.OffLease, &back.Lease)
			return Next(r, back, now)
		}
		return Next(r, s, now)
	}},
	{"deletes pods without a proof", "I1: pods are deleted without a proof", variant{name: "m", releases: true, podsStay: true, faults: []fault{crashAfterSave}, budget: 1}, seeing(func(r Run, s *Observation, _ time.Time) {
		if r.Step == PowerOn && s.Power.State == bmc.Off {
			s.OffAccepted, s.Proof = true, provenBy(s.Power.At)
		}
	})},
	{"deletes pods while the host is on", "I1: pods are deleted without a proof", variant{name: "m", releases: true, podsStay: true, faults: []fault{foreignOn}, budget: 1}, seeing(func(r Run, s *Observation, _ time.Time) {
		if r.Step == PowerOn && r.Intent.Action != SendOn && s.Power.State == bmc.On {
			s.Power.State, s.OffAccepted, s.Proof = bmc.Off, true, provenBy(s.Power.At)
		}
	})},
}

// cmpLease is the Lease of the first Off read, where there is one.
func cmpLease(first, now *Lease) *Lease {
	if first != nil {
		return first
	}
	return now
}

// TestReleasePods: each thing that must hold before pods are deleted.
func TestReleasePods(t *testing.T) {
	now := clock(100)
	run := func() Run {
		v := variant{releases: true}
		r := v.run()
		r.Step, r.StepStarted, r.Isolated, r.OffLease, r.Intervened = PowerOn, now, now, &Lease{Known: true}, true
		return r
	}
	seen := func() Observation {
		return Observation{At: now, API: APIReachable, Identity: Yes, Contested: No, Power: bmc.Reading{State: bmc.Off, At: now}, OffAccepted: true, Proof: provenBy(now),
			Node: Node{Exists: No}, Lease: Lease{Known: true}, PodsGone: No, PodsReleased: No, VolumesReleased: Yes, Clock: Yes}
	}
	for name, row := range map[string]struct {
		change func(r *Run, s *Observation)
		want   Action
	}{
		"pods are bound":              {func(*Run, *Observation) {}, ReleasePods},
		"a volume is attached":        {func(_ *Run, s *Observation) { s.PodsReleased, s.VolumesReleased = Yes, No }, ReleasePods},
		"nothing is left":             {func(_ *Run, s *Observation) { s.PodsReleased = Yes }, Nothing},
		"not wanted":                  {func(r *Run, _ *Observation) { r.Limits.ReleasePods = false }, Nothing},
		"not isolated":                {func(r *Run, _ *Observation) { r.Isolated = time.Time{} }, Nothing},
		"old reads":                   {func(_ *Run, s *Observation) { s.At = now.Add(-3 * time.Second) }, Nothing},
		"paused":                      {func(_ *Run, s *Observation) { s.Paused = true }, Nothing},
		"another remediator":          {func(_ *Run, s *Observation) { s.Contested = Yes }, Nothing},
		"not proven off":              {func(_ *Run, s *Observation) { s.Proof = bmc.Proof{} }, Nothing},
		"fenced was restarted":        {func(_ *Run, s *Observation) { s.OffAccepted = false }, Nothing},
		"the BMC does not answer":     {func(_ *Run, s *Observation) { s.Power.State = bmc.Unknown }, Nothing},
		"nobody can tell of the Node": {func(_ *Run, s *Observation) { s.Node.Exists = CannotTell }, Nothing},
		"another Machine":             {func(_ *Run, s *Observation) { s.Machine = Machine{Exists: Yes, UID: "another"} }, Nothing},
		"On was sent":                 {func(r *Run, _ *Observation) { r.Intent = Intent{SendOn, now} }, Nothing},
		"the taint is there": {func(r *Run, s *Observation) {
			r.Isolation, s.Node = IsolateTaint, Node{Exists: Yes, UID: r.Target.NodeUID, BootID: r.Target.BootID, SystemUUID: r.Target.SystemUUID, OutOfService: true}
		}, ReleasePods},
		"the taint is gone": {func(r *Run, s *Observation) {
			r.Isolation, s.Node = IsolateTaint, Node{Exists: Yes, UID: r.Target.NodeUID, BootID: r.Target.BootID, SystemUUID: r.Target.SystemUUID}
		}, Nothing},
		"the tainted Node has booted": {func(r *Run, s *Observation) {
			r.Isolation, s.Node = IsolateTaint, Node{Exists: Yes, UID: r.Target.NodeUID, BootID: "another", SystemUUID: r.Target.SystemUUID, OutOfService: true}
		}, Nothing},
		"no Node was ever there": {func(r *Run, _ *Observation) { r.Target.NodeUID = "" }, Nothing},
	} {
		t.Run(name, func(t *testing.T) {
			r, s := run(), seen()
			row.change(&r, &s)
			_, action, _ := Next(r, s, now)
			assert.Equal(t, row.want, action)
		})
	}
}

// A host that stays off on purpose, by --off-only or on a manual confirmation, keeps its pods for
// Kubernetes to move, also when unfence brings it back at once.
func TestNoPodsAreReleasedWhileAHostStaysOff(t *testing.T) {
	for name, change := range map[string]func(r *Run, at time.Time){
		"off only": func(r *Run, _ time.Time) { r.OffOnly = true },
		"confirmed off": func(r *Run, at time.Time) {
			r.Confirmed = &Order{Actor: "a", Reason: "b", At: at}
			r.Confirmation = &OffConfirmation{Given: at, Since: at, Lease: Lease{Known: true}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := (&variant{releases: true}).run()
			now := clock(100)
			r.Step, r.StepStarted, r.OffLease, r.Intervened = DeleteNode, now, &Lease{Known: true}, true
			r.Intent = Intent{IsolateNode, now}
			change(&r, now)
			var action Action
			on := false
			for i := range 120 {
				now = now.Add(time.Second)
				s := Observation{At: now, API: APIReachable, Identity: Yes, Contested: No, Power: bmc.Reading{State: bmc.Off, At: now}, OffAccepted: true, Proof: provenBy(now),
					Node: Node{Exists: No}, Lease: Lease{Known: true}, PodsGone: No, PodsReleased: No, VolumesReleased: No, Clock: Yes, Justified: Yes, Withdrawn: No}
				if i == 2 {
					require.Equal(t, Held, r.Step, r.Note)
					require.True(t, r.LeaveOff)
					r.Unfence = &Order{Actor: "a", Reason: "b", At: now}
				}
				r, action, _ = Next(r, s, now)
				require.NotEqual(t, ReleasePods, action, "%d: %s", i, r.Step)
				on = on || action == SendOn
			}
			require.True(t, on, "unfence brings it back")
		})
	}
}
