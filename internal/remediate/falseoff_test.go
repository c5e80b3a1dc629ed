package remediate

import (
	"strings"
	"testing"

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
