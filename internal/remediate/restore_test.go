package remediate

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/reason"
)

func TestRefusedRestoreSaysWhy(t *testing.T) {
	r, s := begin(RestoreNode, minute+1)
	s.Restored, s.RestoreError = No, "no labels here"
	got, _, _ := Next(r, s, noon)
	assert.Equal(t, "no labels here", got.Note)
}

// A Node that could not be restored is Ready and waits, like its run, until the pause is over: step 5
// does not begin again at once, for ever. // L1, L5
func TestRefusedRestoreRests(t *testing.T) {
	for _, outOfService := range []bool{false, true} {
		r, s := begin(RestoreNode, minute+1)
		r.Limits.RetryInterval = time.Minute
		s.Restored, s.RestoreError, s.Node.OutOfService = No, "no labels here", outOfService
		r, _, _ = Next(r, s, noon)
		require.Equal(t, Waiting, r.Step)
		for wait := time.Duration(0); wait < time.Minute; wait += time.Second {
			r, _, _ = Next(r, s, noon.Add(wait))
			require.Equal(t, Waiting, r.Step, "after %s", wait)
		}
		s.Restored, s.Node.OutOfService = Yes, false // what forbade it is gone
		now := noon.Add(2 * time.Minute)
		for range 6 {
			r, _, _ = Next(r, s, now)
			now = now.Add(time.Second)
		}
		assert.Equal(t, Done, r.Step, "%s", r.Note)
	}
}

// The machine is compared as long as the run is not Done: another one may take the
// Node's name over after the registration. // I6
func TestNodeOfAnotherMachineIsNoSuccess(t *testing.T) {
	for _, isolation := range []Isolation{IsolateDelete, IsolateTaint} {
		r, s := begin(RestoreNode, 0)
		if r.Isolation = isolation; isolation == IsolateTaint {
			r.NewNodeUID, s.Node.UID = r.Target.NodeUID, r.Target.NodeUID
		}
		done, _, _ := Next(r, s, noon)
		assert.Equal(t, Done, done.Step, "%s", isolation)

		s.Node.SystemUUID = "of another"
		for range 2 {
			r, _, _ = Next(r, s, noon)
		}
		assert.Equal(t, Held, r.Step, "%s", isolation)
		assert.Equal(t, reason.TargetChanged, r.Reason)
		assert.Contains(t, r.Note, "another machine")
	}
}

// A Node is Ready for up to 90 s after its host went off. So a run whose host reads Off is not Done before that, and
// takes no request off its Machine: if the Node then turns not Ready, the host is switched on. A Node that is still
// Ready has a BMC that lies, and the host works. // I20, L1
func TestReadyNodeOfAHostThatReadsOffIsNotDoneAtOnce(t *testing.T) {
	for name, c := range map[string]struct {
		ready bool // after that time
		want  Step
	}{"the host is off": {false, PowerOn}, "the BMC lies": {true, Done}} {
		t.Run(name, func(t *testing.T) {
			r, s := begin(RestoreNode, 20*time.Minute) // also after its time
			s.Power.State, s.Proof, s.Machine.Requested = bmc.Off, proof(bmc.Off, 3*time.Second, 0), true
			for _, at := range []time.Duration{0, 30 * time.Second, 80 * time.Second} {
				got, action, _ := Next(r, s, noon.Add(at))
				require.Equal(t, []any{RestoreNode, Nothing}, []any{got.Step, action}, "%s", at)
			}
			s.Machine.Requested = false
			s.Node.Ready = Ask(c.ready)
			got, _, _ := Next(r, s, noon.Add(91*time.Second))
			assert.Equal(t, c.want, got.Step)
		})
	}
}

// The owner of a host who wants it off is not fought, and its Node is not taken for working.
func TestReadyNodeOfAHostThatItsOwnerSwitchesOff(t *testing.T) {
	r, s := begin(RestoreNode, 0)
	s.Power.State, s.Proof, s.OwnerWantsOff = bmc.Off, proof(bmc.Off, 3*time.Second, 0), true
	r.Limits.RetryInterval = time.Minute
	got, _, _ := Next(r, s, noon)
	assert.NotEqual(t, Done, got.Step)
	s.Node.Ready = No
	got, _, _ = Next(got, s, noon.Add(time.Minute))
	assert.Equal(t, []any{Waiting, reason.PowerForbidden}, []any{got.Step, got.Reason})
}
