package fake

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/test/must"
	_ "github.com/fenced/fenced/test/oneproc" // it plays in virtual time
)

// A BMC with a fault answers as that says, and its host is what it made of an Off.
func TestFaults(t *testing.T) {
	for fault, want := range map[Fault]struct {
		kind  bmc.Kind // of a reading
		state bmc.PowerState
		on    bool
	}{
		NoFault:     {state: bmc.Off},
		IgnoresOff:  {state: bmc.On, on: true},
		Deaf:        {state: bmc.On, on: true},
		Liar:        {state: bmc.Off, on: true},
		Stale:       {state: bmc.On},
		Stranger:    {state: bmc.On, on: true},
		Hangs:       {kind: bmc.KindUnreachable, on: true},
		Refuses:     {kind: bmc.KindRefused, on: true},
		BarsAccount: {kind: bmc.KindAuth, on: true},
		Busy:        {kind: bmc.KindBusy, on: true},
	} {
		t.Run(string(fault), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := New("c")
				c.Do(func(s *State) { s.AddHost(Host{Name: "n", UUID: "u"}, policy.Machine{}) })
				h, p := c.Handle("n"), c.BMC("n")
				h.SetFault(fault)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				_, sent := p.Send(ctx, bmc.CommandOff)
				r, err := p.Read(ctx)
				assert.Equal(t, want.on, h.On())
				assert.Equal(t, want.state, r.State)
				if want.kind != "" {
					assert.Equal(t, want.kind, bmc.KindOf(sent))
					assert.Equal(t, want.kind, bmc.KindOf(err))
					return
				}
				require.NoError(t, err)
				assert.Equal(t, fault != Stranger, r.Identity.UUID == "u")
			})
		})
	}
}

// The faults that take time act at this client, too: a slow BMC answers late, one that
// is late obeys later, and one that restarts loses its session and is silent meanwhile.
func TestFaultsThatTakeTime(t *testing.T) {
	for _, fault := range []Fault{Slow, Late, Restarts} {
		t.Run(string(fault), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := New("c")
				c.Do(func(s *State) { s.AddHost(Host{Name: "n", UUID: "u"}, policy.Machine{}) })
				ctx, cancel := context.WithCancel(t.Context())
				var lives sync.WaitGroup
				defer lives.Wait()
				defer cancel()
				lives.Go(func() { c.Run(ctx) })
				h, p := c.Handle("n"), c.BMC("n")
				before := must.Do(p.Read(t.Context()))(t)
				h.SetFault(fault)
				began := time.Now()
				_, sent := p.Send(t.Context(), bmc.CommandOff)
				took, on := time.Since(began), h.On()
				time.Sleep(faultyReboot)
				after := must.Do(p.Read(t.Context()))(t)
				assert.Equal(t, fault == Slow, took == slowness, "%s", took)
				assert.Equal(t, fault != Slow, on)
				assert.Equal(t, fault == Restarts, bmc.KindOf(sent) == bmc.KindUnreachable)
				assert.Equal(t, fault == Restarts, after.Session != before.Session)
				assert.Equal(t, fault == Restarts, h.On())
			})
		})
	}
}

// A Machine is deleted by its UID; its host is then off and counted as deprovisioned.
func TestMachineIsDeletedByItsUID(t *testing.T) {
	c := New("c")
	c.Do(func(s *State) {
		s.AddHost(Host{Name: "n", UUID: "u"}, policy.Machine{APIVersion: policy.OpenShiftMachineAPI, Namespace: Namespace, Name: "m", UID: "m-1"})
	})
	act := func(uid string) error {
		r := remediate.Run{Target: remediate.Target{Node: "n", MachineUID: uid}}
		return c.Act(t.Context(), r, remediate.DeleteTargetMachine, nil, remediate.Backup{})
	}
	require.Error(t, act("m-2"))
	assert.Empty(t, c.Deprovisioned())
	require.NoError(t, act("m-1"))
	require.NoError(t, act("m-1"), "it is gone already")
	assert.Equal(t, []string{"n"}, c.Deprovisioned())
	assert.False(t, c.Handle("n").On())
}

// A host that was switched off and on registers in the twentieth second, of another
// boot, and its Node lacks what its owner gave it.
func TestHostRegistersAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New("c")
		c.Do(func(s *State) {
			s.AddHost(Host{Name: "n", Owned: Owned{Labels: map[string]string{"team": "storage"}}}, policy.Machine{})
		})
		ctx, cancel := context.WithCancel(t.Context())
		var lives sync.WaitGroup
		defer lives.Wait()
		defer cancel()
		lives.Go(func() { c.Run(ctx) })
		h := c.Handle("n")
		require.True(t, h.Restored())
		h.SetPower(false)
		h.RemoveNode()
		time.Sleep(time.Minute + time.Millisecond)
		h.SetPower(true)
		time.Sleep(18 * time.Second)
		require.Equal(t, 1, c.NotReady())
		time.Sleep(2 * time.Second)
		require.True(t, h.Ready())
		assert.False(t, h.Restored())
		var changes []policy.Change
		for _, each := range c.Watch().Changes() {
			if n, ok := each.Value.(*policy.Node); ok && n.BootID == "n-boot-2" {
				changes = append(changes, each)
			}
		}
		assert.NotEmpty(t, changes)
	})
}

// A new watch begins with a list: what was deleted before is not in it.
func TestWatchBeginsWithAList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New("c")
		c.Do(func(s *State) {
			for _, name := range []string{"stays", "goes"} {
				s.AddHost(Host{Name: name, UUID: "uuid-of-" + name}, policy.Machine{})
			}
			s.RemoveNode("goes")
		})
		w := c.Watch()
		list := w.Changes()
		require.Len(t, list, 1)
		assert.Equal(t, NodeID("stays"), list[0].ID)
		c.Do(func(s *State) { s.RemoveNode("stays") })
		list = w.Changes()
		require.Len(t, list, 1)
		assert.Nil(t, list[0].Value, "a deletion that it sees is told")
	})
}
