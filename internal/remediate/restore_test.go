package remediate

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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
