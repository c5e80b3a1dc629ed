package engine_test

import (
	"context"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
)

// listing is a content of hosts.d: entries by the name of their Node.
type listing map[string]bmc.Host

func (l listing) List(string) []string        { return slices.Sorted(maps.Keys(l)) }
func (l listing) Protected(_, of string) bool { return l[of].Protected }
func (l listing) Find(_ context.Context, _, of string) (bmc.Host, bool, error) {
	h, found := l[of]
	return h, found, nil
}

// at is the entry of a Node, whose BMC is at an address.
func at(node, address string) bmc.Host {
	return bmc.Host{Name: "c/" + node, IdentityMode: "required", Source: "hosts.d", Levels: []bmc.Level{{Devices: []bmc.Device{{
		Driver: bmc.DriverIPMI, Endpoint: bmc.Endpoint{Protocol: bmc.ProtocolIPMI, Host: address, Port: 623}}}}}}
}

// A reload of hosts.d during a run takes in new entries and drops removed ones, and the run
// ends as without it.
func TestHostsAreTakenInDuringARun(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e, _, stop := start(t, w, store, func(o *engine.Options) {
			o.Hosts = listing{"n-1": at("n-1", "192.0.2.1"), "other-0": at("other-0", "192.0.2.2")}
		})
		time.Sleep(untilOff)
		require.True(t, only(t, e).Open())
		e.TakeIn.Hosts(t.Context(), listing{"n-1": at("n-1", "192.0.2.1"), "other-1": at("other-1", "192.0.2.3")})
		_, err := e.SubjectOf(t.Context(), "c", "other-0")
		refusedFor(t, err, reason.NoHost)
		s, err := e.SubjectOf(t.Context(), "c", "other-1")
		require.NoError(t, err)
		require.NoError(t, s.Err)
		assert.Equal(t, "192.0.2.3", s.Host.Levels[0].Devices[0].Endpoint.Host)

		time.Sleep(20 * time.Minute)
		assert.Equal(t, remediate.Done, only(t, e).Step)
		assert.Equal(t, 1, w.Count(bmc.CommandOff))
		stop()
	})
}

// A reload that gives the host of a run another BMC sends nothing there: the run ends with the
// BMC that it began with. // I10
func TestRunKeepsItsBMCInAReload(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		var mu sync.Mutex
		asked := map[string]int{}
		e, _, stop := start(t, w, store, func(o *engine.Options) {
			o.Hosts = listing{"n-1": at("n-1", "192.0.2.1")}
			o.Open = func(d bmc.Device) (bmc.Power, error) {
				mu.Lock()
				defer mu.Unlock()
				asked[d.Endpoint.Host]++
				return w.bmc(), nil
			}
		})
		time.Sleep(untilOff)
		require.True(t, only(t, e).Open())
		e.TakeIn.Hosts(t.Context(), listing{"n-1": at("n-1", "192.0.2.66")})
		time.Sleep(20 * time.Minute)
		assert.Equal(t, remediate.Done, only(t, e).Step)
		assert.Equal(t, 1, w.Count(bmc.CommandOff))
		mu.Lock()
		defer mu.Unlock()
		assert.NotZero(t, asked["192.0.2.1"])
		assert.Zero(t, asked["192.0.2.66"])
		stop()
	})
}

// Two entries that lead to one BMC are noticed after a reload as after a start, also when the
// other host's entry came with it. // I9
func TestReloadedEntriesOfOneBMCAreNotSwitched(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e, _, stop := start(t, w, store, func(o *engine.Options) { o.Hosts = listing{"n-1": at("n-1", "192.0.2.1")} })
		time.Sleep(30 * time.Second)
		e.TakeIn.Hosts(t.Context(), listing{"n-1": at("n-1", "192.0.2.1"), "other-1": at("other-1", "192.0.2.1")})
		time.Sleep(5 * time.Minute)
		assert.Zero(t, w.Count(bmc.CommandOff))
		assert.False(t, gate(t, e, reason.DuplicateHost).Pass)

		e.TakeIn.Hosts(t.Context(), listing{"n-1": at("n-1", "192.0.2.1")})
		time.Sleep(20 * time.Minute)
		assert.Equal(t, remediate.Done, only(t, e).Step)
		stop()
	})
}
