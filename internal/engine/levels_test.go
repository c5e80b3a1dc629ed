package engine_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/test/fake"
)

// withOutlet gives the host a second power level, by an outlet that tells no identity and
// without which the BMC says nothing.
func withOutlet(w *world) (*fake.OutletHandle, func(*engine.Options)) {
	p := w.AddOutlet("n-1")
	w.ChangeEntry(func(h *bmc.Host) {
		h.Levels = append(h.Levels, bmc.Level{Devices: []bmc.Device{{
			Driver: bmc.DriverFenceAgent, Agent: "fence_apc_snmp", Endpoint: bmc.Endpoint{Host: "192.0.2.200"}, Parameters: map[string]string{"plug": "7"}}}})
	})
	return p, opening(w.bmc(), p)
}

// opening has the engine open the BMC and the outlet of n-1 so.
func opening(first, outlet bmc.Power) func(*engine.Options) {
	return func(o *engine.Options) {
		o.Open = func(d bmc.Device) (bmc.Power, error) {
			if d.Driver == bmc.DriverFenceAgent {
				return outlet, nil
			}
			return first, nil
		}
	}
}

// enrolled starts an engine and enrolls n-1, whose levels are all well.
func enrolled(t *testing.T, w *world, store *failingStore, change func(*engine.Options)) (*engine.Engine, func()) {
	e, _, stop := start(t, w, store, change)
	time.Sleep(time.Second)
	_, err := e.Enroll(t.Context(), byHand)
	require.NoError(t, err)
	return e, stop
}

// If the BMC is dead, the outlet proves the host off, and powers it on again.
func TestDeadBMCIsPassedOverForTheOutlet(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		p, levels := withOutlet(w)
		e, stop := enrolled(t, w, store, levels)
		w.FailReads(noAnswer())
		time.Sleep(70 * time.Second)
		require.Empty(t, e.Runs("c"), "one failure may be chance")
		time.Sleep(25 * time.Second)
		r := only(t, e)
		assert.Equal(t, 1, r.Level)
		assert.Equal(t, 2, r.Limits.Levels)
		time.Sleep(10 * time.Minute)
		r = only(t, e)
		assert.Equal(t, remediate.Done, r.Step, "%s: %s", r.Reason, r.Note)
		assert.Equal(t, remediate.ProofDevice, r.Proof)
		assert.Equal(t, []bmc.Command{bmc.CommandOff, bmc.CommandOn}, p.Commands()[:2])
		assert.Zero(t, w.Count(bmc.CommandOff), "the BMC was given none")
		assert.Equal(t, 1, w.Isolations())
		stop()
	})
}

// A BMC that answers every second time is the level that is used.
func TestLevelThatFailedOnceIsUsed(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		p, levels := withOutlet(w)
		e, stop := enrolled(t, w, store, levels)
		w.FailReads(noAnswer())
		time.Sleep(65 * time.Second)
		w.FailReads(nil)
		time.Sleep(10 * time.Minute)
		r := only(t, e)
		assert.Equal(t, remediate.Done, r.Step, "%s: %s", r.Reason, r.Note)
		assert.Equal(t, remediate.ProofBMC, r.Proof)
		assert.Empty(t, p.Commands())
		stop()
	})
}

// Two failures with an answer in between are not two failures in a row.
func TestFailuresInARowPassALevelOver(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		p, levels := withOutlet(w)
		w.setContested(remediate.Yes)
		e, stop := enrolled(t, w, store, levels)
		time.Sleep(44 * time.Second)
		for _, err := range []error{noAnswer(), nil, noAnswer()} { // at the probes, at 60, 90 and 120 s
			w.FailReads(err)
			time.Sleep(30 * time.Second)
		}
		w.setContested(remediate.No)
		time.Sleep(10 * time.Second)
		require.Empty(t, e.Runs("c"))
		assert.Equal(t, 1, p.Reads(), "when it was enrolled")
		time.Sleep(10 * time.Second)
		require.Equal(t, 1, only(t, e).Level)
		stop()
	})
}

// If the BMC accepts Off and ignores it, the run goes to the next level, and needs a proof
// of its own there.
func TestRunGoesOnToTheNextLevel(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		p, levels := withOutlet(w)
		w.SetFault(fake.IgnoresOff)
		w.Do(func(s *fake.State) { s.Host("n-1").StartsWithMains = false })
		e, stop := enrolled(t, w, store, levels)
		time.Sleep(90 * time.Second)
		r := only(t, e)
		require.Zero(t, r.Level)
		require.NotZero(t, w.Count(bmc.CommandOff))
		time.Sleep(15 * time.Minute)
		r = only(t, e)
		assert.Equal(t, remediate.Done, r.Step, "%s: %s", r.Reason, r.Note)
		assert.Equal(t, remediate.ProofDevice, r.Proof)
		assert.Equal(t, bmc.CommandOff, p.Commands()[0])
		assert.Equal(t, bmc.CommandOn, w.Commands()[len(w.Commands())-1], "mains alone do not start the host") // I20
		assert.Equal(t, 1, w.Isolations())
		stop()
	})
}

// After a restart a run continues at its level.
func TestRunResumesAtItsLevel(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		p, levels := withOutlet(w)
		w.SetFault(fake.IgnoresOff)
		e, stop := enrolled(t, w, store, levels)
		time.Sleep(2*time.Minute + 3*time.Second)
		require.Equal(t, 1, only(t, e).Level)
		stop()
		sent := w.Count(bmc.CommandOff)
		e, _, stop = start(t, w, store, levels)
		time.Sleep(10 * time.Minute)
		assert.Equal(t, remediate.Done, only(t, e).Step)
		assert.Equal(t, sent, w.Count(bmc.CommandOff))
		assert.NotEmpty(t, p.Commands())
		stop()
	})
}

// A BMC that refuses the account is not tried repeatedly: BMCs lock accounts.
func TestRefusedAccountIsPassedOverAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		_, levels := withOutlet(w)
		e, stop := enrolled(t, w, store, levels)
		w.FailReads(refusedAccount())
		before := w.Reads()
		time.Sleep(untilOff)
		r := only(t, e)
		assert.Equal(t, 1, r.Level)
		time.Sleep(10 * time.Minute)
		stop()
		assert.Less(t, w.Reads()-before, 12)
	})
}

// Probes that continue for other reasons do not try a refused account again.
func TestProbesDoNotRetryARefusedAccount(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		_, levels := withOutlet(w)
		w.setContested(remediate.Yes)
		_, stop := enrolled(t, w, store, levels)
		w.FailReads(refusedAccount())
		time.Sleep(5 * time.Minute)
		stop()
		assert.Equal(t, 2, w.Reads(), "when it was enrolled, and once")
	})
}

// A run that returns to a level that refused its account does not try the account again.
func TestRefusedAccountIsRemembered(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		p, levels := withOutlet(w)
		w.SetFault(fake.IgnoresOff)
		e, stop := enrolled(t, w, store, levels)
		time.Sleep(untilOff)
		require.Equal(t, 1, w.Count(bmc.CommandOff))
		w.FailReads(refusedAccount())
		before := w.Reads()
		time.Sleep(4 * time.Minute)
		stop()
		assert.NotEmpty(t, p.Commands())
		assert.GreaterOrEqual(t, only(t, e).OffLevel, 1)
		assert.Equal(t, 1, w.Reads()-before, "by the level itself, and never as a witness")
	})
}

// If another machine answers, the outlet is not tried: the inventory is wrong.
func TestAnswerOfAnotherMachineTriesNoNextLevel(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		p, levels := withOutlet(w)
		e, stop := enrolled(t, w, store, levels)
		w.SetBMCUUID("4c4c4544-0042-3510-8054-b4c04f4d9999")
		time.Sleep(5 * time.Minute)
		assert.Empty(t, e.Runs("c"))
		assert.Empty(t, p.Commands())
		assert.Equal(t, "BMC 4c4c4544-0042-3510-8054-b4c04f4d9999, Node "+hostUUID, gate(t, e, reason.IdentityMismatch).Value)
		stop()
	})
}

// An outlet that no person has enrolled for this host is never switched. // I8
func TestOutletThatIsNotEnrolledIsNeverSwitched(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		p, levels := withOutlet(w)
		e, _, stop := start(t, w, store, levels)
		time.Sleep(time.Second)
		w.FailReads(noAnswer())
		time.Sleep(5 * time.Minute)
		assert.Empty(t, e.Runs("c"))
		gate(t, e, reason.NotEnrolled)
		_, err := e.Fence(t.Context(), byHand)
		var refusal *reason.Refusal
		require.ErrorAs(t, err, &refusal, "people are bound, too")
		assert.Equal(t, reason.NotEnrolled, refusal.Reason)
		w.FailReads(nil)
		_, err = e.Enroll(t.Context(), byHand)
		require.NoError(t, err)
		w.FailReads(noAnswer())
		time.Sleep(2 * time.Minute)
		assert.Equal(t, 1, only(t, e).OffLevel)
		assert.NotEmpty(t, p.Commands())
		stop()
	})
}

// A person needs to fence only once if the BMC is dead.
func TestManualFenceTriesTheNextLevel(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.pauseCheck()
		p, levels := withOutlet(w)
		e, stop := enrolled(t, w, store, levels)
		w.FailReads(noAnswer())
		_, err := e.Fence(t.Context(), byHand)
		require.NoError(t, err)
		time.Sleep(10 * time.Minute)
		r := only(t, e)
		assert.Equal(t, remediate.Done, r.Step, "%s: %s", r.Reason, r.Note)
		assert.NotEmpty(t, p.Commands())
		stop()
	})
}
