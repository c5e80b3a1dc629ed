package bmclib

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/bmc/bmctest"
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
	service := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.URL.Path = "/" + strings.TrimLeft(r.URL.Path, "/") // the provider doubles the slash
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(service.Close)
	u, err := url.Parse(service.URL)
	require.NoError(t, err)
	n, err := strconv.Atoi(u.Port())
	require.NoError(t, err)
	c := open(t, bmc.Device{Provider: "asrockrack", TLS: bmc.TLS{InsecureSkipVerify: true},
		Endpoint: bmc.Endpoint{Protocol: bmc.ProtocolRedfish, Host: u.Hostname(), Port: n}})

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
