package engine_test

import (
	"cmp"
	"context"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/hosts"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/state"
)

func addrs(texts ...string) (list []netip.Addr) {
	for _, s := range texts {
		list = append(list, netip.MustParseAddr(s))
	}
	return list
}

// ownHosts are the ways in which n-1 shows to be the host of this daemon.
var ownHosts = map[string]struct {
	own  hosts.Own
	host string // address of its BMC; empty: 192.0.2.1
	port int
	is   bool
}{
	"the system UUID":                 {own: hosts.Own{UUIDs: []string{hostUUID}}, is: true},
	"the BMC's GUID, fields swapped":  {own: hosts.Own{UUIDs: []string{"44454c4c-4200-1035-8054-b4c04f4d3132"}}, is: true},
	"the BMC's address":               {own: hosts.Own{BMCAddrs: addrs("192.0.2.1")}, is: true},
	"the BMC's address, IPv6":         {own: hosts.Own{BMCAddrs: addrs("2001:db8::1")}, host: "2001:db8:0::1", is: true},
	"the address that BMC and OS use": {own: hosts.Own{Addrs: addrs("192.0.2.1")}, is: true},
	"a simulator beside the daemon":   {own: hosts.Own{Addrs: addrs("192.0.2.1")}, port: 6230},
	"a simulator on the loopback":     {own: hosts.Own{Addrs: addrs("127.0.0.1")}, host: "127.0.0.1"},
	"another host":                    {own: hosts.Own{UUIDs: []string{"4c4c4544-0042-3510-8054-b4c04f4d9999", ""}, BMCAddrs: addrs("192.0.2.2")}},
	"placeholders are nobody's":       {own: hosts.Own{UUIDs: []string{"00000000-0000-0000-0000-000000000000"}}},
}

// The host on which the daemon runs is never fenced, not even by an order. // I13
func TestOwnHostIsFoundByItsBMC(t *testing.T) {
	for name, c := range ownHosts {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world, store *failingStore) {
				w.ChangeEntry(func(h *bmc.Host) {
					e := &h.Levels[0].Devices[0].Endpoint
					e.Host, e.Port = cmp.Or(c.host, e.Host), cmp.Or(c.port, e.Port)
				})
				refusesOwnHost(t, w, store, c.own, c.is)
			})
		})
	}
}

func refusesOwnHost(t *testing.T, w *world, store *failingStore, own hosts.Own, is bool) {
	t.Helper()
	w.pauseCheck()
	e, _, stop := start(t, w, store, func(o *engine.Options) { o.Own = own })
	time.Sleep(2 * time.Second)
	_, err := e.Fence(t.Context(), dryRun(byHand))
	if is {
		refusedFor(t, err, reason.OwnHost)
	} else {
		require.NoError(t, err)
	}
	stop()
}

// A BMC that reports the UUID of this host belongs to this host, whatever the Node says.
func TestBMCWithTheOwnUUIDIsTheOwnHosts(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.SetBMCUUID(otherUUID)
		w.ChangeEntry(func(h *bmc.Host) { h.IdentityMode = "off" })
		refusesOwnHost(t, w, store, hosts.Own{UUIDs: []string{otherUUID}}, true)
	})
}

// The health check resolves the name of a BMC. The deciding goroutine does not.
func TestOwnBMCIsFoundByItsName(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.pauseCheck()
		w.ChangeEntry(func(h *bmc.Host) { h.Levels[0].Devices[0].Endpoint.Host = "bmc-1.example.com" })
		var asked atomic.Int32
		own := hosts.Own{BMCAddrs: addrs("192.0.2.9"), Lookup: func(_ context.Context, name string) ([]netip.Addr, error) {
			asked.Add(1)
			assert.Equal(t, "bmc-1.example.com", name)
			return addrs("192.0.2.8", "192.0.2.9"), nil
		}}
		e, _, stop := start(t, w, store, func(o *engine.Options) { o.Own = own })
		time.Sleep(2 * time.Second)
		o := dryRun(byHand)
		_, err := e.Fence(t.Context(), o)
		require.NoError(t, err)
		assert.Zero(t, asked.Load())
		for range 3 {
			checkHealthy(t, e)
		}
		assert.EqualValues(t, 1, asked.Load())
		_, err = e.Fence(t.Context(), o)
		refusedFor(t, err, reason.OwnHost)
		stop()
	})
}

// If another entry reports a MAC address of the local BMC, it is the same machine.
func TestOwnBMCIsFoundByItsMAC(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.pauseCheck()
		e, _, stop := start(t, w, store, func(o *engine.Options) { o.Own = hosts.Own{BMCMACs: []string{"00:1B:21:00:00:01"}} })
		time.Sleep(2 * time.Second)
		k := checked(t, e, hostUUID, "")
		k.Description = bmc.Description{MACs: []string{"00:1b:21:00:00:01"}}
		e.Checked(t.Context(), k)
		_, err := e.Fence(t.Context(), byHand)
		refusedFor(t, err, reason.OwnHost)
		stop()
	})
}

// After a start no BMC has been read, and the Node may be gone, or another machine may have had its name: then the pin of
// the host says that it is this one, also if that pin is void. Nobody else is asked for it, and its Machine stays. // I13
func TestOwnHostIsFoundByItsPin(t *testing.T) {
	for name, void := range map[string]bool{"valid": false, "void": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world, store *failingStore) {
				w.SetReady("True")
				e, _, stop := start(t, w, store, nil)
				time.Sleep(2 * time.Second)
				checkHealthy(t, e)
				stop()
				handOver := handingOver(w)
				if void {
					p := pinOf(t, store, "c/n-1")
					p.Contradicted = "Node n-1 was seen on another machine"
					_, err := state.SavePin(t.Context(), store, p)
					require.NoError(t, err)
				}
				w.RemoveNode()
				e, _, stop = start(t, w, store, func(o *engine.Options) { handOver(o); o.Own = hosts.Own{UUIDs: []string{hostUUID}} })
				time.Sleep(5 * time.Minute)
				gate(t, e, reason.OwnHost)
				assert.Empty(t, others(w))
				stop()
			})
		})
	}
}
