package engine_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/run"
	"github.com/fenced/fenced/test/fake"
)

func refusedByHand(t *testing.T, e *engine.Engine, code reason.Code) {
	t.Helper()
	_, err := e.Fence(t.Context(), byHand)
	var refusal *reason.Refusal
	require.ErrorAs(t, err, &refusal, "people are bound, too")
	assert.Equal(t, code, refusal.Reason)
	assert.False(t, gate(t, e, code).Pass, "and explain shows it")
}

// A Machine that cannot be read may be paused, and may be the Machine of this Node.
func TestUnreadableMachineIsNotTreatedAsAbsent(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		policies := withPolicy(w, nodePolicy())
		unreadable := eachMachine(func(ch *policy.Change, m *policy.Machine) {
			if m.Name == "m-1" {
				ch.Value, ch.Err = nil, errors.New("spec.providerID is a number")
			}
		})
		e, _, stop := start(t, w, store, func(o *engine.Options) { policies(o); unreadable(o) })
		time.Sleep(2 * time.Minute)
		assert.Empty(t, e.Runs("c"))
		refusedByHand(t, e, reason.Undecodable)
		assert.Empty(t, w.Commands())
		stop()
	})
}

// If the providerIDs differ, a Node with the same name is the Node of another host.
func TestNodeOfAnotherHostIsLeftAlone(t *testing.T) {
	otherProvider := func(list []policy.Change) []policy.Change {
		for i := range list {
			switch v := list[i].Value.(type) {
			case *policy.Machine:
				v.ProviderID = "k3s://a/" + v.NodeName
			case *policy.Node:
				v.ProviderID = "k3s://b/" + v.Name
			}
		}
		return list
	}
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e, _, stop := start(t, w, store, through(otherProvider))
		time.Sleep(2 * time.Minute)
		assert.Empty(t, e.Runs("c"))
		refusedByHand(t, e, reason.NodeMismatch)
		assert.Empty(t, w.Commands())
		stop()
	})
}

// silentAtFirst keeps a run from its first command until the test lets it go on.
func silentAtFirst(w *world) (answer func()) {
	w.OnLook(func(looks int) {
		if looks == 1 {
			w.FailReads(errors.New("no answer yet"))
		}
	})
	return func() { w.FailReads(nil) }
}

// The fresh Node and Machine must belong together, whatever the view shows. // I4
func TestFreshNodeOfAnotherHostDropsTheRun(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		answer := silentAtFirst(w)
		e, _, stop := start(t, w, store, func(o *engine.Options) {
			o.Clusters[0].Kube = lookingAt{w, func(f *run.Fresh) {
				if w.Looks() > 1 && f.Node != nil && f.Machine != nil {
					f.Machine.ProviderID, f.Node.ProviderID = "k3s://a/n-1", "k3s://b/n-1"
				}
			}}
		})
		time.Sleep(65 * time.Second)
		answer()
		time.Sleep(5 * time.Second)
		r := only(t, e)
		assert.Equal(t, remediate.Aborted, r.Step)
		assert.Contains(t, r.Note, "providerID")
		assert.Empty(t, w.Commands())
		stop()
	})
}

// If a Machine claims a Node after the run of that Node began, the run is dropped: the
// Machine's rules apply.
func TestNewMachineOfTheNodeDropsItsRun(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		answer := silentAtFirst(w)
		w.dropMachines()
		e, _, stop := start(t, w, store, withPolicy(w, nodePolicy()))
		time.Sleep(65 * time.Second)
		require.Len(t, e.Runs("c"), 1)
		w.Do(func(s *fake.State) {
			s.PutMachine(policy.Machine{APIVersion: policy.OpenShiftMachineAPI, Namespace: "ns", Name: "m-1", UID: "m-m-1", NodeName: "n-1", Phase: "Running"})
		})
		time.Sleep(3 * time.Second)
		answer()
		time.Sleep(2 * time.Second)
		r := e.Runs("c")[len(e.Runs("c"))-1]
		assert.Equal(t, remediate.Aborted, r.Step)
		assert.Contains(t, r.Note, "Machine ns/m-1 has claimed the Node")
		assert.Empty(t, w.Commands())
		stop()
	})
}
