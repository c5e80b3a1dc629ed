package remediate

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
)

// releases are worlds whose pods are deleted at once.
var releases = []variant{
	{name: "pods released", states: 27_000, podsStay: true, releases: true, faults: join(engine, power, cluster, []fault{pause, resume}), budget: 2, want: "Done"},
	{name: "pods released, taint, Metal3", states: 13_900, isolation: IsolateTaint, bmh: true, podsStay: true, releases: true, faults: join(engine, power, cluster), budget: 2, want: "Done"},
	{name: "pods released, second attempt, Nodes from Git", states: 26_000, badBoots: 1, maxAttempts: 2, releases: true, faults: join(crashes, []fault{recreated, lie, foreignOn}), budget: 2, want: "Done"},
	{name: "pods released, on a confirmation", states: 2_200, releases: true, confirmedAtStart: true, faults: join(crashes, []fault{unfenceOrder}), budget: 2, want: "Held ConfirmedOff"},
}

// onRelease: a pod is deleted only if the Node that it is bound to is isolated, and off.
func (v variant) onRelease(w world, r Run, s Observation) (bad []string) {
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
			r := variant{releases: true}.run()
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
