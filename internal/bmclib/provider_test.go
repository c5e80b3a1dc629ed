package bmclib

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/bmc/bmctest"
	"github.com/fenced/fenced/test/ipmisim"
	"github.com/fenced/fenced/test/must"
	"github.com/fenced/fenced/test/pace"
)

func TestChoose(t *testing.T) {
	ipmi := bmc.Endpoint{Protocol: bmc.ProtocolIPMI, Host: "192.0.2.1", Port: 623}
	redfish := bmc.Endpoint{Protocol: bmc.ProtocolRedfish, Host: "192.0.2.1", Port: 443}
	for _, c := range []struct {
		provider string
		endpoint bmc.Endpoint
		want     string
		refused  string
	}{
		{"", ipmi, "ipmitool", ""},
		{"", redfish, "gofish", ""},
		{"dell", redfish, "dell", ""},
		{"openbmc", redfish, "openbmc", ""},
		{"asrockrack", redfish, "asrockrack", ""},
		{"ipmitool", redfish, "", "uses ipmi"},
		{"gofish", ipmi, "", "uses redfish"},
		{"supermicro", redfish, "", "use provider gofish"},
		{"IntelAMT", redfish, "", "fence_amt_ws"},
		{"rpc", redfish, "", "no BMC"},
		{"idrac", redfish, "", "use one of ipmitool, gofish"},
	} {
		k, err := choose(bmc.Device{Provider: c.provider, Endpoint: c.endpoint})
		assert.Equal(t, c.want, k.name)
		if c.refused != "" {
			require.ErrorContains(t, err, c.refused)
		}
	}
}

func TestRefusedAtOpen(t *testing.T) {
	d := bmc.Device{Driver: bmc.DriverBMCLib, Endpoint: bmc.Endpoint{Protocol: bmc.ProtocolRedfish, Host: "192.0.2.1", Port: 443}}
	pinned := d
	pinned.TLS.PinSHA256 = strings.Repeat("0", 64)
	_, err := New(pinned, timing)
	assert.Contains(t, bmctest.Failed(t, err, bmc.KindUnsupported).Error(), "pinSHA256")

	lost := d
	lost.TLS.CA = filepath.Join(t.TempDir(), "none.pem")
	_, err = New(lost, timing)
	bmctest.Failed(t, err, bmc.KindTLS)
	require.NoError(t, os.WriteFile(lost.TLS.CA, []byte("no PEM"), 0o600))
	_, err = New(lost, timing)
	bmctest.Failed(t, err, bmc.KindTLS)

	t.Setenv("DEBUG_BMCLIB", "true")
	_, err = New(d, timing)
	assert.Contains(t, bmctest.Failed(t, err, bmc.KindUnsupported).Error(), "DEBUG_BMCLIB")
}

// webInterface serves what the provider of ASRock Rack asks.
func webInterface(t *testing.T, h http.Handler) bmc.Device {
	t.Helper()
	service := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.URL.Path = "/" + strings.TrimLeft(r.URL.Path, "/") // the provider doubles the slash
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(service.Close)
	u := must.Do(url.Parse(service.URL))(t)
	n := must.Do(strconv.Atoi(u.Port()))(t)
	return bmc.Device{Provider: "asrockrack", TLS: bmc.TLS{InsecureSkipVerify: true},
		Endpoint: bmc.Endpoint{Protocol: bmc.ProtocolRedfish, Host: u.Hostname(), Port: n}}
}

// The provider of ASRock Rack reads an answer without a power status as off.
func TestASRockRackNeedsAPowerStatus(t *testing.T) {
	chassis := `{"power_status": 1, "led_status": 0}`
	mux := http.NewServeMux()
	mux.HandleFunc("/api/session", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"CSRFToken": "x"}`)) })
	mux.HandleFunc("/api/fru", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`[{"device": {"id": 0}, "product": {"part_number": "E3C246D4I-NL", "product_name": "E3C246D4I-NL", "manufacturer": "ASRockRack"},
			"board": {"product_name": "E3C246D4I-NL", "manufacturer": "ASRockRack"}}]`))
	})
	mux.HandleFunc("/api/chassis-status", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(chassis)) })
	c := open(t, webInterface(t, mux))

	assert.Equal(t, bmc.On, bmctest.Read(t, c).State)
	chassis = `{"power_status": 0}`
	assert.Equal(t, bmc.Off, bmctest.Read(t, c).State)
	for _, chassis = range []string{`{}`, `{"power_status": null}`, `{"error": "busy"}`, `{"led_status": 0}`,
		`{"power_status": 1, "power_status": 0}`, `{"power_status": 1, "Power_Status": 0}`} {
		_, err := c.Read(t.Context())
		bmctest.Failed(t, err, bmc.KindProtocol)
	}
}

func FuzzAnswer(f *testing.F) {
	for _, s := range []string{"Chassis Power is on\n", "Chassis Power is off", "On", "Off", "PoweringOff", "", "\xff\x00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, k := range providerSpecs {
			state, raw := k.parse(text)
			if len(raw) > maxRaw {
				t.Fatalf("raw has %d bytes", len(raw))
			}
			if trimmed := strings.TrimSpace(text); state == bmc.Off && trimmed != "Off" && trimmed != "Chassis Power is off" {
				t.Fatalf("%q was taken for off", text)
			}
		}
	})
}

// What the suite of all drivers does not ask.
func TestIpmitoolsOwnWords(t *testing.T) {
	_, d := ipmiBMC(t, ipmisim.Options{Suites: []int{17}})
	assert.Equal(t, "Chassis Power is on", bmctest.Read(t, open(t, d)).Raw)
}

// ipmi_sim shares nothing with the other simulator, and knows suite 3 only.
func TestIpmitoolAgainstDebian(t *testing.T) {
	if _, err := findIpmitool(systemDirs); err != nil {
		bmctest.Missing(t, err.Error())
	}
	sim, err := ipmisim.StartDebian(t.Context(), ipmisim.Options{})
	if err != nil {
		bmctest.Missing(t, err.Error())
	}
	t.Cleanup(sim.Stop)
	d := ipmiDevice(t, sim.Addr())
	d.CipherSuites = []int{3}
	c := open(t, d)
	require.Equal(t, bmc.On, bmctest.Read(t, c).State)
	bmctest.Send(t, c, bmc.CommandOff)
	assert.False(t, sim.Power())
	assert.Equal(t, bmc.Off, bmctest.Read(t, c).State)
}

// A wrong password must not look like a refused account: ipmitool says the same
// of a BMC that is dead.
func TestIpmitoolDoesNotTellAuthFromDeath(t *testing.T) {
	_, d := ipmiBMC(t, ipmisim.Options{Suites: []int{17}})
	d.Password = bmc.NewSecret("wrong-secret")
	_, err := open(t, d).Read(t.Context())
	e := bmctest.Failed(t, err, bmc.KindUnreachable)
	assert.Contains(t, e.Error(), "refused account")
}

// The password is in the environment of the one child, and nowhere in argv.
func TestIpmitoolPasswordOnlyInTheChildsEnvironment(t *testing.T) {
	out := filepath.Join(t.TempDir(), "seen")
	dir := script(t, `echo "args: $*" >>`+out+`; env >>`+out+`; echo Chassis Power is on`)
	d := ipmiDevice(t, "127.0.0.1:623")
	d.Password = bmc.NewSecret("c4nary-secret")
	c := open(t, d, dir)
	require.Equal(t, bmc.On, bmctest.Read(t, c).State)
	text := must.Do(os.ReadFile(out))(t)
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "args:") {
			assert.NotContains(t, line, "c4nary")
			assert.Contains(t, line, "-C 17 chassis power status")
		}
	}
	assert.Contains(t, string(text), "IPMITOOL_PASSWORD=c4nary-secret")
	assert.NotContains(t, strings.Join(os.Environ(), "\n"), "c4nary")
}

// bmclib takes any text without "Chassis Power is on" for off, and sends nothing.
func TestOddStatusIsNotOff(t *testing.T) {
	sent := filepath.Join(t.TempDir(), "sent")
	for _, text := range []string{"Chassis Power is unknown", "", "chassis power is off", "Chassis Power is off!", "Chassis Power is on\nChassis Power is off"} {
		dir := script(t, `case "$*" in *"power off") touch `+sent+`;; esac; printf '`+text+`\n'`)
		c := open(t, ipmiDevice(t, "127.0.0.1:623"), dir)
		assert.Equal(t, bmc.Unknown, bmctest.Read(t, c).State, text)
		_, err := c.Send(t.Context(), bmc.CommandOff)
		e := bmctest.Failed(t, err, bmc.KindProtocol)
		assert.Equal(t, bmc.SentNo, e.Sent)
		assert.NoFileExists(t, sent)
	}
}

// The command may have been carried out although ipmitool complained.
func TestFailedOffIsMaybe(t *testing.T) {
	dir := script(t, `case "$*" in *"power status") echo Chassis Power is on;; *) echo password secret >&2; exit 1;; esac`)
	_, err := open(t, ipmiDevice(t, "127.0.0.1:623"), dir).Send(t.Context(), bmc.CommandOff)
	assert.Equal(t, bmc.SentMaybe, bmctest.Failed(t, err, bmc.KindProtocol).Sent)
}

// freezes is a ctx whose time is over, before anything has noticed that, as soon as a file exists.
type freezes struct {
	context.Context
	file string
}

func (f freezes) Deadline() (time.Time, bool) {
	if _, err := os.Stat(f.file); err == nil {
		return time.Now().Add(-time.Second), true
	}
	return time.Now().Add(timing.SendTimeout / 2), true
}

// bmclib runs ipmitool more than once for a command: it reads first. A process that was frozen meanwhile does not run it again. // I19
func TestFrozenProcessRunsNoSecondIpmitool(t *testing.T) {
	for _, command := range []bmc.Command{bmc.CommandOff, bmc.CommandOn} {
		dir := script(t, `d=${0%/*}; case "$*" in
*status) [ -e "$d/read" ] && : >"$d/over"; : >"$d/read"; echo "Chassis Power is `+map[bmc.Command]string{bmc.CommandOff: "on", bmc.CommandOn: "off"}[command]+`";;
*) : >"$d/sent"; echo "Chassis Power Control: Down/Off Up/On";;
esac`)
		c := open(t, ipmiDevice(t, "127.0.0.1:623"), dir)
		_, err := c.Send(freezes{t.Context(), filepath.Join(dir, "over")}, command)
		require.Error(t, err)
		assert.NoFileExists(t, filepath.Join(dir, "sent"))
	}
}

// Neither ipmitool nor what it leaves behind keeps the caller beyond its context.
func TestIpmitoolIsKilledAtOnce(t *testing.T) {
	dir := script(t, `sleep 300 & sleep 300`)
	c := open(t, ipmiDevice(t, "127.0.0.1:623"), dir)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	begin := time.Now()
	_, err := c.Read(ctx)
	bmctest.Failed(t, err, bmc.KindUnreachable)
	assert.ErrorIs(t, err, context.DeadlineExceeded)
	assert.Less(t, time.Since(begin), pace.Hang)
}

func TestIpmitoolMissing(t *testing.T) {
	_, err := newClient(ipmiDevice(t, "127.0.0.1:623"), timing, []string{t.TempDir()})
	assert.Contains(t, bmctest.Failed(t, err, bmc.KindUnsupported).Error(), "install the package ipmitool")
}

func TestOneCipherSuite(t *testing.T) {
	for suites, want := range map[*[]int]string{{}: "17", {3, 17}: "3", {17}: "17"} {
		got := must.Do(suiteOf(*suites))(t)
		assert.Equal(t, want, got)
	}
	for _, weak := range []int{0, 1, 2, 6, 7, 8, 11, 12} {
		_, err := suiteOf([]int{weak})
		assert.Error(t, err)
	}
}
