package bmclib

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/bmc/bmctest"
	"github.com/fenced/fenced/test/redfishsim"
)

// What the suite of all drivers does not ask.
func TestGofishTellsTheSerialNumber(t *testing.T) {
	_, d := redfishBMC(t, redfishsim.Options{UUID: uuid})
	assert.Equal(t, bmc.Identity{UUID: uuid, Serial: "SN-1"}, bmctest.Read(t, open(t, d)).Identity, "told along with the state")
}

func TestOnlyExactWords(t *testing.T) {
	sim, d := redfishBMC(t, redfishsim.Options{UUID: uuid})
	c := open(t, d)
	for _, text := range []string{`"PoweringOff"`, `null`, `""`, `"off"`, `"OFF"`, `"Offline"`, `"Paused"`} {
		sim.Quirks(func(q *redfishsim.Quirks) { q.SayPower = text })
		r, err := c.Read(t.Context())
		if err == nil {
			assert.Equal(t, bmc.Unknown, r.State, text)
		}
	}
}

// The library takes the last of two values, under any spelling of the name. // I1
func TestRepeatedNameIsNotRead(t *testing.T) {
	sim, d := redfishBMC(t, redfishsim.Options{UUID: uuid})
	c := open(t, d)
	for _, more := range []string{`"PowerState":"Off"`, `"powerstate":"Off"`, `"Oem":{"a":1,"a":2}`} {
		sim.Quirks(func(q *redfishsim.Quirks) { q.Repeat = more })
		_, err := c.Read(t.Context())
		bmctest.Failed(t, err, bmc.KindProtocol)
		_, err = c.Send(t.Context(), bmc.CommandOff)
		bmctest.Failed(t, err, bmc.KindProtocol)
		assert.True(t, sim.Power())
	}
	sim.Quirks(func(q *redfishsim.Quirks) { q.Repeat = "" })
	assert.Equal(t, bmc.On, bmctest.Read(t, c).State)
}

// gofish makes one session per client; a failure or a forgotten session begins
// another, and its readings support no older proof.
func TestForgottenSessionIsNotARefusedAccount(t *testing.T) {
	sim, d := redfishBMC(t, redfishsim.Options{UUID: uuid})
	c := open(t, d)
	first := bmctest.Read(t, c)
	sim.ExpireSessions()
	second := bmctest.Read(t, c)
	assert.NotEqual(t, first.Session, second.Session)

	sim.SetPassword("changed")
	sim.ExpireSessions()
	_, err := c.Read(t.Context())
	bmctest.Failed(t, err, bmc.KindAuth)
}

func TestWrongPassword(t *testing.T) {
	sim, d := redfishBMC(t, redfishsim.Options{})
	sim.Faults(func(f *redfishsim.Faults) { f.EchoCredentials = true })
	d.Password = bmc.NewSecret("wrong-secret")
	_, err := open(t, d).Read(t.Context())
	bmctest.Failed(t, err, bmc.KindAuth)
}

func TestCertificateIsVerified(t *testing.T) {
	_, d := redfishBMC(t, redfishsim.Options{})
	d.TLS.CA = ""
	_, err := open(t, d).Read(t.Context())
	bmctest.Failed(t, err, bmc.KindTLS)

	d.TLS.InsecureSkipVerify = true
	c := open(t, d)
	assert.Equal(t, bmc.On, bmctest.Read(t, c).State, "the entry says so")
	findings, err := c.Audit(t.Context())
	require.NoError(t, err)
	require.Len(t, findings, 1)
	assert.Equal(t, bmc.FindingCertificateTrust, findings[0].Code)
}

// The service has one system, and not the one of the address: a blade was pulled.
func TestAnotherSystemIsRefused(t *testing.T) {
	sim, d := redfishBMC(t, redfishsim.Options{Systems: []redfishsim.SystemOptions{{ID: "2"}}})
	d.Endpoint.System = "/redfish/v1/Systems/1"
	c := open(t, d)
	_, err := c.Read(t.Context())
	bmctest.Failed(t, err, bmc.KindIdentity)
	_, err = c.Send(t.Context(), bmc.CommandOff)
	assert.Equal(t, bmc.SentNo, bmctest.Failed(t, err, bmc.KindIdentity).Sent)
	assert.True(t, sim.Power())
}

func TestSeveralSystemsAreRefused(t *testing.T) {
	sim, d := redfishBMC(t, redfishsim.Options{Systems: []redfishsim.SystemOptions{{}, {}, {}}})
	for _, system := range []string{"", "/redfish/v1/Systems/1"} {
		d.Endpoint.System = system
		_, err := open(t, d).Send(t.Context(), bmc.CommandOff)
		assert.Equal(t, bmc.SentNo, bmctest.Failed(t, err, bmc.KindIdentity).Sent)
	}
	for i := range 3 {
		assert.True(t, sim.System(i).Power())
	}
}

func TestAnotherUUIDIsRefused(t *testing.T) {
	sim, d := redfishBMC(t, redfishsim.Options{UUID: uuid})
	d.SystemUUID = "4c4c4544-0042-4810-8056-b4c04f4d9999"
	_, err := open(t, d).Send(t.Context(), bmc.CommandOff)
	assert.Equal(t, bmc.SentNo, bmctest.Failed(t, err, bmc.KindIdentity).Sent)
	assert.True(t, sim.Power())
}

func TestWhatBecameOfTheCommand(t *testing.T) {
	for name, c := range map[string]struct {
		quirk func(*redfishsim.Quirks)
		kind  bmc.Kind
		sent  bmc.Sent
	}{
		"refused":       {func(q *redfishsim.Quirks) { q.RefuseReset = http.StatusForbidden }, bmc.KindPrivilege, bmc.SentYes},
		"broken inside": {func(q *redfishsim.Quirks) { q.RefuseReset = http.StatusInternalServerError }, bmc.KindProtocol, bmc.SentMaybe},
		"cut off":       {func(q *redfishsim.Quirks) { q.DropReset = true }, bmc.KindUnreachable, bmc.SentMaybe},
		"no ForceOff":   {func(q *redfishsim.Quirks) { q.ResetTypes = []string{"On", "GracefulShutdown"} }, bmc.KindUnsupported, bmc.SentNo},
	} {
		t.Run(name, func(t *testing.T) {
			sim, d := redfishBMC(t, redfishsim.Options{})
			sim.Quirks(c.quirk)
			_, err := open(t, d).Send(t.Context(), bmc.CommandOff)
			assert.Equal(t, c.sent, bmctest.Failed(t, err, c.kind).Sent)
		})
	}
}

func TestHostileAnswers(t *testing.T) {
	for name, fault := range map[string]func(*redfishsim.Faults){
		"huge":      func(f *redfishsim.Faults) { f.HugeBody = 8 << 20 },
		"redirect":  func(f *redfishsim.Faults) { f.RedirectTo = "http://127.0.0.1:1" },
		"elsewhere": func(f *redfishsim.Faults) { f.Member = "@127.0.0.2/redfish/v1/Systems/1" },
	} {
		t.Run(name, func(t *testing.T) {
			sim, d := redfishBMC(t, redfishsim.Options{})
			sim.Faults(fault)
			d.Endpoint.System = ""
			_, err := open(t, d).Read(t.Context())
			bmctest.Failed(t, err, bmc.KindProtocol)
		})
	}
}

func TestForeign(t *testing.T) {
	g := &guard{endpoint: bmc.Endpoint{Host: "bmc.example", Port: 443, System: "/redfish/v1/Systems/1"}}
	for address, ok := range map[string]bool{
		"https://bmc.example/redfish/v1/Systems":             true,
		"https://bmc.example/redfish/v1/Systems/":            true,
		"https://BMC.example:443/redfish/v1/Systems/1":       true,
		"https://bmc.example/redfish/v1/Systems/1/Actions/x": true,
		"https://bmc.example/redfish/v1/Systems/10":          false,
		"https://bmc.example/redfish/v1/Systems/1/../2":      false,
		"https://bmc.example/redfish/v1/Systems//2":          false,
		"http://bmc.example/redfish/v1":                      false,
		"https://bmc.example:8443/redfish/v1":                false,
		"https://a@bmc.example/redfish/v1":                   false,
		"https://other.example/redfish/v1":                   false,
	} {
		u, err := url.Parse(address)
		require.NoError(t, err)
		assert.Equal(t, ok, g.checkURL(u) == nil, address)
	}
}
