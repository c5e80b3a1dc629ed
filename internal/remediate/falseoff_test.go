package remediate

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/reason"
)

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
