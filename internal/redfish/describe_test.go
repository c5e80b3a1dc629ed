package redfish_test

import (
	"context"
	"encoding/json"
	"fmt"
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
	"github.com/fenced/fenced/test/pace"
	"github.com/fenced/fenced/test/redfishsim"
)

func TestDescribe(t *testing.T) {
	until := time.Now().Add(90 * 24 * time.Hour).Truncate(time.Second)
	sim := start(t, redfishsim.Options{
		Model: "SimBMC 3", Firmware: "3.1.4", CertificateUntil: until,
		Systems: []redfishsim.SystemOptions{{UUID: uuid1, Serial: "AB12CD", RestorePolicy: "AlwaysOn",
			MACs: []string{"AC:DE:48:00:00:02", "ac-de-48-00-00-01", "02:00:00:00:00:09", "AC:DE:48:00:00:02"}}},
	})
	sim.Faults(func(f *redfishsim.Faults) { f.ClockSkew = 10 * time.Minute })
	c := open(t, hostOf(t, sim), timing)
	d := must.Do(c.Describe(t.Context()))(t)
	assert.Equal(t, "simulated simbmc 3 3.1.4", d.Class())
	assert.Equal(t, "AB12CD", d.Serial)
	assert.Equal(t, []string{"ac:de:48:00:00:01", "ac:de:48:00:00:02"}, d.MACs, "those that identify a machine, once each")
	assert.False(t, d.SomeMACs, "every interface was read")
	assert.Equal(t, "always-on", d.RestorePolicy)
	assert.WithinDuration(t, time.Now().Add(10*time.Minute), d.Clock, time.Minute)
	assert.WithinDuration(t, time.Now(), d.ClockAt, time.Minute)
	assert.True(t, until.Equal(d.CertificateUntil), "%v", d.CertificateUntil)
	assert.Equal(t, 8, c.Requests(), "login, system, manager, collection, four interfaces")
	assert.Zero(t, sim.Count(http.MethodPost, sim.System(0).URI()), "it reads only")
	assert.Equal(t, 1, sim.OpenSessions(), "one session for all")
}

func describe(t *testing.T, d bmc.Device) bmc.Description {
	t.Helper()
	return must.Do(open(t, d, timing).Describe(t.Context()))(t)
}

func TestDescribeIsBounded(t *testing.T) {
	var macs []string
	for i := range 60 {
		macs = append(macs, fmt.Sprintf("AC:DE:48:00:01:%02x", i))
	}
	sim := start(t, redfishsim.Options{Systems: []redfishsim.SystemOptions{{MACs: macs}}})
	c := open(t, hostOf(t, sim), timing)
	d := must.Do(c.Describe(t.Context()))(t)
	assert.Len(t, d.MACs, 16)
	assert.True(t, d.SomeMACs, "it has more")
	assert.LessOrEqual(t, c.Requests(), 24)
}

func TestDescribeWithoutAManager(t *testing.T) {
	sim, c := one(t)
	sim.Faults(func(f *redfishsim.Faults) { f.NoManager = true })
	d := must.Do(c.Describe(t.Context()))(t)
	assert.Empty(t, d.Class(), "a class that is not known freezes nobody")
	assert.Equal(t, "SN-1", d.Serial)
	assert.Len(t, d.MACs, 1)
	assert.Zero(t, d.Clock)
	assert.Zero(t, d.ClockAt)
}

// A patient user is interrupted by an urgent one: what it saw so far is not all.
func TestDescribeInterrupted(t *testing.T) {
	t.Parallel()
	sim, c := one(t)
	sim.Faults(func(f *redfishsim.Faults) { f.Latency = 60 * time.Millisecond })
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	d, err := c.Describe(ctx)
	bmctest.Failed(t, err, bmc.KindUnreachable)
	assert.Equal(t, bmc.Description{}, d)
}

func TestDescribeIgnoresWhatIsNotAsTheSchemaSays(t *testing.T) {
	for _, wrong := range []any{nil, 7, "x", []any{}, []any{7}, map[string]any{}, map[string]any{"@odata.id": 7},
		[]any{map[string]any{"@odata.id": "@elsewhere/"}}} {
		t.Run(fmt.Sprint(wrong), func(t *testing.T) {
			got := describe(t, edited(t, func(r map[string]map[string]any) {
				for _, name := range []string{"Manufacturer", "PowerRestorePolicy", "EthernetInterfaces", "Links"} {
					r["/redfish/v1/Systems/system"][name] = wrong
				}
				for _, name := range []string{"Model", "FirmwareVersion", "DateTime", "ManagerType"} {
					r["/redfish/v1/Managers/bmc"][name] = wrong
				}
			}))
			assert.Equal(t, "TB0042X7", got.Serial)
			assert.Empty(t, got.RestorePolicy)
			assert.Empty(t, got.MACs)
		})
	}
}

// An interface that cannot be read may be the one that shows another machine. // I8
func TestInterfacesReadInPart(t *testing.T) {
	const list = "/redfish/v1/Systems/System.Embedded.1/EthernetInterfaces"
	for name, c := range map[string]struct {
		spoil func(resources map[string]map[string]any)
		some  bool
	}{
		"all of them":       {func(map[string]map[string]any) {}, false},
		"one is not there":  {func(r map[string]map[string]any) { delete(r, list+"/NIC.Embedded.1-1-1") }, true},
		"no list":           {func(r map[string]map[string]any) { delete(r, list) }, true},
		"an entry no link":  {func(r map[string]map[string]any) { r[list]["Members"] = []any{7} }, true},
		"more than it told": {func(r map[string]map[string]any) { r[list]["Members@odata.count"] = 3 }, true},
	} {
		t.Run(name, func(t *testing.T) {
			_, device := serveVendor(t, vendors[0], c.spoil) // iDRAC 9
			assert.Equal(t, c.some, describe(t, device).SomeMACs)
		})
	}
}

func TestWhichManager(t *testing.T) {
	const bmcURI, enclosure = "/redfish/v1/Managers/bmc", "/redfish/v1/Managers/enclosure"
	links := func(uris ...string) map[string]any {
		all := []any{}
		for _, u := range uris {
			all = append(all, map[string]any{"@odata.id": u})
		}
		return map[string]any{"ManagedBy": all, "Members": all}
	}
	for name, tc := range map[string]struct {
		managedBy, managers []string
		model               string
	}{
		"the one that is linked":         {[]string{bmcURI}, nil, "OpenBmc"},
		"the BMC, not the enclosure":     {[]string{enclosure, bmcURI}, nil, "OpenBmc"},
		"the only one of the service":    {nil, []string{bmcURI}, "OpenBmc"},
		"none of two that are not told":  {nil, []string{bmcURI, enclosure}, ""},
		"none that cannot be read":       {[]string{"/redfish/v1/Managers/gone"}, nil, ""},
		"the linked one, whatever it is": {[]string{enclosure}, nil, "Chassis Manager"},
	} {
		t.Run(name, func(t *testing.T) {
			got := describe(t, edited(t, func(r map[string]map[string]any) {
				r[enclosure] = map[string]any{"ManagerType": "EnclosureManager", "Model": "Chassis Manager"}
				r["/redfish/v1/Systems/system"]["Links"] = links(tc.managedBy...)
				r["/redfish/v1/Managers"] = links(tc.managers...)
			}))
			assert.Equal(t, tc.model, got.Model)
		})
	}
}

func TestClockOfTheWebServer(t *testing.T) {
	got := describe(t, edited(t, func(r map[string]map[string]any) { delete(r["/redfish/v1/Managers/bmc"], "DateTime") }))
	assert.WithinDuration(t, time.Now(), got.Clock, time.Minute)
}

// iLO 4 names itself in its firmware only.
func TestBMCWithoutAModelIsOfItsSystem(t *testing.T) {
	got := describe(t, edited(t, func(r map[string]map[string]any) {
		delete(r["/redfish/v1/Managers/bmc"], "Model")
		r["/redfish/v1/Managers/bmc"]["FirmwareVersion"] = "iLO 4 v2.55"
	}))
	assert.Equal(t, "test boards tb-2s ilo 4 v2.55", got.Class())
}

func TestAudit(t *testing.T) {
	const day = 24 * time.Hour
	expired, trust := bmc.FindingCertificateExpired, bmc.FindingCertificateTrust
	for name, tc := range map[string]struct {
		left time.Duration
		tls  func(*redfishsim.Server) bmc.TLS
		want []bmc.FindingCode
	}{
		"good":                  {90 * day, func(s *redfishsim.Server) bmc.TLS { return bmc.TLS{CA: s.CAFile()} }, nil},
		"ends soon":             {29 * day, func(s *redfishsim.Server) bmc.TLS { return bmc.TLS{CA: s.CAFile()} }, []bmc.FindingCode{expired}},
		"expired, so refused":   {-day, func(s *redfishsim.Server) bmc.TLS { return bmc.TLS{CA: s.CAFile()} }, []bmc.FindingCode{expired}},
		"expired and pinned":    {-day, func(s *redfishsim.Server) bmc.TLS { return bmc.TLS{PinSHA256: s.SPKI()} }, []bmc.FindingCode{expired}},
		"pinned":                {90 * day, func(s *redfishsim.Server) bmc.TLS { return bmc.TLS{PinSHA256: s.SPKI()} }, nil},
		"not verified":          {90 * day, func(*redfishsim.Server) bmc.TLS { return bmc.TLS{InsecureSkipVerify: true} }, []bmc.FindingCode{trust}},
		"not verified, expired": {-day, func(*redfishsim.Server) bmc.TLS { return bmc.TLS{InsecureSkipVerify: true} }, []bmc.FindingCode{trust, expired}},
		"not verified, pinned": {90 * day, func(s *redfishsim.Server) bmc.TLS {
			return bmc.TLS{InsecureSkipVerify: true, PinSHA256: s.SPKI()}
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			sim := start(t, redfishsim.Options{CertificateUntil: time.Now().Add(tc.left)})
			d := hostOf(t, sim)
			d.TLS = tc.tls(sim)
			findings := must.Do(open(t, d, timing).Audit(t.Context()))(t)
			var codes []bmc.FindingCode
			for _, f := range findings {
				codes = append(codes, f.Code)
				assert.NotEmpty(t, f.Message)
			}
			assert.Equal(t, tc.want, codes)
			for _, r := range sim.Requests() {
				assert.Equal(t, "none", r.Auth, "no password is shown for this")
			}
			assert.LessOrEqual(t, len(sim.Requests()), 1)
		})
	}
}

func TestAuditOfPlainHTTPAsksNothing(t *testing.T) {
	sim := start(t, redfishsim.Options{})
	d := hostOf(t, sim)
	d.Endpoint.Plain = true
	findings := must.Do(open(t, d, timing).Audit(t.Context()))(t)
	require.Len(t, findings, 1)
	assert.Equal(t, bmc.FindingCertificateTrust, findings[0].Code)
	assert.Zero(t, sim.Connections())
}

func TestAuditOfAStrangerOrNobodyFails(t *testing.T) {
	sim := start(t, redfishsim.Options{})
	d := hostOf(t, sim)
	d.TLS = bmc.TLS{}
	_, err := open(t, d, timing).Audit(t.Context())
	bmctest.Failed(t, err, bmc.KindTLS)

	d.Endpoint.Host, d.Endpoint.Port = closedPort(t)
	_, err = open(t, d, timing).Audit(t.Context())
	bmctest.Failed(t, err, bmc.KindRefused)
}

// A BMC that is busy has shown its certificate all the same.
func TestAuditOfABusyBMC(t *testing.T) {
	t.Parallel()
	sim := start(t, redfishsim.Options{CertificateUntil: time.Now().Add(time.Hour)})
	sim.Faults(func(f *redfishsim.Faults) { f.Busy, f.RetryAfter = 1000, "3600" })
	tm := timing
	tm.ReadTimeout = 10 * time.Second // for so long it is asked again
	var findings []bmc.Finding
	pace.Until(t, "an audit in time", func() (ok bool) {
		var err error
		findings, err = open(t, hostOf(t, sim), tm).Audit(t.Context())
		if err != nil {
			t.Log(err)
		}
		return err == nil
	})
	assert.Len(t, findings, 1)
}

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
