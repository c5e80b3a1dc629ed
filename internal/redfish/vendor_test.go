package redfish_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/bmc/bmctest"
	"github.com/fenced/fenced/test/must"
	"github.com/fenced/fenced/test/redfishsim"
)

// vendor is what one maker's documentation shows of its service: the resources
// are in testdata/vendor, how it answers is here. The shapes are the makers',
// serial numbers and addresses are made up.
type vendor struct {
	name string
	// slashes redirects a path without its slash at the end.
	slashes bool
	// accepts and refuses are the status of a reset that changes the state, and of
	// one that would not; refuses 0 accepts that too.
	accepts, refuses int
	// changing are what PowerState says in between.
	changing []string

	identity bmc.Identity
	class    string
	restore  string
	macs     []string
}

var vendors = []vendor{
	{
		name: "idrac9", accepts: http.StatusNoContent, refuses: http.StatusConflict, changing: []string{"PoweringOff"},
		identity: bmc.Identity{UUID: "4c4c4544-0054-5310-8054-b4c04f313233", Serial: "TSTAG01"},
		class:    "dell inc. 15g monolithic 7.10.30.00", restore: "previous",
		macs: []string{"b0:7b:25:1a:2b:01", "b0:7b:25:1a:2b:02"},
	},
	{
		name: "idrac10", accepts: http.StatusNoContent, refuses: http.StatusConflict, changing: []string{"PoweringOff"},
		identity: bmc.Identity{UUID: "4c4c4544-0054-5310-8054-b4c04f363738", Serial: "TSTAG10"},
		class:    "dell inc. 17g monolithic 1.20.25.00", restore: "previous",
		macs: []string{"d0:8e:79:3c:4d:01", "d0:8e:79:3c:4d:02"},
	},
	{
		name: "ilo5", slashes: true, accepts: http.StatusOK, refuses: http.StatusBadRequest, changing: []string{"Reset", "Unknown"},
		identity: bmc.Identity{UUID: "35384350-3834-5453-5430-303030303130", Serial: "TST0000010"},
		class:    "hpe ilo 5 ilo 5 v3.09",
		macs:     []string{"94:40:c9:5e:6f:a0", "94:40:c9:5e:6f:a1"},
	},
	{
		name: "ilo6", slashes: true, accepts: http.StatusOK, refuses: http.StatusBadRequest, changing: []string{"PoweringOff"},
		identity: bmc.Identity{UUID: "35384350-3834-5453-5430-303030303131", Serial: "TST0000011"},
		class:    "hpe ilo 6 ilo 6 v1.66", restore: "always-on",
		macs: []string{"5c:ed:8c:7a:8b:a0", "5c:ed:8c:7a:8b:a1"},
	},
	{
		name: "xcc", accepts: http.StatusNoContent, changing: []string{"PoweringOff", "null"},
		identity: bmc.Identity{UUID: "AB12CD34-0000-11EC-8000-0A94EF000001", Serial: "J30TEST1"},
		class:    "lenovo lenovo xclarity controller tgbt56a 5.10 2024-01-10", restore: "always-off",
		macs: []string{"38:68:dd:9e:af:01", "38:68:dd:9e:af:02"}, // not the one over USB
	},
	{
		name: "supermicro", accepts: http.StatusOK, changing: []string{"PoweringOff"},
		identity: bmc.Identity{UUID: "00000000-0000-0000-0000-AC1F6B000001"}, // the serial number is blank
		class:    "supermicro aspeed 01.04.08", restore: "previous",
		macs: []string{"ac:1f:6b:00:00:01"},
	},
	{
		name: "openbmc", accepts: http.StatusOK, changing: []string{"PoweringOff"},
		identity: bmc.Identity{UUID: "7d2f9c3a-5b6e-4f10-9a8b-1c2d3e4f5a6b", Serial: "TB0042X7"},
		class:    "test boards openbmc 2.16.0-dev-114-g0a1b2c3d", restore: "always-off",
	},
}

func TestVendorsPower(t *testing.T) {
	for _, v := range vendors {
		t.Run(v.name, func(t *testing.T) {
			sim, d := serveVendor(t, v)
			say := func(state string) { sim.Quirks(func(q *redfishsim.Quirks) { q.SayPower = state }) }
			c := open(t, d, timing)
			r := bmctest.Read(t, c)
			assert.Equal(t, bmc.On, r.State)
			assert.Equal(t, v.identity, r.Identity)
			say(`"Off"`)
			assert.Equal(t, bmc.Off, bmctest.Read(t, c).State)
			for _, word := range v.changing {
				said := `"` + word + `"`
				if word == "null" {
					said = word
				}
				say(said)
				r = bmctest.Read(t, c)
				assert.Equal(t, bmc.Unknown, r.State)
				assert.Equal(t, word, r.Raw)
			}
			say("")

			receipt := bmctest.Send(t, c, bmc.CommandOff)
			assert.False(t, receipt.Already)
			assert.Equal(t, bmc.Off, bmctest.Read(t, c).State)
			receipt, err := c.Send(t.Context(), bmc.CommandOff)
			require.NoError(t, err, "already off is no failure")
			assert.Equal(t, v.refuses != 0, receipt.Already)
			bmctest.Send(t, c, bmc.CommandOn)
			assert.Equal(t, bmc.On, bmctest.Read(t, c).State)
		})
	}
}

func TestVendorsDescription(t *testing.T) {
	for _, v := range vendors {
		t.Run(v.name, func(t *testing.T) {
			_, device := serveVendor(t, v)
			d := must.Do(open(t, device, timing).Describe(t.Context()))(t)
			assert.Equal(t, v.class, d.Class())
			assert.Equal(t, v.identity.Serial, d.Serial)
			assert.Equal(t, v.macs, d.MACs)
			assert.Equal(t, v.restore, d.RestorePolicy)
			assert.True(t, d.Clock.Equal(time.Date(2026, 3, 2, 14, 15, 30, 0, time.UTC)), "%v", d.Clock)
			assert.WithinDuration(t, time.Now(), d.ClockAt, time.Minute)
			assert.True(t, d.CertificateUntil.After(time.Now()))
		})
	}
}

// A redirect on each read would double the requests of a proof.
func TestSlashAtTheEndIsLearned(t *testing.T) {
	for _, v := range vendors {
		if !v.slashes {
			continue
		}
		_, d := serveVendor(t, v)
		d.Endpoint.System = "/redfish/v1/Systems/1"
		c := open(t, d, timing)
		bmctest.Read(t, c)
		before := c.Requests()
		bmctest.Read(t, c)
		assert.Equal(t, 1, c.Requests()-before)
	}
}

// serveVendor is a service with one maker's resources, which edits change, and the entry of its host
// without the path of the system.
func serveVendor(t *testing.T, v vendor, edits ...func(resources map[string]map[string]any)) (*redfishsim.Server, bmc.Device) {
	t.Helper()
	resources, files := map[string]map[string]any{}, map[string][]byte{}
	paths := must.Do(filepath.Glob(filepath.Join("testdata", "vendor", v.name, "*.json")))(t)
	require.NotEmpty(t, paths)
	system := ""
	for _, p := range paths {
		b := must.Do(os.ReadFile(p))(t)
		files[filepath.Base(p)] = b
		var o map[string]any
		require.NoError(t, json.Unmarshal(b, &o), p)
		if id, ok := o["@odata.id"].(string); ok {
			resources[strings.TrimSuffix(id, "/")] = o
		}
		if filepath.Base(p) == "system.json" {
			system = strings.TrimSuffix(o["@odata.id"].(string), "/")
		}
	}
	types := allowed(t, resources, system)
	for _, edit := range edits {
		edit(resources)
	}
	sim := start(t, redfishsim.Options{Resources: resources, Systems: []redfishsim.SystemOptions{{ID: path.Base(system)}}})
	sim.Faults(func(f *redfishsim.Faults) { f.Slashes = v.slashes })
	sim.Quirks(func(q *redfishsim.Quirks) {
		q.ResetTypes, q.RefuseSame, q.RefuseBody = types, v.refuses, files["refusal.json"]
		q.AcceptAs, q.AcceptBody = v.accepts, files["accepted.json"]
	})
	d := hostOf(t, sim)
	d.Endpoint.System = ""
	return sim, d
}

// allowed are the reset types that the system offers, wherever it lists them.
func allowed(t *testing.T, resources map[string]map[string]any, system string) (types []string) {
	t.Helper()
	reset := resources[system]["Actions"].(map[string]any)["#ComputerSystem.Reset"].(map[string]any)
	listed, ok := reset["ResetType@Redfish.AllowableValues"].([]any)
	if !ok {
		info := resources[reset["@Redfish.ActionInfo"].(string)]
		require.NotNil(t, info, "the ActionInfo is among the data")
		listed = info["Parameters"].([]any)[0].(map[string]any)["AllowableValues"].([]any)
	}
	for _, each := range listed {
		types = append(types, each.(string))
	}
	return types
}

// edited is a maker's service with its resources changed.
func edited(t *testing.T, change func(resources map[string]map[string]any)) bmc.Device {
	t.Helper()
	_, d := serveVendor(t, vendors[len(vendors)-1], change) // OpenBMC
	return d
}
