package bmclib

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/bmc/bmctest"
	"github.com/fenced/fenced/test/ipmisim"
	"github.com/fenced/fenced/test/must"
	"github.com/fenced/fenced/test/pace"
	"github.com/fenced/fenced/test/redfishsim"
)

const uuid = "4c4c4544-0042-4810-8056-b4c04f4d3132"

// timing is generous: a test that waits for it in vain is wrong, not slow.
var timing = bmc.Timing{ReadTimeout: time.Minute, SendTimeout: time.Minute}

// A busy machine delays any of these by many seconds. Close has less, because the suite of all
// drivers bounds it.
func init() {
	dialTimeout, tlsTimeout, headerTimeout, closeTimeout = time.Minute, time.Minute, time.Minute, 20*time.Second
	bodyTimeout = 5 * time.Second // some tests wait for one that never comes
}

// ipmiBMC is a simulated BMC, and the device to reach it by ipmitool.
func ipmiBMC(t *testing.T, o ipmisim.Options) (*ipmisim.GoBMC, bmc.Device) {
	t.Helper()
	if _, err := exec.LookPath("ipmitool"); err != nil {
		bmctest.Missing(t, "ipmitool is not installed: "+err.Error())
	}
	sim := must.Do(ipmisim.StartGo(t.Context(), o))(t)
	t.Cleanup(sim.Stop)
	return sim, ipmiDevice(t, sim.Addr())
}

func ipmiDevice(t *testing.T, addr string) bmc.Device {
	t.Helper()
	e := must.Do(bmc.ParseEndpoint("ipmi://" + addr + "?privilegelevel=ADMINISTRATOR"))(t)
	return bmc.Device{Driver: bmc.DriverBMCLib, Endpoint: e, Username: "admin", Password: bmc.NewSecret("secret")}
}

// redfishBMC is a simulated service, and the device to reach it by gofish.
func redfishBMC(t *testing.T, o redfishsim.Options) (*redfishsim.Server, bmc.Device) {
	t.Helper()
	sim := must.Do(redfishsim.Start(o))(t)
	t.Cleanup(sim.Stop)
	e := must.Do(bmc.ParseEndpoint(sim.BMCAddress()))(t)
	return sim, bmc.Device{
		Driver: bmc.DriverBMCLib, Endpoint: e, Username: "admin", Password: bmc.NewSecret("secret"),
		TLS: bmc.TLS{CA: sim.CAFile()},
	}
}

// open gives a client of d that is closed when the test ends.
func open(t *testing.T, d bmc.Device, dirs ...string) *Client {
	t.Helper()
	if dirs == nil {
		dirs = systemDirs
	}
	c := must.Do(newClient(d, timing, dirs))(t)
	t.Cleanup(func() { assert.NoError(t, c.Close(t.Context())) })
	return c
}

// script writes an executable that stands in for ipmitool, and gives its directory.
func script(t *testing.T, body string) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "ipmitool"), []byte("#!/bin/sh\n"+body+"\n"), 0o755))
	return dir
}

func opens(d bmc.Device) (bmc.Power, error) { return New(d, timing) }

// backOn switches the host on again d after it went off.
func backOn(t *testing.T, on func() bool, set func(bool) error) func(time.Duration) error {
	return func(d time.Duration) error {
		go func() {
			for t.Context().Err() == nil && on() {
				time.Sleep(5 * time.Millisecond)
			}
			time.Sleep(d)
			_ = set(true) // a simulator that ended has no host
		}()
		return nil
	}
}

func TestConformanceGofish(t *testing.T) {
	t.Parallel()
	bmctest.Run(t, bmctest.Driver{
		New: func(t *testing.T) *bmctest.World {
			sim, d := redfishBMC(t, redfishsim.Options{UUID: uuid})
			w := bmctest.OverRedfish(sim, uuid, d, opens)
			w.BackOn = backOn(t, sim.Power, sim.SetPower)
			return w
		},
		Cannot: map[string]string{"Bad": "TCP mends what a network loses"},
	})
}

func TestConformanceIpmitool(t *testing.T) {
	t.Parallel()
	bmctest.Run(t, bmctest.Driver{
		New: func(t *testing.T) *bmctest.World {
			sim, d := ipmiBMC(t, ipmisim.Options{Suites: []int{17}})
			return &bmctest.World{
				Open: opens, Device: d, On: sim.Power, SetPower: sim.SetPower, IgnoreOff: sim.IgnoreOff,
				LateOff: sim.LateOff, BackOn: sim.BackOn, Hang: sim.Hang,
				RefuseSame: func(refuse bool) error {
					sim.RefuseControl(map[bool]byte{true: 0xd5}[refuse])
					return nil
				},
				LoseAnswer: func(lose bool) error { return loseAnswer(sim, lose) },
			}
		},
		Refusal:  bmc.KindUnreachable,
		Programs: true,
		Cannot: map[string]string{
			"HalfOpen":       "IPMI has no connections",
			"CloseSilently":  "IPMI has no connections",
			"CutBodies":      "a datagram is whole",
			"Bad":            "bmclib lets ipmitool wait 5 s for each lost datagram",
			"Transitional":   "IPMI tells on or off, and nothing between",
			"Restart":        "each command of ipmitool is a session of its own: a restart is not seen",
			"Logins":         "ipmitool itself finds the password refused",
			"Sessions":       "each command of ipmitool is a session of its own",
			"CutLogins":      "a killed ipmitool leaves its session to the BMC's time-out",
			"ChangeIdentity": "ipmitool does not tell who answers",
		},
	})
}

// loseAnswer lets the BMC fall silent with the next power off, which it carries out.
func loseAnswer(sim *ipmisim.GoBMC, lose bool) error {
	if !lose {
		sim.Intercept(nil)
		return sim.Hang(false)
	}
	sim.Intercept(func(c ipmisim.Command) *ipmisim.Reply {
		if c.NetFn != 0 || c.Cmd != 2 { // Chassis Control
			return nil
		}
		if sim.SetPower(false) != nil || sim.Hang(true) != nil {
			return nil
		}
		return &ipmisim.Reply{}
	})
	return nil
}

const otherUUID = "4c4c4544-0042-4810-8056-b4c04f4d3232"

// Two BMCs have one address, or it has gone to another: who was read is not who
// answers the command. A command goes to the machine that was read, or to none. // I8
func TestCommandIsNotGivenToAnotherBMC(t *testing.T) {
	sim, d := redfishBMC(t, redfishsim.Options{UUID: uuid})
	c := open(t, d)
	require.Equal(t, uuid, bmctest.Read(t, c).Identity.UUID)
	sim.Quirks(func(q *redfishsim.Quirks) { q.UUID = otherUUID }) // from here on it is another BMC,
	sim.ExpireSessions()                                          // which does not know the session
	for range 2 {
		_, err := c.Send(t.Context(), bmc.CommandOff)
		assert.Equal(t, bmc.SentNo, bmctest.Failed(t, err, bmc.KindIdentity).Sent)
	}
	assert.True(t, sim.Power(), "the other machine was switched off")

	require.Equal(t, otherUUID, bmctest.Read(t, c).Identity.UUID, "the next look shows it")
	_, err := c.Send(t.Context(), bmc.CommandOff)
	require.NoError(t, err, "who asked knows by now whom")
	assert.False(t, sim.Power())
}

// The machine may change between our look and bmclib's, with the login in between.
func TestGuardHoldsTheCommandToTheMachine(t *testing.T) {
	sim, d := redfishBMC(t, redfishsim.Options{UUID: uuid})
	c := open(t, d)
	who := bmctest.Read(t, c).Identity
	sim.Quirks(func(q *redfishsim.Quirks) { q.UUID = otherUUID })
	sim.ExpireSessions()
	err := c.do(t.Context(), &who, func(p provider) error {
		_, err := p.PowerSet(t.Context(), "off")
		return err
	})
	assert.Equal(t, bmc.KindIdentity, kindOf(err), "%v", err)
	assert.Zero(t, sim.Count(http.MethodPost, sim.System(0).URI()))
	assert.True(t, sim.Power())
}

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

// TestWrongPasswordThatIsRefusedLate: a BMC that asks PAM or a directory may take longer to refuse a
// password than a reading may take. The next reading learns it, and does not try it once more.
func TestWrongPasswordThatIsRefusedLate(t *testing.T) {
	t.Parallel()
	pace.Until(t, "a login that is given up before it is refused", func() bool {
		sim, d := redfishBMC(t, redfishsim.Options{})
		sim.Faults(func(f *redfishsim.Faults) { f.LoginLatency = 500 * time.Millisecond })
		d.Password = bmc.NewSecret("wrong")
		c := open(t, d)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			defer cancel()
			for sim.WrongLogins() == 0 && t.Context().Err() == nil {
				time.Sleep(5 * time.Millisecond)
			}
		}()
		if _, err := c.Read(ctx); bmc.KindOf(err) != bmc.KindUnreachable {
			return false
		}
		assert.Eventually(t, func() bool { return c.refusedLate.Load() != nil }, timing.ReadTimeout, 5*time.Millisecond)
		for tries := range 2 {
			_, err := c.Read(t.Context())
			bmctest.Failed(t, err, bmc.KindAuth)
			assert.Equal(t, 1+tries, sim.WrongLogins(), "one more only where somebody asks once more")
		}
		return true
	})
}

// The same of the provider that logs in to the web interface of its BMC.
func TestWrongPasswordThatTheWebInterfaceRefusesLate(t *testing.T) {
	t.Parallel()
	pace.Until(t, "a login that is given up before it is refused", func() bool {
		var logins atomic.Int32
		d := webInterface(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost && r.URL.Path == "/api/session" {
				logins.Add(1)
				_, _ = io.Copy(io.Discard, r.Body)
				time.Sleep(500 * time.Millisecond)
			}
			w.WriteHeader(http.StatusUnauthorized)
		}))
		c := open(t, d)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			defer cancel()
			for logins.Load() == 0 && t.Context().Err() == nil {
				time.Sleep(5 * time.Millisecond)
			}
		}()
		if _, err := c.Read(ctx); bmc.KindOf(err) != bmc.KindUnreachable {
			return false
		}
		require.Eventually(t, func() bool { return c.refusedLate.Load() != nil }, timing.ReadTimeout, 5*time.Millisecond)
		_, err := c.Read(t.Context())
		bmctest.Failed(t, err, bmc.KindAuth)
		assert.EqualValues(t, 1, logins.Load(), "it is not tried once more")
		return true
	})
}

func TestCertificateIsVerified(t *testing.T) {
	_, d := redfishBMC(t, redfishsim.Options{})
	d.TLS.CA = ""
	_, err := open(t, d).Read(t.Context())
	bmctest.Failed(t, err, bmc.KindTLS)

	d.TLS.InsecureSkipVerify = true
	c := open(t, d)
	assert.Equal(t, bmc.On, bmctest.Read(t, c).State, "the entry says so")
	findings := must.Do(c.Audit(t.Context()))(t)
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
		u := must.Do(url.Parse(address))(t)
		assert.Equal(t, ok, g.checkURL(u) == nil, address)
	}
}

// A BMC that ends each connection without a word may do that while the login is on its way,
// and a login is not repeated: it may have opened a session.
func TestLoginGetsAConnectionOfItsOwn(t *testing.T) {
	sim, d := redfishBMC(t, redfishsim.Options{UUID: uuid})
	type asked struct{}
	second := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Context().Value(asked{}).(*atomic.Int32).Add(1) > 1 {
			panic(http.ErrAbortHandler) // ends the connection without an answer
		}
		sim.ServeHTTP(w, r)
	}))
	second.Config.ConnContext = func(ctx context.Context, _ net.Conn) context.Context {
		return context.WithValue(ctx, asked{}, new(atomic.Int32))
	}
	second.Start()
	t.Cleanup(second.Close)
	d.Endpoint = must.Do(bmc.ParseEndpoint("redfish+" + second.URL + "/redfish/v1/Systems/1"))(t)
	assert.Equal(t, bmc.On, bmctest.Read(t, open(t, d)).State)
}
