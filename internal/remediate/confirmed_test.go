package remediate

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/reason"
)

func confirm(r *Run) { r.Confirmed = &Order{Actor: "ann", Reason: "plug pulled", At: ago(minute)} }

// confirmedFor is a run in step 1 whose power cannot be read, on a confirmation active since the
// Lease was first read after it.
func confirmedFor(since time.Duration) func(r *Run, s *Observation) {
	return func(r *Run, s *Observation) {
		confirm(r)
		r.Confirmation = &OffConfirmation{Given: r.Confirmed.At, Since: ago(since), Lease: Lease{Known: true, ResourceVersion: "v1", RenewTime: ago(time.Hour)}}
		r.Revalidate, r.OffLease = true, nil
		unread(s, bmc.KindUnreachable)
		s.OffAccepted = false
	}
}

func quietly(change func(r *Run, s *Observation)) func(r *Run, s *Observation) {
	return func(r *Run, s *Observation) {
		confirmedFor(15*sec)(r, s)
		change(r, s)
	}
}

func TestStepOneOnAWord(t *testing.T) { // I26
	play(t, []scene{
		{"the Lease stood still: on to step 2", PowerOff, 15 * sec, confirmedFor(15 * sec), DeleteNode, Nothing, ""},
		{"not before it has for 15 s", PowerOff, 15 * sec, confirmedFor(15*sec - 1), PowerOff, Nothing, ""},
		{"not before the device had its time to answer", PowerOff, 15*sec - 1, confirmedFor(minute), PowerOff, Nothing, ""},
		{"an account that is refused answers nothing", PowerOff, sec, quietly(func(r *Run, s *Observation) { s.PowerError = bmc.KindAuth }), DeleteNode, Nothing, ""},
		{"nothing counts without a confirmation", PowerOff, 61 * sec, func(r *Run, s *Observation) { unread(s, bmc.KindUnreachable) }, Held, Nothing, "BMCUnreachable"},
		{"nor on one that has expired", PowerOff, 61 * sec, quietly(func(r *Run, s *Observation) { r.Confirmation.Expired = true }), Held, Nothing, "BMCUnreachable"},
		{"an answer that says nothing has the level's whole time", PowerOff, minute, quietly(func(r *Run, s *Observation) { s.PowerError, s.Identity = "", Yes }), PowerOff, SendOff, ""},
		{"and then the confirmation counts", PowerOff, minute + 1, quietly(func(r *Run, s *Observation) { s.PowerError = "" }), DeleteNode, Nothing, ""},
		{"a device that reads Off is asked to switch off, and proves it", PowerOff, 16 * sec, quietly(func(r *Run, s *Observation) { s.Power.State, s.PowerError, s.Identity = bmc.Off, "", Yes }), PowerOff, SendOff, ""},
		{"a device that reads On: a human", PowerOff, sec, quietly(func(r *Run, s *Observation) { s.Power.State, s.PowerError = bmc.On, "" }), Held, Nothing, "ConfirmedOffContradicted"},
		{"an outlet of two that reads On: a human", PowerOff, sec, quietly(func(r *Run, s *Observation) { s.Power.State, s.Power.Partial = bmc.On, true }), Held, Nothing, "ConfirmedOffContradicted"},
		{"a witness that reads On: a human", PowerOff, sec, quietly(func(r *Run, s *Observation) { s.Power.State, s.Power.Contradicted = bmc.On, true }), Held, Nothing, "ConfirmedOffContradicted"},
		{"the Lease moved: a human", PowerOff, sec, quietly(func(r *Run, s *Observation) { s.Lease.ResourceVersion = "v2" }), Held, Nothing, "ConfirmedOffContradicted"},
		{"the Node is Ready: a human", PowerOff, sec, quietly(func(r *Run, s *Observation) { s.Node.Ready = Yes }), Held, Nothing, "ConfirmedOffContradicted"},
		{"over the whole time: left off", PowerOff, sec, quietly(func(r *Run, s *Observation) { r.Started = ago(2*time.Hour + 1) }), Held, Nothing, "RunTimeout"},
		{"over the whole time, and reads On: a human", PowerOff, sec, quietly(func(r *Run, s *Observation) { r.Started, s.Power.State = ago(2*time.Hour+1), bmc.On }), Held, Nothing, "ConfirmedOffContradicted"},
		{"paused: left off", PowerOff, minute, quietly(func(r *Run, s *Observation) { s.Paused = true }), Held, Nothing, "Paused"},
		{"contested: left off", PowerOff, minute, quietly(func(r *Run, s *Observation) { s.Contested = Yes }), Held, Nothing, "Contested"},
		{"contest unknown: waits", PowerOff, minute, quietly(func(r *Run, s *Observation) { s.Contested = CannotTell }), PowerOff, Nothing, ""},
		{"quorum lost: left off", PowerOff, minute, quietly(func(r *Run, s *Observation) { r.ControlPlane, s.Quorum = true, No }), Held, Nothing, "QuorumLost"},
		{"quorum unknown: waits", PowerOff, minute, quietly(func(r *Run, s *Observation) { r.ControlPlane = true }), PowerOff, Nothing, ""},
		{"forbidden or frozen: left off", PowerOff, minute, quietly(func(r *Run, s *Observation) { s.PowerForbidden = "frozen" }), Held, Nothing, "PowerForbidden"},
		{"another machine answers: a human", PowerOff, minute, quietly(func(r *Run, s *Observation) { s.Identity = No }), Held, Nothing, "IdentityMismatch"},
		{"another Node: left off", PowerOff, minute, quietly(func(r *Run, s *Observation) { s.Node.UID = "u2" }), Held, Nothing, "TargetChanged"},
		{"unfenced: back to On", PowerOff, minute, quietly(func(r *Run, s *Observation) { unfence(r) }), PowerOn, Nothing, "Unfenced"},
		{"needs no other reason", PowerOff, 15 * sec, quietly(func(r *Run, s *Observation) { s.Justified = No }), DeleteNode, Nothing, ""},
		{"API gone: waits", PowerOff, minute, quietly(func(r *Run, s *Observation) { noAPI(s) }), PowerOff, Nothing, ""},
		{"API gone for long: left off", PowerOff, 3*minute + 1, quietly(func(r *Run, s *Observation) { noAPI(s) }), Held, Nothing, "NotJudged"},
		{"old reads: waits", PowerOff, minute, quietly(func(r *Run, s *Observation) { s.At = ago(3 * sec) }), PowerOff, Nothing, ""},
		{"Metal3 gets the hold first", PowerOff, minute, quietly(func(r *Run, s *Observation) { metal3(r, s, No) }), PowerOff, SetPowerLock, ""},
		{"a hold that cannot be read: waits", PowerOff, minute, quietly(func(r *Run, s *Observation) { metal3(r, s, CannotTell) }), PowerOff, Nothing, ""},
		{"under a hold: on to step 2", PowerOff, 15 * sec, quietly(func(r *Run, s *Observation) { metal3(r, s, Yes) }), DeleteNode, Nothing, ""},
	})
}

func TestAWordAsksEveryLevel(t *testing.T) {
	both := func(level int) func(r *Run, s *Observation) {
		return quietly(func(r *Run, s *Observation) { at(r, s, level, 0); unread(s, bmc.KindUnreachable) })
	}
	playLevels(t, []levelScene{
		{scene{"the first does not answer", PowerOff, 15 * sec, both(0), PowerOff, Nothing, ""}, 1},
		{scene{"nor does the second", PowerOff, 15 * sec, both(1), DeleteNode, Nothing, ""}, 1},
	})
}

// isolatesConfirmed is step 2 on a confirmation alone.
func isolatesConfirmed(change func(r *Run, s *Observation)) func(r *Run, s *Observation) {
	return quietly(func(r *Run, s *Observation) {
		r.Revalidate, r.Proof, r.OffLease = false, ProofHuman, &Lease{Known: true, ResourceVersion: "v1", RenewTime: ago(time.Hour)}
		if change != nil {
			change(r, s)
		}
	})
}

func TestStepTwoOnAWord(t *testing.T) { // I26
	play(t, []scene{
		{"isolated without a BMC's proof", DeleteNode, sec, isolatesConfirmed(nil), DeleteNode, IsolateNode, ""},
		{"never on a confirmation that has expired", DeleteNode, sec, isolatesConfirmed(func(r *Run, s *Observation) { r.Confirmation.Expired = true }), PowerOff, Nothing, ""},
		{"nor without one", DeleteNode, sec, isolatesConfirmed(func(r *Run, s *Observation) { r.Confirmed = nil }), PowerOff, Nothing, ""},
		{"with a backup like any other", DeleteNode, sec, isolatesConfirmed(func(r *Run, s *Observation) { s.Backup = Backup{} }), DeleteNode, BackupNode, ""},
		{"a lost hold is set first", DeleteNode, sec, isolatesConfirmed(func(r *Run, s *Observation) { metal3(r, s, No) }), PowerOff, Nothing, ""},
		{"reads On: a human", DeleteNode, sec, isolatesConfirmed(func(r *Run, s *Observation) { s.Power.State = bmc.On }), Held, Nothing, "ConfirmedOffContradicted"},
		{"the Lease moved: a human", DeleteNode, sec, isolatesConfirmed(func(r *Run, s *Observation) { s.Lease.ResourceVersion = "v2" }), Held, Nothing, "ConfirmedOffContradicted"},
		{"over the whole time, and the Lease moved: a human", DeleteNode, sec, isolatesConfirmed(func(r *Run, s *Observation) {
			r.Started, s.Lease.ResourceVersion = ago(2*time.Hour+1), "v2"
		}), Held, Nothing, "ConfirmedOffContradicted"},
		{"the Lease cannot be read: waits", DeleteNode, sec, isolatesConfirmed(func(r *Run, s *Observation) { s.Lease.Known = false }), DeleteNode, Nothing, ""},
		{"the Node is Ready: a human", DeleteNode, sec, isolatesConfirmed(func(r *Run, s *Observation) { s.Node.Ready = Yes }), Held, Nothing, "ConfirmedOffContradicted"},
		{"another Node of that name: no BMC has lied", DeleteNode, sec, isolatesConfirmed(func(r *Run, s *Observation) { s.Node.UID = "u2" }), Held, Nothing, "ConfirmedOffContradicted"},
		{"quorum lost: left off", DeleteNode, sec, isolatesConfirmed(func(r *Run, s *Observation) { r.ControlPlane, s.Quorum = true, No }), Held, Nothing, "QuorumLost"},
		{"quorum unknown: waits", DeleteNode, sec, isolatesConfirmed(func(r *Run, s *Observation) { r.ControlPlane = true }), DeleteNode, Nothing, ""},
		{"paused: left off", DeleteNode, sec, isolatesConfirmed(func(r *Run, s *Observation) { s.Paused = true }), Held, Nothing, "Paused"},
		{"API gone for long: left off", DeleteNode, 3 * minute, isolatesConfirmed(func(r *Run, s *Observation) { noAPI(s); r.APILost = ago(3 * minute) }), Held, Nothing, "APIUnreachable"},
		{"unfenced: back to On", DeleteNode, sec, isolatesConfirmed(func(r *Run, s *Observation) { unfence(r) }), PowerOn, Nothing, "Unfenced"},
		{"gone, and reads On: a human", DeleteNode, sec, isolatesConfirmed(func(r *Run, s *Observation) { s.Node, s.Power.State = Node{Exists: No}, bmc.On }), Held, Nothing, "ConfirmedOffContradicted"},
		{"gone, and a lower level reads On: a human", DeleteNode, sec, isolatesConfirmed(func(r *Run, s *Observation) { s.Node, s.LowerLevelOn = Node{Exists: No}, "an outlet reads On" }), Held, Nothing, "ConfirmedOffContradicted"},
		{"tainted, and reads On: a human", DeleteNode, sec, isolatesConfirmed(func(r *Run, s *Observation) { taint(r); s.Node.OutOfService, s.Power.State = true, bmc.On }), Held, Nothing, "ConfirmedOffContradicted"},
		{"gone, and the Lease moved: left off", DeleteNode, sec, isolatesConfirmed(func(r *Run, s *Observation) { s.Node, s.Lease.ResourceVersion = Node{Exists: No}, "v2" }), Held, Nothing, "ConfirmedOff"},
		{"proven by a BMC, and switched on since: left as it is", DeleteNode, sec, isolatesConfirmed(func(r *Run, s *Observation) {
			r.Proof, s.Node, s.Power.State = ProofBMC, Node{Exists: No}, bmc.On
		}), Held, Nothing, "ConfirmedOff"},
		{"gone: left off", DeleteNode, sec, isolatesConfirmed(func(r *Run, s *Observation) { s.Node = Node{Exists: No} }), Held, Nothing, "ConfirmedOff"},
		{"tainted: left off", DeleteNode, sec, isolatesConfirmed(func(r *Run, s *Observation) { taint(r); s.Node.OutOfService = true }), Held, Nothing, "ConfirmedOff"},
		{"proven by a BMC as well: left off all the same", DeleteNode, sec, isolatesConfirmed(func(r *Run, s *Observation) { r.Proof, s.Node = ProofBMC, Node{Exists: No} }), Held, Nothing, "ConfirmedOff"},
	})
}

// confirmedHeld is a run that was isolated on a confirmation, with the look at the host that
// came back.
func confirmedHeld(r *Run, s *Observation) {
	confirm(r)
	isolatedRun(r, "ConfirmedOff")
	r.Confirmation = &OffConfirmation{Given: r.Confirmed.At, Expired: true}
	r.LeaveOff, r.Proof = true, ProofHuman
	s.Node = Node{Exists: Yes, UID: "u2", ResourceVersion: "2", BootID: "b2", SystemUUID: "s", Ready: No}
}

// missed is a host that came back and was restored, and was not Ready in time. // L1
func missed(ready Answer) func(r *Run, s *Observation) {
	return func(r *Run, s *Observation) {
		confirmedHeld(r, s)
		r.Reason, r.NewNodeUID, r.LeaveOff, s.Node.Ready = "AttemptsExhausted", s.Node.UID, false, ready
	}
}

func TestLeftOffOnAWord(t *testing.T) {
	play(t, []scene{
		{"registered anew: restored by itself", Held, time.Hour, confirmedHeld, RestoreNode, Nothing, ""},
		{"our hold is released first", Held, time.Hour, func(r *Run, s *Observation) { confirmedHeld(r, s); metal3(r, s, Yes) }, Held, ReleasePowerLock, "ConfirmedOff"},
		{"a hold that cannot be read: waits", Held, time.Hour, func(r *Run, s *Observation) { confirmedHeld(r, s); metal3(r, s, CannotTell) }, Held, Nothing, "ConfirmedOff"},
		{"no Node: waits, and sends nothing", Held, time.Hour, func(r *Run, s *Observation) { confirmedHeld(r, s); s.Node = Node{Exists: No}; s.Power.State = bmc.Off }, Held, Nothing, "ConfirmedOff"},
		{"the old boot: waits", Held, time.Hour, func(r *Run, s *Observation) { confirmedHeld(r, s); s.Node.BootID = "b1" }, Held, Nothing, "ConfirmedOff"},
		{"another machine: waits", Held, time.Hour, func(r *Run, s *Observation) { confirmedHeld(r, s); s.Node.SystemUUID = "x" }, Held, Nothing, "ConfirmedOff"},
		{"a machine that was never known: waits", Held, time.Hour, func(r *Run, s *Observation) { confirmedHeld(r, s); r.Target.SystemUUID, s.Node.SystemUUID = "", "" }, Held, Nothing, "ConfirmedOff"},
		{"tainted: the same UID with a new boot", Held, time.Hour, func(r *Run, s *Observation) { confirmedHeld(r, s); taint(r); s.Node.UID = "u1" }, RestoreNode, Nothing, ""},
		{"one that missed its time is not restored again", Held, time.Hour, missed(CannotTell), Held, Nothing, "AttemptsExhausted"},
		{"unless our taint is still on it, whatever was before", Held, time.Hour, func(r *Run, s *Observation) { missed(CannotTell)(r, s); taint(r); s.Node.OutOfService = true }, RestoreNode, Nothing, ""},
		{"until it is Ready", Held, time.Hour, missed(Yes), RestoreNode, Nothing, ""},
		{"could not be switched on, and came back later", Held, time.Hour, func(r *Run, s *Observation) { confirmedHeld(r, s); r.Reason, r.LeaveOff = "PowerOnFailed", false }, RestoreNode, Nothing, ""},
		{"a person was wrong: waits for one", Held, time.Hour, func(r *Run, s *Observation) { confirmedHeld(r, s); r.Reason = reason.ConfirmedOffContradicted }, Held, Nothing, string(reason.ConfirmedOffContradicted)},
		{"unfenced: on at step 3", Held, time.Hour, func(r *Run, s *Observation) { confirmedHeld(r, s); s.Node = Node{Exists: No}; unfence(r) }, PowerOn, Nothing, ""},
		{"never on: no Machine is deleted", Reprovision, sec, func(r *Run, s *Observation) {
			confirmedHeld(r, s)
			r.Reason, s.Node = "PowerOnFailed", Node{Exists: No}
		}, Held, Nothing, "PowerOnFailed"},
		{"registered again without a reboot: no BMC has lied", AwaitNode, sec, func(r *Run, s *Observation) { confirmedHeld(r, s); s.Node.BootID = "b1" }, Held, Nothing, string(reason.ConfirmedOffContradicted)},
	})
	r, s := begin(Held, time.Hour)
	confirmedHeld(&r, &s)
	got, _, _ := Next(r, s, noon)
	assert.Equal(t, "u2", got.NewNodeUID)
	assert.Equal(t, noon, got.OnSeen, "with the whole time to be Ready")
	assert.False(t, got.LeaveOff)
	assert.NotNil(t, got.Confirmed, "marked for ever")
}

func TestWordIsTaken(t *testing.T) { // I26
	play(t, []scene{
		{"Held, not isolated: step 1", Held, minute, func(r *Run, s *Observation) { confirm(r); unread(s, bmc.KindBusy); s.Node.Ready = No }, PowerOff, Nothing, ""},
		{"the host reads On: stays Held, and says so", Held, minute, func(r *Run, s *Observation) { confirm(r); s.Node.Ready = No }, Held, Nothing, string(reason.ConfirmedOffContradicted)},
		{"the Node is Ready: stays Held, and says so", Held, minute, func(r *Run, s *Observation) { confirm(r); unread(s, bmc.KindBusy) }, Held, Nothing, string(reason.ConfirmedOffContradicted)},
		{"isolated: too late", Held, minute, func(r *Run, s *Observation) { confirm(r); isolatedRun(r, "PowerOnFailed") }, Held, Nothing, "PowerOnFailed"},
		{"paused: stays Held", Held, minute, func(r *Run, s *Observation) { confirm(r); s.Paused = true }, Held, Nothing, "PowerOffFailed"},
		{"contested: stays Held", Held, minute, func(r *Run, s *Observation) { confirm(r); s.Contested = Yes }, Held, Nothing, "PowerOffFailed"},
		{"frozen: stays Held", Held, minute, func(r *Run, s *Observation) { confirm(r); s.PowerForbidden = "frozen" }, Held, Nothing, "PowerOffFailed"},
	})
	r, s := begin(Held, minute)
	unread(&s, bmc.KindUnreachable)
	s.Node.Ready = No
	confirm(&r)
	got, _, _ := Next(r, s, noon)
	assert.True(t, got.Revalidate)
	assert.Zero(t, got.Confirmation.Since)
	got, _, _ = Next(got, s, noon.Add(sec))
	assert.Equal(t, noon.Add(sec), got.Confirmation.Since, "from here on the Lease must stand still")
	assert.Equal(t, s.Lease, got.Confirmation.Lease)

	s.Paused = true
	got, _, _ = Next(r, s, noon)
	assert.True(t, got.Confirmation.Expired, "a confirmation does not wait for a pause to end")
	s.Paused = false
	later, _, _ := Next(got, s, noon.Add(minute))
	assert.Equal(t, Held, later.Step)
	unread(&s, bmc.KindBusy)
	s.Node.Ready = No
	later.Confirmed = &Order{Actor: "ann", Reason: "again", At: noon}
	later, _, _ = Next(later, s, noon.Add(minute))
	assert.Equal(t, PowerOff, later.Step, "but may be given again")
}

func TestFreshRunOnAWord(t *testing.T) { // I26
	r, s := begin(PowerOff, 0)
	fresh(&r, &s)
	unread(&s, bmc.KindUnreachable)
	confirm(&r)
	got, action, _ := Next(r, s, noon)
	assert.Equal(t, PowerOff, got.Step)
	assert.Equal(t, Nothing, action)
	assert.True(t, confirmationActive(got))
	s.At = noon.Add(15 * sec)
	got, _, _ = Next(got, s, s.At)
	assert.Equal(t, DeleteNode, got.Step)
	assert.Equal(t, ProofHuman, got.Proof)
	assert.Equal(t, "confirmed off by ann: plug pulled", got.Steps[len(got.Steps)-2].Note)

	r, s = begin(PowerOff, sec) // at work: its own proof is under way
	confirm(&r)
	got, _, _ = Next(r, s, noon)
	assert.False(t, confirmationActive(got))
}

// A run that is given up on a confirmation leaves the host as it is: who said that it is off
// may be at work inside it. A person brings it back, or confirms again. // I26
func TestGivenUpOnAWordStaysOff(t *testing.T) {
	r, s := begin(PowerOff, sec)
	confirmedFor(sec)(&r, &s)
	s.Paused = true
	s.PowerError = bmc.KindAuth
	got, _, _ := Next(r, s, noon)
	assert.Equal(t, Held, got.Step)
	assert.True(t, got.LeaveOff)
	assert.Contains(t, got.Note, "left off on the confirmation by ann")
	assert.True(t, got.Confirmation.Expired, "no later step 2 may rest on it")
	assert.False(t, r.Confirmation.Expired, "the caller's record is not ours to change")

	s.Power.State, s.PowerError, s.Identity, s.Paused = bmc.Off, "", Yes, false
	for _, age := range []time.Duration{sec, minute, time.Hour} {
		_, a, _ := Next(got, s, noon.Add(age))
		assert.Equal(t, Nothing, a, "it can be read again, and is not switched on")
	}
	back := got
	unfence(&back)
	back, _, _ = Next(back, s, noon.Add(time.Hour))
	assert.Equal(t, PowerOn, back.Step)
	assert.False(t, back.LeaveOff)

	ok, why := CanConfirm(got)
	assert.True(t, ok, why)
	got.Confirmed = &Order{Actor: "ann", Reason: "again", At: noon}
	unread(&s, bmc.KindUnreachable)
	s.Node.Ready = No
	got, _, _ = Next(got, s, noon.Add(minute))
	assert.Equal(t, PowerOff, got.Step)
	assert.False(t, got.LeaveOff)
}

// What proves a confirmation wrong, or what may be another machine's, is not left off on it.
func TestRefutedWordLeavesNothingOff(t *testing.T) { // I20
	r, s := begin(PowerOff, sec)
	confirmedFor(sec)(&r, &s)
	s.Lease.ResourceVersion = "v2"
	got, _, _ := Next(r, s, noon)
	assert.Equal(t, reason.ConfirmedOffContradicted, got.Reason)
	assert.False(t, got.LeaveOff)
	s.Power.State, s.PowerError, s.Identity = bmc.Off, "", Yes
	_, a, _ := Next(got, s, noon.Add(minute))
	assert.Equal(t, SendOn, a)
}

// Who confirmed may be inside the host: another person's retry does not switch it
// on, whatever became of the run. // I26
func TestRetryLeavesOffWhatAWordLeftOff(t *testing.T) {
	r, s := begin(PowerOff, sec)
	confirmedFor(sec)(&r, &s)
	s.Paused = true
	r, _, _ = Next(r, s, noon)
	require.True(t, r.Step == Held && r.LeaveOff, r.Reason)
	ok, why := CanRetry(r)
	assert.False(t, ok)
	assert.Contains(t, why, "a manual confirmation")
	r.Retry, s.Paused, s.Justified = &Order{Actor: "bob", Reason: "r", At: noon}, false, No
	for now := noon.Add(minute); now.Before(noon.Add(5 * minute)); now = now.Add(10 * sec) {
		var action Action
		s.At = now
		r, action, _ = Next(r, s, now)
		assert.NotEqual(t, SendOn, action)
		assert.Equal(t, Held, r.Step)
	}
}

// Beside an active confirmation, the BMC takes the Off and reads Off twice, and then the
// Lease moves: the BMC has lied, and is frozen, whatever the person said. // I5
func TestBMCThatLiesBesideAWordIsFalseOff(t *testing.T) {
	lied := func(in Step) (Run, Observation) {
		r, s := begin(in, 20*sec)
		confirm(&r)
		r.Confirmation = &OffConfirmation{Given: r.Confirmed.At, Since: ago(minute), Lease: Lease{Known: true, ResourceVersion: "v1", RenewTime: ago(minute)}}
		if in == DeleteNode {
			r.Proof = ProofBMC
		}
		s.Lease.ResourceVersion = "v2"
		return r, s
	}
	for _, in := range []Step{PowerOff, DeleteNode} {
		r, s := lied(in)
		got, _, _ := Next(r, s, noon)
		assert.Equal(t, Held, got.Step, in)
		assert.Equal(t, reason.FalseOff, got.Reason, "in %s: %s", in, got.Note)

		on(&s)
		got, _, _ = Next(r, s, noon)
		assert.Equal(t, reason.ConfirmedOffContradicted, got.Reason, "in %s: who reads On does not lie", in)
	}
	r, s := lied(DeleteNode)
	r.Proof = ProofHuman
	unread(&s, bmc.KindUnreachable)
	got, _, _ := Next(r, s, noon)
	assert.Equal(t, reason.ConfirmedOffContradicted, got.Reason, "no BMC has said that the host is off")
}

// A run that comes back from step 2 has nothing from a BMC; what the Lease was when the
// word was given does not make one a liar. // I5
func TestLeaseOfAWordIsNoOffRead(t *testing.T) {
	r, s := begin(DeleteNode, sec)
	confirmedFor(minute)(&r, &s)
	r.Proof = ProofHuman
	metal3(&r, &s, No)
	got, _, _ := Next(r, s, noon)
	assert.Equal(t, PowerOff, got.Step)
	assert.Nil(t, got.OffLease)
	assert.Empty(t, got.Proof)
}

// confirmationLies are the searches of BMCs that lie beside a confirmation.
var confirmationLies = []variant{
	{name: "confirmed: wrong, and the BMC lies", states: 3_200, confirmedAtStart: true, mistaken: true, sick: true, ignoresOff: true, lieFor: 100, faults: join(crashes, []fault{lie, lostPower, lostAPI}), budget: 2, want: "Held ConfirmedOffContradicted"},
	{name: "confirmed: wrong, and the BMC lies, Metal3", states: 1_000, confirmedAtStart: true, mistaken: true, sick: true, ignoresOff: true, bmh: true, lieFor: 100, faults: join(crashes, []fault{lie, pause}), budget: 2, want: "Held ConfirmedOffContradicted"},
}

var confirmationLieMutants = []mutant{
	{"believes a BMC beside a confirmation", "I5: a BMC that lies beside a confirmation", variant{name: "m", confirmedAtStart: true, mistaken: true, sick: true, ignoresOff: true, lieFor: 100, faults: []fault{lie}, budget: 1}, saying(func(r Run, s Observation, r2 *Run, _ *Action, _ time.Time) {
		if confirmationActive(r) && r2.Reason == reason.FalseOff {
			*r2, _, _ = holdContradicted(r, "the Node's Lease was renewed since", clock(0))
		}
	})},
}
