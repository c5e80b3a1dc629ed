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

const spareUUID = "4c4c4544-0042-3510-8054-b4c04f4d7777"

// A host does not come back after its power cycle, so its run waits for the next try. A person
// has a spare machine take over the name of the Node. Later the kubelet of the spare machine dies,
// while its pods run on. The run's next try proves the former machine off: that says nothing about
// the spare one, whose Node must not be isolated. // I1, I8
func TestSpareMachineWithTheNameIsNotIsolated(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.SetBootTime(never)
		e, _, stop := start(t, w, store, func(o *engine.Options) {
			waiting(o)
			o.Run.MaxAttempts = 1
		})
		time.Sleep(15 * time.Minute)
		r := only(t, e)
		require.Equal(t, remediate.Waiting, r.Step)
		require.Equal(t, reason.AttemptsExhausted, r.Reason)
		require.Equal(t, 1, w.Isolations())

		var isolated []string // the machines whose Nodes fenced deletes
		w.Do(func(s *fake.State) {
			s.OnIsolate = func(n *fake.Node, _ remediate.Run, _ remediate.Backup) { isolated = append(isolated, n.SystemUUID) }
			s.PutNode(fake.Node{Name: "n-1", BootID: "spare-boot-1", SystemUUID: spareUUID, Labels: map[string]string{"rack": "r1"}, Ready: "True", Since: time.Now()})
			s.Leases["n-1"] = fake.Lease{Version: 100000, Renewed: time.Now()}
		})
		time.Sleep(10 * time.Minute)
		t.Logf("while the spare machine is Ready: %s %s %s", only(t, e).Step, only(t, e).Reason, only(t, e).Note)
		w.SetReady("Unknown") // its kubelet is dead; its pods run on
		offs := w.Count(bmc.CommandOff)
		time.Sleep(3 * time.Hour)
		r = only(t, e)
		for _, v := range r.Steps {
			t.Logf("%s attempt %d %s: %s", v.Started.Format(time.TimeOnly), v.Attempt, v.Step, v.Note)
		}
		assert.Equal(t, offs, w.Count(bmc.CommandOff), "the machine that was switched off is not that of the Node")
		assert.Empty(t, isolated, "the Node of a machine that runs was deleted")
		stop()
	})
}

// A new run is refused there: the BMC is not that of the Node.
func TestNewRunIsRefusedThere(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.Do(func(s *fake.State) { s.ChangeNode("n-1", func(n *fake.Node) { n.SystemUUID = spareUUID }) })
		e, _, stop := start(t, w, store, waiting)
		time.Sleep(time.Hour)
		assert.Empty(t, e.Runs("c"))
		gate(t, e, reason.IdentityMismatch)
		stop()
	})
}
