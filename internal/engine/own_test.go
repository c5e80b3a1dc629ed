package engine_test

import (
	"bytes"
	"cmp"
	"context"
	"net/netip"
	"sync"
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
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/test/fake"
	"github.com/fenced/fenced/test/must"
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
		scene(t, name, func(t *testing.T, w *world, store *failingStore) {
			w.ChangeEntry(func(h *bmc.Host) {
				e := &h.Levels[0].Devices[0].Endpoint
				e.Host, e.Port = cmp.Or(c.host, e.Host), cmp.Or(c.port, e.Port)
			})
			refusesOwnHost(t, w, store, c.own, c.is)
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

// Whoever is about to use a BMC, and the health check, resolve its name: with sweep.interval 0s there is no health check. The
// deciding goroutine does not. // I13
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
		e := running(t, w, store, func(o *engine.Options) { o.Own = own })
		time.Sleep(2 * time.Second)
		assert.Zero(t, asked.Load())
		refused(t, reason.OwnHost)(e.Fence(t.Context(), dryRun(byHand)))
		for range 3 {
			checkHealthy(t, e)
		}
		refused(t, reason.OwnHost)(e.Fence(t.Context(), byHand))
		assert.EqualValues(t, 1, asked.Load())
	})
}

// A name that could not be resolved is looked up again soon: by then the BMC can be reached, too. // I13
func TestOwnBMCIsFoundAfterItsNameWasUnknown(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.pauseCheck()
		w.ChangeEntry(func(h *bmc.Host) { h.Levels[0].Devices[0].Endpoint.Host = "bmc-1.example.com" })
		var works atomic.Bool
		own := hosts.Own{BMCAddrs: addrs("192.0.2.9"), Lookup: func(context.Context, string) ([]netip.Addr, error) {
			if !works.Load() {
				return nil, assert.AnError
			}
			return addrs("192.0.2.9"), nil
		}}
		e := running(t, w, store, func(o *engine.Options) { o.Own = own })
		time.Sleep(2 * time.Second)
		accepted(t)(e.Fence(t.Context(), dryRun(byHand)))
		works.Store(true)
		time.Sleep(time.Minute)
		refused(t, reason.OwnHost)(e.Fence(t.Context(), byHand))
	})
}

// If another entry reports a MAC address of the local BMC, it is the same machine.
func TestOwnBMCIsFoundByItsMAC(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.pauseCheck()
		e := running(t, w, store, func(o *engine.Options) { o.Own = hosts.Own{BMCMACs: []string{"00:1B:21:00:00:01"}} })
		time.Sleep(2 * time.Second)
		k := checked(t, e, hostUUID, "")
		k.Description = bmc.Description{MACs: []string{"00:1b:21:00:00:01"}}
		e.Checked(t.Context(), k)
		refused(t, reason.OwnHost)(e.Fence(t.Context(), byHand))
	})
}

// After a start no BMC has been read, and the Node may be gone, or another machine may have had its name: then the pin of
// the host says that it is this one, also if that pin is void. Nobody else is asked for it, and its Machine stays. // I13
func TestOwnHostIsFoundByItsPin(t *testing.T) {
	for name, void := range map[string]bool{"valid": false, "void": true} {
		scene(t, name, func(t *testing.T, w *world, store *failingStore) {
			w.SetReady("True")
			e, _, stop := start(t, w, store, nil)
			time.Sleep(2 * time.Second)
			checkHealthy(t, e)
			stop()
			handOver := handingOver(w)
			if void {
				p := pinOf(t, store, "c/n-1")
				p.Contradicted = "Node n-1 was seen on another machine"
				must.Do(state.SavePin(t.Context(), store, p))(t)
			}
			w.RemoveNode()
			e = running(t, w, store, func(o *engine.Options) { handOver(o); o.Own = hosts.Own{UUIDs: []string{hostUUID}} })
			time.Sleep(5 * time.Minute)
			gate(t, e, reason.OwnHost)
			assert.Empty(t, others(w))
		})
	}
}

// Another machine had the name of this host's Node, and was deleted: nothing tells any more on which host the Machine of that name is.
// The name is the last that is known of this host, so nobody is asked for it, also after a start. // I13
func TestOwnHostIsFoundByItsLastName(t *testing.T) {
	for name, own := range map[string]string{"this host": hostUUID, "another host": "4c4c4544-0042-3510-8054-b4c04f4d8888"} {
		scene(t, name, func(t *testing.T, w *world, store *failingStore) {
			w.SetReady("True")
			options := func(o *engine.Options) { o.Own = hosts.Own{UUIDs: []string{own}} }
			_, _, stop := start(t, w, store, options)
			time.Sleep(2 * time.Second)
			w.Do(func(s *fake.State) {
				s.ChangeNode("n-1", func(n *fake.Node) { n.SystemUUID = otherUUID })
			})
			time.Sleep(2 * time.Second)
			stop()
			handOver := handingOver(w)
			w.RemoveNode()
			e := running(t, w, store, func(o *engine.Options) { options(o); handOver(o) })
			time.Sleep(5 * time.Minute)
			if own != hostUUID {
				assert.NotEmpty(t, others(w))
				return
			}
			gate(t, e, reason.OwnHost)
			assert.Empty(t, others(w))
			w.Do(func(s *fake.State) { // this host comes back under another name
				s.ChangeNode("other-1", func(n *fake.Node) { n.SystemUUID = own })
			})
			time.Sleep(5 * time.Minute)
			assert.NotEmpty(t, others(w))
		})
	}
}

// A daemon that takes over a cluster may find an open run on its own host. It does nothing
// destructive there, at any step of the run, and lets the run end. // I13
func TestRunOnTheOwnHostIsTakenOver(t *testing.T) {
	for name, c := range map[string]struct {
		saved string
		offs  int // that the daemon before it gave
	}{
		"just begun":           {`"step":"PowerOff"`, 0},
		"the Off was recorded": {`"intent":{"action":"SendOff"`, 0},
		"the BMC says Off":     {`"step":"DeleteNode"`, 1},
	} {
		scene(t, name, func(t *testing.T, w *world, inner *failingStore) {
			var away atomic.Bool
			var once sync.Once
			begun, store := make(chan struct{}), &stubborn{Store: inner.Store}
			store.watch(func(run []byte) {
				if bytes.Contains(run, []byte(c.saved)) {
					once.Do(func() { away.Store(true); close(begun) })
				}
			})
			p := newPair(t, w, &failingStore{Store: store}, func(name string, o *engine.Options) {
				o.Open = func(bmc.Device) (bmc.Power, error) { return reboots{w.bmc(), &away}, nil }
				if name == "b" {
					o.Own = hosts.Own{MachineID: "machine-n-1"}
				}
			})
			p.give("a")
			<-begun
			time.Sleep(200 * time.Millisecond)
			p.take("a")
			p.setAside("a", true) // b stays the owner
			p.give("b")
			away.Store(false)
			time.Sleep(30 * time.Minute)
			assert.Equal(t, c.offs, w.Count(bmc.CommandOff))
			assert.Zero(t, w.Isolations())
			assert.True(t, w.On())
			r := only(t, p.engine["b"])
			assert.Equal(t, remediate.Aborted, r.Step)
			assert.Equal(t, "OwnHost", string(r.Reason))
			assert.Contains(t, r.Note, "the host that this daemon runs on")
		})
	}
}

// An entry that has become protected applies to a run that has not acted yet. So does one that may be there: a file of hosts.d
// that cannot be read may have it. // I13, I18
func TestProtectedSinceTheRunBegan(t *testing.T) {
	for code, change := range map[reason.Code]func(w *world){
		reason.Protected: func(w *world) { w.ChangeEntry(func(h *bmc.Host) { h.Protected = true }) },
		reason.FilesRefused: func(w *world) {
			w.Do(func(s *fake.State) { s.UnreadEntries = "hosts.d/b.yaml:2: hosts[0].nod: unknown key" })
		},
	} {
		scene(t, string(code), func(t *testing.T, w *world, inner *failingStore) {
			var away atomic.Bool
			var once sync.Once
			begun, store := make(chan struct{}), &stubborn{Store: inner}
			store.watch(func([]byte) { once.Do(func() { away.Store(true); close(begun) }) })
			opened := func(o *engine.Options) {
				o.Open = func(bmc.Device) (bmc.Power, error) { return reboots{w.bmc(), &away}, nil }
			}
			_, _, stop := start(t, w, store, opened)
			<-begun
			time.Sleep(time.Second)
			stop()
			change(w)
			away.Store(false)
			e := running(t, w, store, func(o *engine.Options) {
				opened(o)
				if code == reason.FilesRefused { // as the daemon starts with such a file
					o.Clusters[0].FilesRefused = "hosts.d/b.yaml:2: hosts[0].nod: unknown key"
				}
			})
			time.Sleep(30 * time.Minute)
			assert.Zero(t, w.Count(bmc.CommandOff))
			r := only(t, e)
			assert.Equal(t, code, r.Reason)
			assert.Contains(t, r.Note, "protected")
		})
	}
}

// blind are owners whose store refuses to say whose the clusters are.
type blind struct {
	*heir
	refused *atomic.Bool
}

func (b blind) Owner(cluster string) state.Owner {
	o := b.heir.Owner(cluster)
	if b.refused.Load() {
		o.Problem = "permission denied"
	}
	return o
}

// If the store refuses to say which instance owns a cluster, this is reported once, and
// shown while it lasts.
func TestClusterThatCannotBeOwnedSaysWhy(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		var unknown atomic.Bool
		unknown.Store(true)
		d := newDeed()
		e, events, _ := start(t, w, store, func(o *engine.Options) {
			o.Instance, o.Owners = "a", blind{d.heir("a", store), &unknown}
		})
		time.Sleep(5 * time.Minute)
		assert.Equal(t, "no instance owns the cluster now, as far as this instance knows: permission denied", e.Status()[0].Idle)
		assert.Contains(t, gate(t, e, reason.NotOwner).Value, "permission denied")
		assert.NotContains(t, refused(t, reason.NotOwner)(e.ConfirmOff(t.Context(), byHand)), "orders are given there", "there is no such place")
		assert.Equal(t, 1, heard(t, events, "know who owns the cluster"))
		unknown.Store(false)
		time.Sleep(5 * time.Second)
		assert.NotContains(t, e.Status()[0].Idle, "permission denied")
	})
}

// forger is a kubelet of another Node that says, while it forges, that it runs on this host, with a system UUID of its choice.
type forger struct{ uuid atomic.Pointer[string] }

func (f *forger) through(o *engine.Options) {
	through(func(list []policy.Change) []policy.Change {
		for i := range list {
			if n, ok := list[i].Value.(*policy.Node); ok && n.Name == "other-1" && f.uuid.Load() != nil {
				forged := *n
				forged.SystemUUID, forged.Addresses = *f.uuid.Load(), []string{"192.0.2.77"}
				list[i].Value = &forged
			}
		}
		return list
	})(o)
}

// say makes the Node show this UUID, or what is true if there is none.
func (f *forger) say(w *world, uuid *string) {
	f.uuid.Store(uuid)
	w.Do(func(s *fake.State) {
		s.ChangeNode("n-2", func(n *fake.Node) { n.SystemUUID = "4c4c4544-0042-3510-8054-b4c04f4d2222" })
	})
	time.Sleep(2 * time.Second)
}

// A kubelet that says it runs on this host neither makes another host this one for good, nor takes this host's protection away. // I13
func TestNodeThatPretendsToBeTheOwnHost(t *testing.T) {
	uuid := "4c4c4544-0042-3510-8054-b4c04f4d7777"
	scene(t, "with the UUID of another host", func(t *testing.T, w *world, store *failingStore) {
		var f forger
		victim := hostUUID
		own := func(o *engine.Options) { o.Own = hosts.Own{Addrs: addrs("192.0.2.77")}; f.through(o) }
		w.SetReady("True")
		_, _, stop := start(t, w, store, own)
		time.Sleep(2 * time.Second)
		f.say(w, &victim)
		stop()
		_, _, stop = start(t, w, store, own)
		time.Sleep(2 * time.Second)
		f.say(w, nil)
		stop()
		e := running(t, w, store, own)
		w.Hang()
		time.Sleep(5 * time.Minute)
		assert.Equal(t, 1, w.Count(bmc.CommandOff), "%+v", explained(t, e).Gates)
	})
	scene(t, "with one of its own", func(t *testing.T, w *world, store *failingStore) {
		var f forger
		own := func(o *engine.Options) {
			o.Own = hosts.Own{MachineID: "machine-n-1", Addrs: addrs("192.0.2.77")}
			f.through(o)
		}
		w.SetReady("True")
		_, _, stop := start(t, w, store, own)
		time.Sleep(time.Second)
		f.say(w, &uuid)
		stop()
		w.RemoveNode()
		w.ChangeEntry(func(h *bmc.Host) { h.PinnedUUID = hostUUID })
		e := running(t, w, store, own)
		time.Sleep(time.Minute)
		untouched(t, w, e)
		gate(t, e, reason.OwnHost)
	})
}
