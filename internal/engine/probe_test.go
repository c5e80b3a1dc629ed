package engine_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/hosts"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/run"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/fake"
)

// If a check changes while its target is probed, the run starts with what the check asks
// now.
func TestRunStartsAsTheCheckAsksNow(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.ownMachines()
		w.OnLook(func(looks int) {
			if looks == 1 {
				w.changeCheck(func(c *policy.Check) { c.Strategy = policy.DeleteMachines })
			}
		})
		e, _, stop := start(t, w, store, nil)
		time.Sleep(untilOff)
		assert.Equal(t, remediate.DeleteMachine, only(t, e).Strategy)
		assert.Zero(t, w.Count(bmc.CommandOff))
		stop()
	})
}

// counting is an inventory that counts who looks for a host.
type counting struct {
	hosts.Inventory
	finds atomic.Int64
}

func (c *counting) Find(ctx context.Context, cluster, node string) (bmc.Host, bool, error) {
	c.finds.Add(1)
	return c.Inventory.Find(ctx, cluster, node)
}

// A candidate that a gate without I/O refuses causes no inventory lookup, which would read
// its password: a file read may hang, and would stop the deciding goroutine.
func TestDecidingReadsNoPassword(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		var x *counting
		e, _, stop := start(t, w, store, func(o *engine.Options) { x = &counting{Inventory: o.Hosts}; o.Hosts = x })
		time.Sleep(2 * time.Second)
		_, err := e.Hold(t.Context(), wire.Order{Node: "n-1", Actor: "root", Reason: "test"})
		require.NoError(t, err)
		before := x.finds.Load()
		time.Sleep(5 * time.Minute)
		assert.Equal(t, before, x.finds.Load())
		assert.False(t, gate(t, e, reason.Hold).Pass)
		stop()
	})
}

// Two checks that want the same host do not drop each other's probe for ever. // L4
func TestTwoChecksOnOneHostStartOneRun(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.ownMachines()
		var first policy.Check
		w.Do(func(s *fake.State) { first = *s.Check })
		other := first.Key()
		first.Name = "all" // it is asked before the other
		looks := 0
		w.OnLook(func(n int) {
			switch looks = n; n {
			case 1:
				w.Do(func(s *fake.State) { s.ShowCheck(&first) })
			case 20:
				w.Do(func(s *fake.State) { s.DropCheck(&first) })
			}
		})
		e, _, stop := start(t, w, store, nil)
		time.Sleep(untilOff)
		assert.Contains(t, []string{first.Key(), other}, only(t, e).Check, "the one whose probe has just ended")
		assert.Less(t, looks, 20)
		stop()
	})
}

// If only the fresh Node shows that the host is a control-plane host, the run is a
// control-plane run. // I12
func TestFreshControlPlaneRoleIsTheRunsRole(t *testing.T) {
	role := func(f *run.Fresh) {
		if f.Node != nil {
			f.Node.ControlPlane = true
		}
	}
	for _, manual := range []bool{false, true} {
		bubble(t, func(t *testing.T, w *world, store *failingStore) {
			w.changeCheck(func(c *policy.Check) { c.Paused = manual })
			e, _, stop := start(t, w, store, func(o *engine.Options) {
				o.Clusters[0].Kube = lookingAt{w, role}
				o.Clusters[0].Rules.ExternalEtcd, o.Clusters[0].ControlPlaneIsolation = true, remediate.IsolateTaint
			})
			time.Sleep(untilOff)
			if manual {
				_, err := e.Fence(t.Context(), byHand)
				require.NoError(t, err)
			}
			r := only(t, e)
			assert.True(t, r.ControlPlane)
			assert.Equal(t, remediate.IsolateTaint, r.Isolation, "its Node is an etcd member elsewhere")
			stop()
		})
	}
}

// A Lease that is renewed shows a live Node, even if the clock of its host is far
// behind. // I4
func TestRenewedLeaseIsAliveWhateverItsClock(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.setContested(remediate.Yes)
		w.SetLeaseMoving(true)
		e, _, stop := start(t, w, store, nil)
		time.Sleep(2 * time.Minute)
		gate(t, e, reason.Contested)
		assert.False(t, gate(t, e, reason.NodeAlive).Pass)
		w.setContested(remediate.No)
		time.Sleep(2 * time.Minute)
		assert.Empty(t, e.Runs("c"))
		stop()
	})
}

// Machines of two API families may have the same name.
func TestMachineIsFoundInItsOwnAPIFamily(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		handOver(w)
		w.changeCheck(func(c *policy.Check) { c.StartupTimeout, c.MachineConditions = time.Minute, nil })
		w.RemoveNode() // it has never registered: a fresh look finds none, either
		other := policy.Machine{APIVersion: policy.OpenShiftMachineAPI, Namespace: "ns", Name: "m-1", UID: "another", NodeName: "elsewhere"}
		w.Do(func(s *fake.State) { s.ChangeMachine("n-1", func(m *policy.Machine) { m.NodeName = "" }) })
		e, _, stop := start(t, w, store, through(func(list []policy.Change) []policy.Change {
			return append(list, policy.Change{ID: policy.ObjectID{APIVersion: other.APIVersion, Kind: "Machine", Namespace: "ns", Name: "m-1"}, Value: &other})
		}))
		time.Sleep(2 * time.Minute)
		runs := e.Runs("c")
		require.NotEmpty(t, runs)
		assert.True(t, strings.HasPrefix(runs[0].Target.MachineAPI, "cluster.x-k8s.io/"))
		stop()
	})
}

// The next probe does not try a refused account again, even if the target was healthy in
// between. An order to fence tries it.
func TestRefusedAccountOutlivesItsProbe(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e, _, stop := start(t, w, store, nil)
		w.FailReads(refusedAccount())
		time.Sleep(65 * time.Second)
		require.Equal(t, 1, w.Reads())
		w.Recover()
		time.Sleep(10 * time.Second)
		w.Hang()
		time.Sleep(3 * time.Minute)
		assert.Equal(t, 1, w.Reads())
		gate(t, e, "BMCAuth")
		_, err := e.Fence(t.Context(), byHand)
		refusedFor(t, err, "BMCAuth")
		assert.Equal(t, 2, w.Reads())
		time.Sleep(6 * time.Minute)
		assert.Greater(t, w.Reads(), 2, "it is asked again")
		stop()
	})
}
