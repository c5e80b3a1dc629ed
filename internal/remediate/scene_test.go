package remediate

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/fenced/fenced/internal/bmc"
)

// scene is one question to Next: a step in its good course, at a time since it
// was entered, with what is changed about it.
type scene struct {
	name   string
	in     Step
	at     time.Duration
	change func(r *Run, s *Observation)
	step   Step // the expected answer
	action Action
	reason string
}

// noon is the time of every scene.
var noon = clock(12 * 3600)

// ago is a time before noon.
func ago(d time.Duration) time.Time { return noon.Add(-d) }

// proof is what readings in one state, so long ago each, prove.
func proof(state bmc.PowerState, ages ...time.Duration) bmc.Proof {
	p := bmc.Proof{Spacing: 3 * time.Second, MaxAge: 5 * time.Second}
	for _, a := range ages {
		p = p.Add(bmc.Reading{State: state, At: ago(a)})
	}
	return p
}

// begin is a run in the good course of a step, with the look that belongs to it.
func begin(in Step, at time.Duration) (Run, Observation) {
	l := Limits{
		OffDeadline: time.Minute, APITimeout: 2 * time.Minute, PodsGoneTimeout: 70 * time.Second, OnDeadline: 5 * time.Minute,
		ReadyTimeout: 10 * time.Minute, RestoreTimeout: time.Minute, RunTimeout: 2 * time.Hour, MinPowerInterval: 3 * time.Minute,
		MaxAttempts: 2, PowerOnFoundOff: true, Reprovision: true,
	}
	r := Run{Step: in, StepStarted: ago(at), Started: ago(at + time.Minute), Attempt: 1, Intervened: true, Limits: l,
		Isolation: IsolateDelete, Strategy: PowerCycle, OffLease: &Lease{Known: true, ResourceVersion: "v1", RenewTime: ago(time.Hour), Seen: ago(2 * sec), BootID: "b1"},
		Target: Target{Node: "n", NodeUID: "u1", BootID: "b1", SystemUUID: "s", Machine: "m", MachineUID: "mu", Host: "h"},
		Steps:  []Visit{{Step: in, Attempt: 1, Started: ago(at)}},
	}
	s := Observation{At: noon, Clock: Yes, Power: bmc.Reading{State: bmc.Off, At: noon}, Proof: proof(bmc.Off, 3*time.Second, 0), OffAccepted: true,
		Identity: Yes, API: APIReachable, Justified: Yes, Withdrawn: No, Contested: No, PowerLock: No, PodsGone: Yes, Restored: Yes,
		Node:    Node{Exists: Yes, UID: "u1", ResourceVersion: "1", BootID: "b1", SystemUUID: "s", Ready: No},
		Lease:   Lease{Known: true, ResourceVersion: "v1", RenewTime: ago(time.Hour)},
		Machine: Machine{Exists: Yes, UID: "mu", Replaceable: Yes},
		Backup:  Backup{UID: "u1", ResourceVersion: "1"},
	}
	switch in {
	case PowerOn:
		r.Isolated, s.Node = ago(at), Node{Exists: No}
	case AwaitNode, RestoreNode, Reprovision:
		r.Isolated, r.OnSeen, r.NewNodeUID = ago(at+time.Minute), ago(at), "u2"
		s.Power.State, s.Proof, s.OffAccepted = bmc.On, proof(bmc.Off), false
		s.Node = Node{Exists: Yes, UID: "u2", ResourceVersion: "2", BootID: "b2", SystemUUID: "s", Ready: Yes}
		if in == Reprovision {
			s.Node = Node{Exists: No}
		}
	case Held:
		r.Reason, s.Power.State, s.Node.Ready = "PowerOffFailed", bmc.On, Yes
	}
	return r, s
}

func (c scene) test(t *testing.T) { c.ask(t) }

// ask plays the scene and gives the answer's record for more questions.
func (c scene) ask(t *testing.T) Run {
	r, s := begin(c.in, c.at)
	if c.change != nil {
		c.change(&r, &s)
	}
	got, action, wait := Next(r, s, noon)
	assert.Equal(t, c.step, got.Step, "step")
	assert.Equal(t, c.action, action, "action")
	assert.Equal(t, c.reason, string(got.Reason), "reason")
	if action != Nothing {
		assert.Equal(t, Intent{Action: action, At: noon}, got.Intent, "I19")
	}
	assert.GreaterOrEqual(t, wait, time.Duration(0), "wait")
	if action == Nothing && c.step == c.in && got.Level == r.Level {
		assert.Positive(t, wait, "an idle answer must wait")
	}
	return got
}

func play(t *testing.T, scenes []scene) {
	for _, c := range scenes {
		t.Run(string(c.in)+": "+c.name, c.test)
	}
}

func fresh(r *Run, s *Observation) { // nothing was touched yet
	r.Intervened, r.OffLease = false, nil
	s.OffAccepted, s.Proof, s.Power.State = false, proof(bmc.Off), bmc.On
}

func again(r *Run, s *Observation) { fresh(r, s); r.Attempt = 2 }

func on(s *Observation) { s.Power.State, s.Proof = bmc.On, proof(bmc.Off) }

func unread(s *Observation, k bmc.Kind) {
	s.Power.State, s.Power.Raw, s.PowerError, s.Identity, s.Proof = bmc.Unknown, "", k, CannotTell, proof(bmc.Off)
}

func noAPI(s *Observation) {
	s.API, s.Node, s.Lease, s.Machine, s.PowerLock, s.Justified, s.Contested = APIUnreachable, Node{}, Lease{}, Machine{}, CannotTell, CannotTell, CannotTell
	s.Withdrawn = CannotTell
	s.PodsGone, s.Restored = CannotTell, CannotTell
}

func metal3(r *Run, s *Observation, hold Answer) { r.Target.BareMetalHost, s.PowerLock = "ns/h", hold }

func unfence(r *Run) { r.Unfence = &Order{Actor: "ann", Reason: "back"} }

func taint(r *Run) { r.Isolation = IsolateTaint }
