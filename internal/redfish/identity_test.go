package redfish_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/bmc/bmctest"
	"github.com/fenced/fenced/test/redfishsim"
)

const (
	uuid2 = "4c4c4544-0042-4810-8056-b4c04f4d3232"
	uuid3 = "4c4c4544-0042-4810-8056-b4c04f4d3332"
)

// three is a service with three systems, and its host without a path.
func three(t *testing.T) (*redfishsim.Server, bmc.Device) {
	t.Helper()
	sim := start(t, redfishsim.Options{Systems: []redfishsim.SystemOptions{
		{ID: "Blade1", UUID: uuid1}, {ID: "Blade2", UUID: uuid2, Off: true}, {ID: "Blade3", UUID: uuid3},
	}})
	h := hostOf(t, sim)
	h.Endpoint.System = ""
	return sim, h
}

func TestWrongUUIDShows(t *testing.T) {
	sim, c := one(t)
	assert.Equal(t, uuid1, bmctest.Read(t, c).Identity.UUID)
	sim.Quirks(func(q *redfishsim.Quirks) { q.UUID = uuid2 })
	assert.Equal(t, uuid2, bmctest.Read(t, c).Identity.UUID, "read with every state, not remembered")
}

func TestOnlySystemIsFound(t *testing.T) {
	sim := start(t, redfishsim.Options{UUID: uuid1})
	h := hostOf(t, sim)
	h.Endpoint.System = ""
	c := open(t, h, timing)
	assert.Equal(t, uuid1, bmctest.Read(t, c).Identity.UUID)
	assert.Equal(t, 4, c.Requests(), "login, service root, collection, system")
	bmctest.Read(t, c)
	assert.Equal(t, 5, c.Requests(), "found once")
}

func TestThreeSystems(t *testing.T) {
	t.Run("by path", func(t *testing.T) {
		sim, h := three(t)
		h.Endpoint.System = sim.System(1).URI()
		r := bmctest.Read(t, open(t, h, timing))
		assert.Equal(t, uuid2, r.Identity.UUID)
		assert.Equal(t, bmc.Off, r.State)
	})
	t.Run("by pinned UUID", func(t *testing.T) {
		sim, h := three(t)
		h.SystemUUID = "44454c4c-4200-1048-8056-b4c04f4d3232" // uuid2 with the first fields swapped
		c := open(t, h, timing)
		r := bmctest.Read(t, c)
		assert.Equal(t, uuid2, r.Identity.UUID)
		_, err := c.Send(t.Context(), bmc.CommandOn)
		require.NoError(t, err)
		assert.True(t, sim.System(1).Power())
		assert.Equal(t, 1, sim.Count(http.MethodGet, "/redfish/v1/Systems/Blade3"), "found once")
	})
	t.Run("ambiguous", func(t *testing.T) {
		sim, h := three(t)
		c := open(t, h, timing)
		_, err := c.Read(t.Context())
		bmctest.Failed(t, err, bmc.KindIdentity)
		for i := range 3 {
			assert.Contains(t, err.Error(), sim.System(i).URI())
		}
		_, err = c.Send(t.Context(), bmc.CommandOff)
		assert.Equal(t, bmc.SentNo, bmctest.Failed(t, err, bmc.KindIdentity).Sent)
		assert.True(t, sim.System(0).Power() && sim.System(2).Power())
	})
	t.Run("none has the UUID", func(t *testing.T) {
		_, h := three(t)
		h.SystemUUID = "11111111-2222-3333-4444-555555555555"
		_, err := open(t, h, timing).Read(t.Context())
		bmctest.Failed(t, err, bmc.KindIdentity)
	})
	t.Run("a placeholder is no pin", func(t *testing.T) {
		_, h := three(t)
		h.SystemUUID = "00000000-0000-0000-0000-000000000000"
		_, err := open(t, h, timing).Read(t.Context())
		bmctest.Failed(t, err, bmc.KindIdentity)
		assert.Contains(t, err.Error(), "pin a UUID")
	})
	t.Run("two claim the UUID", func(t *testing.T) {
		sim, h := three(t)
		h.SystemUUID = uuid2
		sim.System(2).Quirks(func(q *redfishsim.Quirks) { q.UUID = uuid2 })
		_, err := open(t, h, timing).Read(t.Context())
		bmctest.Failed(t, err, bmc.KindIdentity)
		assert.Contains(t, err.Error(), "2 systems")
	})
}

func TestUnknownSystem(t *testing.T) {
	sim := start(t, redfishsim.Options{})
	h := hostOf(t, sim)
	h.Endpoint.System = "/redfish/v1/Systems/42"
	c := open(t, h, timing)
	_, err := c.Read(t.Context())
	bmctest.Failed(t, err, bmc.KindIdentity)
	_, err = c.Send(t.Context(), bmc.CommandOff)
	assert.Equal(t, bmc.SentNo, bmctest.Failed(t, err, bmc.KindIdentity).Sent)
}

func TestChassisIsNoSystem(t *testing.T) {
	sim, c := one(t)
	sim.Quirks(func(q *redfishsim.Quirks) { q.ODataType = "#Chassis.v1_25_0.Chassis" })
	_, err := c.Read(t.Context())
	bmctest.Failed(t, err, bmc.KindIdentity)
}

// A blade that moved takes its UUID along: its old slot is not the host.
func TestSystemFoundByUUIDMustKeepIt(t *testing.T) {
	sim, d := three(t)
	d.SystemUUID = uuid2
	c := open(t, d, timing)
	assert.Equal(t, uuid2, bmctest.Read(t, c).Identity.UUID)
	sim.System(1).Quirks(func(q *redfishsim.Quirks) { q.UUID = uuid3 })
	sim.System(2).Quirks(func(q *redfishsim.Quirks) { q.UUID = uuid2 })
	_, err := c.Read(t.Context())
	bmctest.Failed(t, err, bmc.KindIdentity)
	assert.Equal(t, uuid2, bmctest.Read(t, c).Identity.UUID, "looked for afresh")
	_, err = c.Send(t.Context(), bmc.CommandOff)
	require.NoError(t, err)
	assert.False(t, sim.System(2).Power())
	assert.Empty(t, sim.System(1).Commands())
}

// A list of systems that is not whole could leave one that is not the host.
func TestHalfAListOfSystemsIsNone(t *testing.T) {
	const only = "/redfish/v1/Systems/system"
	link := map[string]any{"@odata.id": only}
	for name, list := range map[string]map[string]any{
		"a member without a link":  {"Members": []any{link, map[string]any{}}},
		"a member of another kind": {"Members": []any{link, 7}},
		"a link to elsewhere":      {"Members": []any{link, map[string]any{"@odata.id": "@elsewhere/"}}},
		"fewer than it counts":     {"Members": []any{link}, "Members@odata.count": 2},
		"no list":                  {"Members": link},
		"a list without an end":    {"Members": []any{}, "Members@odata.nextLink": "/redfish/v1/Systems"},
	} {
		t.Run(name, func(t *testing.T) {
			d := edited(t, func(r map[string]map[string]any) { r["/redfish/v1/Systems"] = list })
			_, err := open(t, d, timing).Send(t.Context(), bmc.CommandOff)
			require.Error(t, err)
			assert.Contains(t, []bmc.Kind{bmc.KindProtocol, bmc.KindIdentity}, bmc.KindOf(err))
		})
	}
}

func TestSecondPageOfSystems(t *testing.T) {
	d := edited(t, func(r map[string]map[string]any) {
		r["/redfish/v1/Systems"]["Members@odata.nextLink"] = "/redfish/v1/Systems/2"
		r["/redfish/v1/Systems/2"] = map[string]any{"Members": []any{map[string]any{"@odata.id": "/redfish/v1/Systems/other"}}}
	})
	_, err := open(t, d, timing).Read(t.Context())
	bmctest.Failed(t, err, bmc.KindIdentity)
	assert.Contains(t, err.Error(), "2 systems")
}
