package engine_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/fake"
)

// A run begins for a Machine that has no Node. Then the host registers, and does not get well. A person who
// holds the Node stops the run in its later attempts too, although the record knows no Node. So does an administrator who
// protects it. // I13, I23
func TestHoldOfTheNodeStopsTheRunOfItsMachine(t *testing.T) {
	for _, by := range []string{"", "hold", "hosts.d"} {
		held := by != ""
		bubble(t, func(t *testing.T, w *world, store *failingStore) {
			neverJoined(w)
			w.SetBootTime(never)
			e, _, stop := start(t, w, store, waiting)
			time.Sleep(20 * time.Minute)
			r := only(t, e)
			require.Equal(t, remediate.Waiting, r.Step, "%s: %s", r.Reason, r.Note)
			require.Empty(t, r.Target.Node)
			w.Do(func(s *fake.State) { // it registers at last, and its kubelet dies
				s.PutNode(fake.Node{Name: "n-1", BootID: "boot-2", SystemUUID: hostUUID, Ready: "Unknown", Since: time.Now()})
				s.ChangeMachine("n-1", func(m *policy.Machine) { m.NodeName, m.Phase = "n-1", "Running" })
			})
			switch by {
			case "hosts.d":
				w.Do(func(s *fake.State) { s.Entries["n-1"] = bmc.Host{Protected: true} })
			case "hold":
				_, err := e.Hold(t.Context(), wire.Order{Cluster: "c", Node: "n-1", Actor: "ada", Reason: "disk", For: wire.Span(48 * time.Hour)})
				require.NoError(t, err)
			}
			offs, locked := w.Count(bmc.CommandOff), false
			for range 4 * 60 {
				time.Sleep(time.Minute)
				w.Do(func(s *fake.State) { locked = locked || fake.Held(s.Metal["h-1"]) })
			}
			assert.Equal(t, held, w.Count(bmc.CommandOff) == offs)
			assert.Equal(t, held, !locked, "the power lock is a power command")
			if by == "hold" {
				_, err := e.Retry(t.Context(), ofRun(r))
				refusedFor(t, err, reason.Hold)
			}
			stop()
		})
	}
}

// A release binds under each name, too: that of a Machine without a Node lets the run of the Machine begin again, which
// the daily limit had stopped. // I15, I23
func TestReleaseOfTheMachineLetsItsRunGoOn(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		neverJoined(w)
		w.SetBootTime(never)
		e, _, stop := start(t, w, store, func(o *engine.Options) {
			waiting(o)
			o.Run.MaxAttempts, o.Guards.MaxFencesPerDay = 1, 1
		})
		time.Sleep(5 * time.Hour)
		r := only(t, e)
		require.Equal(t, remediate.Waiting, r.Step, "%s: %s", r.Reason, r.Note)
		offs := w.Count(bmc.CommandOff)
		require.Equal(t, 1, offs)

		of := wire.Order{Cluster: "c", Machine: "ns/m-1", Actor: "ada", Reason: "disk replaced", For: wire.Span(time.Hour)}
		_, err := e.Hold(t.Context(), of)
		require.NoError(t, err)
		_, err = e.ReleaseHold(t.Context(), of)
		require.NoError(t, err)
		time.Sleep(10 * time.Minute)
		assert.Equal(t, offs+1, w.Count(bmc.CommandOff))
		stop()
	})
}
