package redfish_test

import (
	"context"
	"fmt"
	"net/http"
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
	assert.Equal(t, "always-on", d.RestorePolicy)
	assert.WithinDuration(t, time.Now().Add(10*time.Minute), d.Clock, time.Minute)
	assert.WithinDuration(t, time.Now(), d.ClockAt, time.Minute)
	assert.True(t, until.Equal(d.CertificateUntil), "%v", d.CertificateUntil)
	assert.Equal(t, 8, c.Requests(), "login, system, manager, collection, four interfaces")
	assert.Zero(t, sim.Count(http.MethodPost, sim.System(0).URI()), "it reads only")
	assert.Equal(t, 1, sim.OpenSessions(), "one session for all")
}

// describe asks the BMC of d for its description.
func describe(t *testing.T, d bmc.Device) bmc.Description {
	t.Helper()
	got := must.Do(open(t, d, timing).Describe(t.Context()))(t)
	return got
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
