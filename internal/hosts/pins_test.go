package hosts

import (
	"context"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/state/boltstore"
	"github.com/fenced/fenced/test/must"
)

// trackingStore is a store of one user that answers as one of several does, and remembers after which versions it was asked.
type trackingStore struct {
	state.Store
	after []uint64
}

func (s *trackingStore) Changes(state.Kind) uint64 { return 0 }

func (s *trackingStore) ListAfter(ctx context.Context, kind state.Kind, version uint64) ([]state.Record, error) {
	s.after = append(s.after, version)
	list, err := s.Store.List(ctx, kind)
	return slices.DeleteFunc(list, func(r state.Record) bool { return r.Version <= version }), err
}

// After the first read only what has changed is read. A pin that cannot be read forbids as long as that is so, whatever else was read. // I20
func TestPinsAreReadSinceTheLastRead(t *testing.T) {
	ctx := t.Context()
	s := &trackingStore{Store: must.Do(boltstore.Open(filepath.Join(t.TempDir(), "state.db")))(t)}
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	a := must.Do(state.SavePin(ctx, s, state.Pin{Host: "c/a", Node: "a"}))(t)
	b := must.Do(state.SavePin(ctx, s, state.Pin{Host: "c/b", Node: "b"}))(t)
	h := &Hosts{catalog: &catalog{pins: newPins()}}
	load := func() {
		t.Helper()
		require.NoError(t, h.LoadPins(ctx, s))
	}
	nodeOf := func(host string) string {
		t.Helper()
		p, found, err := h.catalog.pins.get(host)
		require.NoError(t, err)
		require.True(t, found)
		return p.Node
	}
	load()
	require.Empty(t, s.after, "the first read is of all")

	a.Node = "a2"
	a = must.Do(state.SavePin(ctx, s, a))(t)
	load()
	assert.Equal(t, []uint64{b.Version}, s.after)
	assert.Equal(t, "a2", nodeOf("c/a"))
	assert.Equal(t, "b", nodeOf("c/b"))

	bad := must.Do(s.Put(ctx, state.Record{Kind: state.KindPin, Key: "c/bad", Data: []byte("{}")}))(t)
	for range 2 {
		load()
		_, _, err := h.catalog.pins.get("c/bad")
		require.ErrorIs(t, err, state.ErrUnreadable)
		require.ErrorIs(t, h.UnreadablePins(), state.ErrUnreadable)
	}
	assert.Equal(t, []uint64{b.Version, a.Version}, s.after, "all are read until all can be")

	must.Do(state.SavePin(ctx, s, state.Pin{Host: "c/bad", Version: bad, Node: "good"}))(t)
	load()
	assert.Equal(t, "good", nodeOf("c/bad"))
	require.NoError(t, h.UnreadablePins())
	load()
	assert.Len(t, s.after, 3)
}

// owner leads a cluster with a store.
type owner struct{ store state.Store }

func (owner) Leads() bool          { return true }
func (owner) Refuse() error        { return nil }
func (o owner) Store() state.Store { return o.store }

// A person may enroll again what one power level of a run contradicted, before another level contradicts that, too: no contradiction may be newer
// than an enrolment that stays. // I8
func TestEnrolmentEndsByTheNewestContradiction(t *testing.T) {
	for name, c := range map[string]struct {
		enrolled time.Duration // after the run began
		stays    bool
	}{
		"before both":  {0, false},
		"between them": {2 * time.Minute, false},
		"after both":   {4 * time.Minute, true},
	} {
		t.Run(name, func(t *testing.T) {
			_, store := openFreezes(t)
			began := time.Now().Add(-time.Hour)
			hosts := &Hosts{catalog: &catalog{index: newIndex(), pins: newPins()}, opt: Options{Emit: func(event.Event) {}}}
			hosts.catalog.pins.put(must.Do(state.SavePin(t.Context(), store, state.Pin{Host: "c/n", SystemUUID: mine, EnrolledBy: "ada", At: began.Add(c.enrolled)}))(t))
			cluster := hosts.NewCluster(ClusterOptions{Name: "c", View: oneHost{}, Lead: owner{store}})
			run := remediate.Run{Target: remediate.Target{Host: "c/n", Node: "n"}, Contradicted: []remediate.Contradiction{
				{Level: 1, Since: began.Add(time.Minute)}, {Level: 2, Since: began.Add(3 * time.Minute)},
			}}
			require.NoError(t, cluster.Distrust(t.Context(), run))
			_, stays := hosts.catalog.enrolment("c/n")
			assert.Equal(t, c.stays, stays)
		})
	}
}

// The name of an entry for a Machine may be used again for another Machine, on another host. What a run has proven about the first says nothing
// about the second while that has no Node. // I8
func TestProvenPinIsOfItsMachine(t *testing.T) {
	_, store := openFreezes(t)
	hosts := &Hosts{catalog: &catalog{index: newIndex(), pins: newPins()}, opt: Options{Emit: func(event.Event) {}}}
	c := hosts.NewCluster(ClusterOptions{Name: "c", View: oneHost{}, Lead: owner{store}})
	h := bmc.Host{Name: bmc.EntryName("c", "ns/m"), Levels: []bmc.Level{{Devices: []bmc.Device{bmcAt("ipmi://192.0.2.1")}}}}
	target := remediate.Target{Cluster: "c", Namespace: "ns", Machine: "m", MachineUID: "first", Node: "n", NodeUID: "u", SystemUUID: mine}
	c.FixTarget(&target, h)
	c.PinProven(t.Context(), remediate.Run{Target: target})
	reads := bmc.Reading{Identity: bmc.Identity{UUID: mine}}
	nodeless := remediate.Target{Cluster: "c", Namespace: "ns", Machine: "m", MachineUID: "first"}
	assert.Equal(t, guard.IdentityMatches, c.Identify(t.Context(), h, 0, reads, nodeless, false))
	nodeless.MachineUID = "second"
	assert.Equal(t, guard.IdentityUnproven, c.Identify(t.Context(), h, 0, reads, nodeless, false))
}

// The board of a host was replaced. As long as nothing has read the new serial number, that of the former board must not stay in the pin of the new
// one: each reading would contradict it, and no health check could correct that. // I8
func TestPinOfANewBoardHasNoSerialOfTheFormer(t *testing.T) {
	h := bmc.Host{Name: "c/n", Levels: []bmc.Level{{Devices: []bmc.Device{bmcAt("ipmi://192.0.2.1")}}}}
	target := remediate.Target{Cluster: "c", Node: "n", NodeUID: "u", SystemUUID: theirs}
	for name, pin := range map[string]func(t *testing.T, c *Cluster, old state.Pin){
		"a health check": func(t *testing.T, c *Cluster, old state.Pin) {
			k := Checked{Subject: Subject{Cluster: "c", Node: "n", SystemUUID: theirs, Host: h}, Reading: bmc.Reading{Identity: bmc.Identity{UUID: theirs}}}
			require.NoError(t, c.pins.healthy(t.Context(), k, h.Levels[0].Devices[0], old))
		},
		"a run": func(t *testing.T, c *Cluster, _ state.Pin) {
			c.FixTarget(&target, h)
			c.PinProven(t.Context(), remediate.Run{Target: target})
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, store := openFreezes(t)
			hosts := &Hosts{catalog: &catalog{index: newIndex(), pins: newPins()}, opt: Options{Emit: func(event.Event) {}}}
			c := hosts.NewCluster(ClusterOptions{Name: "c", View: oneHost{}, Lead: owner{store}})
			old := must.Do(state.SavePin(t.Context(), store, state.Pin{Host: h.Name, Devices: devicesOf(h), Choice: choiceOf(h), SystemUUID: mine, BMCUUID: mine, Serial: "SN-4711"}))(t)
			hosts.catalog.pins.put(old)
			pin(t, c, old)
			reads := bmc.Reading{Identity: bmc.Identity{UUID: theirs, Serial: "SN-4712"}}
			assert.Equal(t, guard.IdentityMatches, c.Identify(t.Context(), h, 0, reads, target, false))
		})
	}
}
