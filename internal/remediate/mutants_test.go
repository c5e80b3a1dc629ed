package remediate

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/fenced/fenced/internal/bmc"
)

// mutant is Next with one thing broken that the search must notice.
type mutant struct {
	name   string
	want   string // the violation, by its beginning
	in     variant
	broken nextFunc
}

func basic(faults ...fault) variant { return variant{name: "m", faults: faults, budget: 2} }

// seeing is Next behind a lie about what was seen.
func seeing(lie func(Run, *Observation, time.Time)) nextFunc {
	return func(r Run, s Observation, now time.Time) (Run, Action, time.Duration) {
		lie(r, &s, now)
		return Next(r, s, now)
	}
}

// saying is Next whose answer is spoilt; r is the record before.
func saying(spoil func(r Run, s Observation, r2 *Run, a *Action, now time.Time)) nextFunc {
	return func(r Run, s Observation, now time.Time) (Run, Action, time.Duration) {
		r2, a, wait := Next(r, s, now)
		spoil(r, s, &r2, &a, now)
		return r2, a, wait
	}
}

var mutants = []mutant{
	{"takes one read for the proof", "I1: isolated without two Off reads", basic(), seeing(func(_ Run, s *Observation, _ time.Time) {
		if s.Power.State == bmc.Off {
			s.Proof = provenBy(s.Power.At)
		}
	})},
	{"overlooks an On read", "I1: isolated", basic(foreignOn), seeing(func(r Run, s *Observation, _ time.Time) {
		if s.Power.State == bmc.On && r.Intervened {
			s.Power.State, s.Proof = bmc.Off, provenBy(s.Power.At)
		}
	})},
	{"takes an old proof", "I1: isolated on a read", basic(slowLook), seeing(func(_ Run, s *Observation, now time.Time) {
		if s.Proof.Proven(s.At) {
			s.Proof = provenBy(now)
		}
	})},
	{"believes in an Off before the crash", "I1: isolated without an acknowledged Off", basic(crashAfterSave), seeing(func(_ Run, s *Observation, _ time.Time) {
		s.OffAccepted = true
	})},
	{"believes in an Off nobody acknowledged", "I1: isolated without an acknowledged Off", basic(answerLost), seeing(func(r Run, s *Observation, _ time.Time) {
		s.OffAccepted = r.Intervened
	})},
	{"adopts whatever Node stands there", "I2: the target became", basic(replaced), func(r Run, s Observation, now time.Time) (Run, Action, time.Duration) {
		if r.Intervened && r.Isolated.IsZero() && s.Node.Exists == Yes {
			r.Target.NodeUID = s.Node.UID
		}
		return Next(r, s, now)
	}},
	{"cycles", "I3", basic(), saying(func(_ Run, _ Observation, _ *Run, a *Action, _ time.Time) {
		if *a == SendOff {
			*a = "Cycle"
		}
	})},
	{"acts on old reads", "I4: Off on old reads", basic(slowLook), seeing(func(_ Run, s *Observation, now time.Time) { s.At = now })},
	{"switches off what recovered", "I4: Off without a fresh reason", variant{name: "m", faults: []fault{lostAPI}, budget: 1}, seeing(func(_ Run, s *Observation, _ time.Time) {
		s.Justified, s.Withdrawn, s.API, s.Contested = Yes, No, APIReachable, No
		s.Node.Exists = Yes
		s.Node.UID = uid(1)
	})},
	{"accepts the old boot", "I6", variant{name: "m", isolation: IsolateTaint}, seeing(func(r Run, s *Observation, _ time.Time) {
		if r.Step == AwaitNode {
			s.Node.BootID = "x"
		}
	})},
	{"does not wait for the pods", "I7", variant{name: "m", podsStay: true}, seeing(func(_ Run, s *Observation, _ time.Time) { s.PodsGone = Yes })},
	{"acts without an intent", "I19", basic(), saying(func(r Run, _ Observation, r2 *Run, _ *Action, _ time.Time) { r2.Intent = r.Intent })},
	{"never sends Off again after a restart", "I20: ends", basic(crashAfterSave), saying(func(r Run, s Observation, r2 *Run, a *Action, _ time.Time) {
		if r.Step == DeleteNode && r2.Step == PowerOff && s.Power.State != bmc.On {
			*r2 = r
		}
	})},
	{"gives up with the host off", "Aborted", basic(pause), saying(func(_ Run, _ Observation, r2 *Run, _ *Action, now time.Time) {
		if r2.Abandon != "" {
			*r2, _, _ = finish(*r2, Aborted, "Paused", "", now)
		}
	})},
	{"leaves a Held host off", "I20: Held", variant{name: "m", faults: []fault{unfenceOrder}, budget: 1, sick: true}, saying(func(r Run, _ Observation, r2 *Run, a *Action, now time.Time) {
		if r.Step == PowerOff && r.OffLease != nil && r2.Step == PowerOff {
			*r2, _, _ = stop(r, "PowerOffFailed", "", now)
			*a = Nothing
		}
		if r.Step == Held {
			*r2, *a = r, Nothing
		}
	})},
	{"leaves the hold behind", "Aborted Paused: the hold stands", variant{name: "m", bmh: true, faults: []fault{pause}, budget: 1}, seeing(func(r Run, s *Observation, _ time.Time) {
		if r.Step == PowerOn {
			s.PowerLock, s.Power.State = No, bmc.On
		}
	})},
	{"isolates without a hold", "Off without a hold", variant{name: "m", bmh: true}, seeing(func(_ Run, s *Observation, _ time.Time) { s.PowerLock = Yes })},
	{"takes no backup", "I21: isolated without a backup", basic(), seeing(func(_ Run, s *Observation, _ time.Time) {
		s.Backup = Backup{UID: s.Node.UID, ResourceVersion: s.Node.ResourceVersion}
	})},
	{"takes an old backup", "I21: isolated without a backup", basic(conflict), seeing(func(_ Run, s *Observation, _ time.Time) {
		if s.Backup.UID == s.Node.UID {
			s.Backup.ResourceVersion = s.Node.ResourceVersion
		}
	})},
	{"does not read the labels back", "Done : the labels are not back", basic(), seeing(func(r Run, s *Observation, _ time.Time) {
		if r.Step == RestoreNode {
			s.Restored = Yes
		}
	})},
	{"leaves the taint", "Done : our taint", variant{name: "m", isolation: IsolateTaint}, seeing(func(r Run, s *Observation, _ time.Time) {
		if r.Step == RestoreNode {
			s.Node.OutOfService = false
		}
	})},
	{"works through a pause", "I23", basic(pause), seeing(func(_ Run, s *Observation, _ time.Time) { s.Paused = false })},
	{"deletes the Machine of a Ready Node", "the Machine of a Node that is back", variant{name: "m", lieFor: 100, faults: []fault{lie}, budget: 1}, seeing(func(r Run, s *Observation, _ time.Time) {
		if r.Step == Reprovision {
			s.Node.Ready = No
		}
	})},
	{"forgets the quorum", "I12: Off", variant{name: "m", control: true, faults: []fault{memberLost}, budget: 1}, seeing(func(_ Run, s *Observation, _ time.Time) { s.Quorum = Yes })},
	{"forgets the quorum of a Machine", "I12: a Machine", variant{name: "m", deleteOnly: true, control: true, mayReplace: true, faults: []fault{memberLost}, budget: 1}, seeing(func(_ Run, s *Observation, _ time.Time) {
		s.Quorum = Yes
	})},
	{"replaces a control plane's Machine", "I14: the Machine of a control-plane", variant{name: "m", deleteOnly: true, control: true}, func(r Run, s Observation, now time.Time) (Run, Action, time.Duration) {
		r.ControlPlane = false
		r2, a, wait := Next(r, s, now)
		r2.ControlPlane = true
		return r2, a, wait
	}},
	{"believes that the Machine is marked", "Reprovisioned : the Machine is there", variant{name: "m", deleteOnly: true, marks: true, faults: []fault{actFails}, budget: 1}, seeing(func(r Run, s *Observation, _ time.Time) {
		s.Machine.Marked = r.Intent.Action == DeleteTargetMachine
	})},
	{"takes a Node from Git for a registration", "I5: a Node that no kubelet has made", variant{name: "m", faults: []fault{recreated}, budget: 1}, seeing(func(_ Run, s *Observation, _ time.Time) {
		if s.Node.Exists == Yes && s.Node.BootID == "" {
			s.Node.BootID = "x"
		}
	})},
	{"does not know how long a Lease is", "I5: isolated while its kubelet lives", variant{name: "m", sick: true, ignoresOff: true, lease: 120, lieFor: 200, faults: []fault{lie}, budget: 1}, seeing(func(r Run, s *Observation, _ time.Time) {
		s.Lease.Duration = 0
	})},
	{"takes for quiet what nobody heard", "I5: isolated while its kubelet lives", variant{name: "m", sick: true, ignoresOff: true, lieFor: 100, faults: []fault{lie, outageLong}, budget: 2}, func(r Run, s Observation, now time.Time) (Run, Action, time.Duration) {
		if r.OffLease != nil {
			l := *r.OffLease
			l.Seen = s.Proof.Since()
			r.OffLease = &l
		}
		return Next(r, s, now)
	}},
	{"waits for ever", "L1", basic(), saying(func(r Run, _ Observation, r2 *Run, _ *Action, now time.Time) {
		if r.Step == AwaitNode && r2.Step != AwaitNode {
			*r2 = r
		}
		r2.StepStarted = now
	})},
	{"is not pure", "asked twice", basic(), func() nextFunc {
		n := 0
		return func(r Run, s Observation, now time.Time) (Run, Action, time.Duration) {
			n++
			r2, a, _ := Next(r, s, now)
			return r2, a, time.Duration(n)
		}
	}()},
	{"writes into the caller's journal", "Next changed the record", basic(), func(r Run, s Observation, now time.Time) (Run, Action, time.Duration) {
		r.Steps[0].Note = now.String()
		return Next(r, s, now)
	}},
}

// TestExploreNoticesMutants shows that the search can fail: every planted bug
// is found, and is found as what it is.
func TestExploreNoticesMutants(t *testing.T) {
	for _, m := range slices.Concat(mutants, levelMutants, peopleMutants, fencerMutants, attemptMutants, confirmationLieMutants, clockMutants, waitMutants, releaseMutants, withdrawalMutants, droppedMutants, otherMachineMutants, otherRequestMutants, ownerMutants, leftOffMutants) {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			x := explore(m.in, m.broken)
			found := strings.Join(x.found, "\n")
			assert.Contains(t, found, "m: "+m.want)
		})
	}
}

// waitMutants are broken forms of the rules about runs that wait.
var waitMutants = []mutant{
	{"calls a person for what heals", "L5: a person is called for", variant{name: "m", retry: time.Second, ignoresOff: true, want: triesAgain}, func(r Run, s Observation, now time.Time) (Run, Action, time.Duration) {
		r.Limits.RetryInterval = 0
		r2, a, wait := Next(r, s, now)
		r2.Limits.RetryInterval = time.Second
		return r2, a, wait
	}},
	{"is never due", "L1: the run never ends", variant{name: "m", retry: time.Second, ignoresOff: true, want: triesAgain}, saying(func(_ Run, _ Observation, r2 *Run, _ *Action, _ time.Time) {
		if r2.Step == Waiting && r2.Wait.Due {
			w := *r2.Wait
			w.Due = false
			r2.Wait = &w
		}
	})},
	{"fences again what a person wanted back", "Off after a person wanted the host back", variant{name: "m", retry: time.Second, ignoresOn: true, noReplace: true, faults: []fault{unfenceOrder}, budget: 1, want: triesAgain}, saying(func(_ Run, _ Observation, r2 *Run, _ *Action, _ time.Time) {
		if r2.Step == Waiting {
			r2.Abandon, r2.AbandonTo = "", ""
			w := *r2.Wait
			w.Due = true
			r2.Wait = &w
		}
	})},
	{"takes back a Node that did not register anew", "I6: accepted a Node that did not register anew", variant{name: "m", retry: time.Second, badBoots: 9, noReplace: true, isolation: IsolateTaint, want: triesAgain}, func(r Run, s Observation, now time.Time) (Run, Action, time.Duration) {
		if r.Step == Waiting && !r.Isolated.IsZero() && s.Node.Exists == Yes {
			s.Node.BootID += "x"
		}
		return Next(r, s, now)
	}},
}
