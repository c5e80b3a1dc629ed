package redfish_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/bmc/bmctest"
	"github.com/fenced/fenced/test/redfishsim"
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
		bmctest.Send(t, c, bmc.CommandOn)
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
	_, err = c.Describe(t.Context())
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
	bmctest.Send(t, c, bmc.CommandOff)
	assert.False(t, sim.System(2).Power())
	assert.Empty(t, sim.System(1).Commands())
}

// only is the one system of an edited service, and link leads to it.
const only = "/redfish/v1/Systems/system"

var link = map[string]any{"@odata.id": only}

// A list of systems that is not whole could leave one that is not the host.
func TestHalfAListOfSystemsIsNone(t *testing.T) {
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

// hgx is a service that lists its baseboard before the host, and the host's entry
// without a path.
func hgx(t *testing.T) (*redfishsim.Server, bmc.Device) {
	t.Helper()
	sim := start(t, redfishsim.Options{Systems: []redfishsim.SystemOptions{
		{ID: "HGX_Baseboard_0", UUID: uuid1}, {ID: "System_0", UUID: uuid2},
	}})
	d := hostOf(t, sim)
	d.Endpoint.System, d.SystemUUID = "", uuid2
	return sim, d
}

// strangers are ways in which the baseboard cannot be read.
var strangers = map[string]func(*redfishsim.Quirks){
	"500":          func(q *redfishsim.Quirks) { q.RefuseRead = http.StatusInternalServerError },
	"404":          func(q *redfishsim.Quirks) { q.RefuseRead = http.StatusNotFound },
	"403":          func(q *redfishsim.Quirks) { q.RefuseRead = http.StatusForbidden },
	"another type": func(q *redfishsim.Quirks) { q.ODataType = "#Chassis.v1_25_0.Chassis" },
	"no answer":    func(q *redfishsim.Quirks) { q.HangRead = true },
}

// TestUnreadableSibling: it does not hide the system with the pinned UUID.
func TestUnreadableSibling(t *testing.T) {
	t.Parallel()
	for name, quirk := range strangers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sim, d := hgx(t)
			sim.System(0).Quirks(quirk)
			short := timing
			short.ReadTimeout = 30 * time.Second // half of it for the one that does not answer
			c := open(t, d, short)
			assert.Equal(t, uuid2, bmctest.Read(t, c).Identity.UUID)
			bmctest.Send(t, c, bmc.CommandOff)
			assert.False(t, sim.System(1).Power())
			assert.True(t, sim.System(0).Power())
		})
	}
}

// TestUnreadableSiblingIsNamed: if no other system has the UUID, nobody knows whose the
// UUID is, and the error names the one that cannot be read.
func TestUnreadableSiblingIsNamed(t *testing.T) {
	t.Parallel()
	for name, quirk := range strangers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sim, d := hgx(t)
			d.SystemUUID = uuid3
			sim.System(0).Quirks(quirk)
			short := timing
			short.ReadTimeout = 30 * time.Second
			_, err := open(t, d, short).Read(t.Context())
			require.Error(t, err)
			assert.NotEqual(t, bmc.KindIdentity, bmc.KindOf(err), "%v", err)
			assert.Contains(t, err.Error(), sim.System(0).URI())
			assert.NotContains(t, err.Error(), sim.System(1).URI())
		})
	}
}

// TestExpiredSessionAmongStrangers: the session that ran out is opened again, although
// the baseboard answers with another error before.
func TestExpiredSessionAmongStrangers(t *testing.T) {
	sim, d := hgx(t)
	sim.System(0).Quirks(func(q *redfishsim.Quirks) { q.RefuseRead = http.StatusInternalServerError })
	sim.System(1).Quirks(func(q *redfishsim.Quirks) { q.RefuseRead = http.StatusUnauthorized })
	_, err := open(t, d, timing).Read(t.Context())
	bmctest.Failed(t, err, bmc.KindAuth)
	assert.Equal(t, 2, sim.Count(http.MethodPost, sessions))
}

// TestPinnedAmongInvalidMembers: what the list has beside the system with the pinned UUID
// does not matter; without a pin, half a list is none (TestHalfAListOfSystemsIsNone).
func TestPinnedAmongInvalidMembers(t *testing.T) {
	for name, list := range map[string]map[string]any{
		"a member without a link": {"Members": []any{map[string]any{}, link}},
		"a link to elsewhere":     {"Members": []any{map[string]any{"@odata.id": "@elsewhere/"}, link}},
		"fewer than it counts":    {"Members": []any{link}, "Members@odata.count": 2},
		"a page that is missing":  {"Members": []any{link}, "Members@odata.nextLink": "/redfish/v1/Systems/more"},
	} {
		t.Run(name, func(t *testing.T) {
			d := edited(t, func(r map[string]map[string]any) {
				r["/redfish/v1/Systems"] = list
				r[only]["UUID"] = uuid1
			})
			d.SystemUUID = uuid1
			assert.Equal(t, uuid1, bmctest.Read(t, open(t, d, timing)).Identity.UUID)
			d.SystemUUID = uuid2
			_, err := open(t, d, timing).Read(t.Context())
			bmctest.Failed(t, err, bmc.KindProtocol)
		})
	}
}

// TestRootWithoutSystems: the systems are where every service has them.
func TestRootWithoutSystems(t *testing.T) {
	sim, d := hgx(t)
	sim.Faults(func(f *redfishsim.Faults) { f.NoSystemsLink = true })
	assert.Equal(t, uuid2, bmctest.Read(t, open(t, d, timing)).Identity.UUID)

	d = edited(t, func(r map[string]map[string]any) {
		delete(r["/redfish/v1"], "Systems")
		delete(r, "/redfish/v1/Systems")
	})
	_, err := open(t, d, timing).Read(t.Context())
	bmctest.Failed(t, err, bmc.KindProtocol)
	assert.Contains(t, err.Error(), "/redfish/v1/Systems")
}

// I1: an answer that repeats a name proves no state and no identity, whichever of
// the values comes last, and no command goes to its action.
func TestRepeatedNameIsUnknown(t *testing.T) {
	const reset = `{"#ComputerSystem.Reset":{"target":"/redfish/v1/Systems/2/Actions/ComputerSystem.Reset"}}`
	for name, more := range map[string]string{
		"the state":                 `"PowerState":"Off"`,
		"the same state":            `"PowerState":"On"`,
		"the state in another case": `"powerState":"Off"`,
		"the state, escaped":        `"Power\u0053tate":"Off"`,
		"the identity":              `"UUID":"` + uuid2 + `"`,
		"the serial number":         `"serialNumber":"SN-2"`,
		"the action":                `"Actions":` + reset,
		"deep inside":               `"Oem":{"Maker":[{"a":1,"b":{"c":1,"c":2}}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			sim, c := one(t)
			require.Equal(t, bmc.On, bmctest.Read(t, c).State)
			sim.Quirks(func(q *redfishsim.Quirks) { q.Repeat = more })
			r := bmctest.Read(t, c)
			assert.Equal(t, bmc.Unknown, r.State)
			assert.Empty(t, r.Identity)
			assert.Contains(t, r.Raw, "the answer repeats ")
			_, err := c.Send(t.Context(), bmc.CommandOff)
			assert.Equal(t, bmc.SentNo, bmctest.Failed(t, err, bmc.KindProtocol).Sent)
			assert.Zero(t, sim.Count(http.MethodPost, "/redfish/v1/Systems"))
			_, err = c.Describe(t.Context())
			bmctest.Failed(t, err, bmc.KindProtocol)

			sim.Quirks(func(q *redfishsim.Quirks) { q.Repeat = "" })
			assert.Equal(t, uuid1, bmctest.Read(t, c).Identity.UUID)
		})
	}
}

// iLO 4 has the links of two schemas in each resource.
func TestLinksInTwoSpellings(t *testing.T) {
	sim, c := one(t)
	sim.Quirks(func(q *redfishsim.Quirks) { q.Repeat = `"links":{"self":{"href":"/rest/v1/systems/1"}},"Power":"On"` })
	assert.Equal(t, bmc.On, bmctest.Read(t, c).State)
}

// Of several systems, one that repeats its UUID may be the wanted one.
func TestRepeatedNameAmongSystems(t *testing.T) {
	sim, d := three(t)
	d.SystemUUID = uuid2
	sim.System(2).Quirks(func(q *redfishsim.Quirks) { q.Repeat = `"UUID":"` + uuid2 + `"` })
	_, err := open(t, d, timing).Read(t.Context())
	bmctest.Failed(t, err, bmc.KindProtocol)

	sim.System(2).Quirks(func(q *redfishsim.Quirks) { q.Repeat = "" })
	c := open(t, d, timing)
	require.Equal(t, uuid2, bmctest.Read(t, c).Identity.UUID)
	sim.System(1).Quirks(func(q *redfishsim.Quirks) { q.Repeat = `"PowerState":"Off"` })
	assert.Equal(t, bmc.Unknown, bmctest.Read(t, c).State, "also for a system that was found by its UUID")
}

// A list of reset types that is there twice allows nothing.
func TestRepeatedNameInActionInfo(t *testing.T) {
	info := ""
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/info":
			_, _ = w.Write([]byte(info))
		default:
			_, _ = w.Write([]byte(`{"PowerState":"On","Actions":{"#ComputerSystem.Reset":{"target":"/Actions/x","@Redfish.ActionInfo":"/info"}}}`))
		}
	}))
	t.Cleanup(srv.Close)
	send := func(more string) error {
		info = `{"Parameters":[{"Name":"ResetType","AllowableValues":["ForceOff"]}]` + more + `}`
		c := open(t, plainHost(t, srv), timing)
		_, err := c.Send(t.Context(), bmc.CommandOff)
		return err
	}
	require.NoError(t, send(""))
	bmctest.Failed(t, send(`,"parameters":[{"Name":"ResetType","AllowableValues":["GracefulShutdown"]}]`), bmc.KindProtocol)
}

// Two values are no answer, whichever comes first.
func TestAnswerIsOneValue(t *testing.T) {
	for _, body := range []string{`{"PowerState":"On"}{"PowerState":"Off"}`, `{"PowerState":"Off"}{"PowerState":"On"}`, `{"PowerState":"Off"} x`} {
		_, err := open(t, answerWith(t, body), timing).Read(t.Context())
		bmctest.Failed(t, err, bmc.KindProtocol)
	}
	assert.Equal(t, bmc.Off, bmctest.Read(t, open(t, answerWith(t, "{\"PowerState\":\"Off\"}\r\n\x00"), timing)).State, "the end of a C string")
}

// A service may list its only system twice.
func TestMemberThatIsListedTwice(t *testing.T) {
	sim := start(t, redfishsim.Options{UUID: uuid1})
	sim.Faults(func(f *redfishsim.Faults) { f.MembersTwice = true })
	d := hostOf(t, sim)
	d.Endpoint.System = ""
	offAndOn(t, sim, d)

	sim, d = three(t)
	sim.Faults(func(f *redfishsim.Faults) { f.MembersTwice = true })
	_, err := open(t, d, timing).Read(t.Context())
	bmctest.Failed(t, err, bmc.KindIdentity)
	assert.Contains(t, err.Error(), "has 3 systems")
	d.SystemUUID = uuid2
	assert.Equal(t, uuid2, bmctest.Read(t, open(t, d, timing)).Identity.UUID, "found by its UUID, once")
}
