package remediate

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/fenced/fenced/internal/reason"
)

func TestRefusedRestoreSaysWhy(t *testing.T) {
	r, s := begin(RestoreNode, minute+1)
	s.Restored, s.RestoreError = No, "no labels here"
	got, _, _ := Next(r, s, noon)
	assert.Equal(t, "no labels here", got.Note)
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
		assert.Equal(t, reason.FalseOff, r.Reason)
		assert.Contains(t, r.Note, "another machine")
	}
}
