package redfish_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/bmc/bmctest"
	"github.com/fenced/fenced/test/redfishsim"
)

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
	for name, quirk := range strangers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sim, d := hgx(t)
			sim.System(0).Quirks(quirk)
			short := timing
			short.ReadTimeout = 20 * time.Second // half of it for the one that does not answer
			c := open(t, d, short)
			assert.Equal(t, uuid2, bmctest.Read(t, c).Identity.UUID)
			_, err := c.Send(t.Context(), bmc.CommandOff)
			require.NoError(t, err)
			assert.False(t, sim.System(1).Power())
			assert.True(t, sim.System(0).Power())
		})
	}
}

// TestUnreadableSiblingIsNamed: if no other system has the UUID, nobody knows whose the
// UUID is, and the error names the one that cannot be read.
func TestUnreadableSiblingIsNamed(t *testing.T) {
	for name, quirk := range strangers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sim, d := hgx(t)
			d.SystemUUID = uuid3
			sim.System(0).Quirks(quirk)
			short := timing
			short.ReadTimeout = 10 * time.Second
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
	const only = "/redfish/v1/Systems/system"
	link := map[string]any{"@odata.id": only}
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
