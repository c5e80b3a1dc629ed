package redfish_test

import (
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/bmc/bmctest"
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
			s := serveVendor(t, v)
			c := open(t, s.device(t), timing)

			r := bmctest.Read(t, c)
			assert.Equal(t, bmc.On, r.State)
			assert.Equal(t, v.identity, r.Identity)
			s.say(`"Off"`)
			assert.Equal(t, bmc.Off, bmctest.Read(t, c).State)
			for _, word := range v.changing {
				said := `"` + word + `"`
				if word == "null" {
					said = word
				}
				s.say(said)
				r = bmctest.Read(t, c)
				assert.Equal(t, bmc.Unknown, r.State)
				assert.Equal(t, word, r.Raw)
			}
			s.say("")

			receipt := bmctest.Send(t, c, bmc.CommandOff)
			assert.False(t, receipt.Already)
			assert.Equal(t, bmc.Off, bmctest.Read(t, c).State)
			receipt, err := c.Send(t.Context(), bmc.CommandOff)
			require.NoError(t, err, "already off is no failure")
			assert.Equal(t, v.refuses != 0, receipt.Already)
			bmctest.Send(t, c, bmc.CommandOn)
			assert.Equal(t, bmc.On, bmctest.Read(t, c).State)
			for _, kind := range s.resets() {
				assert.Contains(t, []string{"ForceOff", "On"}, kind)
			}
		})
	}
}

func TestVendorsDescription(t *testing.T) {
	for _, v := range vendors {
		t.Run(v.name, func(t *testing.T) {
			s := serveVendor(t, v)
			d, err := open(t, s.device(t), timing).Describe(t.Context())
			require.NoError(t, err)
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
		s := serveVendor(t, v)
		d := s.device(t)
		d.Endpoint.System = "/redfish/v1/Systems/1"
		c := open(t, d, timing)
		bmctest.Read(t, c)
		before := c.Requests()
		bmctest.Read(t, c)
		assert.Equal(t, 1, c.Requests()-before)
	}
}

// vendorServer gives one maker's resources over TLS and switches a host.
type vendorServer struct {
	vendor
	tls       *httptest.Server
	ca        string
	resources map[string]map[string]any // by path, without a slash at the end
	files     map[string][]byte         // by name, as they are
	system    string
	types     []any

	mu     sync.Mutex
	on     bool
	saying string // PowerState in JSON; "" is the truth
	asked  []string
}

func serveVendor(t *testing.T, v vendor) *vendorServer {
	t.Helper()
	s := &vendorServer{vendor: v, on: true, resources: map[string]map[string]any{}, files: map[string][]byte{}}
	paths, err := filepath.Glob(filepath.Join("testdata", "vendor", v.name, "*.json"))
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	for _, p := range paths {
		b, err := os.ReadFile(p)
		require.NoError(t, err)
		s.files[strings.TrimSuffix(filepath.Base(p), ".json")] = b
		var o map[string]any
		require.NoError(t, json.Unmarshal(b, &o), p)
		if id, ok := o["@odata.id"].(string); ok {
			s.resources[strings.TrimSuffix(id, "/")] = o
		}
		if filepath.Base(p) == "system.json" {
			s.system = strings.TrimSuffix(o["@odata.id"].(string), "/")
		}
	}
	s.types = s.allowed(t)
	s.tls = httptest.NewTLSServer(s)
	t.Cleanup(s.tls.Close)
	s.ca = filepath.Join(t.TempDir(), "ca.pem")
	leaf := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.tls.Certificate().Raw})
	require.NoError(t, os.WriteFile(s.ca, leaf, 0o600))
	return s
}

// allowed are the reset types that the system offers, wherever it lists them.
func (s *vendorServer) allowed(t *testing.T) []any {
	reset := s.resources[s.system]["Actions"].(map[string]any)["#ComputerSystem.Reset"].(map[string]any)
	if types, ok := reset["ResetType@Redfish.AllowableValues"].([]any); ok {
		return types
	}
	info := s.resources[reset["@Redfish.ActionInfo"].(string)]
	require.NotNil(t, info, "the ActionInfo is among the data")
	return info["Parameters"].([]any)[0].(map[string]any)["AllowableValues"].([]any)
}

// device is the inventory's entry, without the path of the system.
func (s *vendorServer) device(t *testing.T) bmc.Device {
	t.Helper()
	e, err := bmc.ParseEndpoint("redfish://" + strings.TrimPrefix(s.tls.URL, "https://"))
	require.NoError(t, err)
	return bmc.Device{
		Driver: bmc.DriverRedfish, Endpoint: e, Username: "admin", Password: bmc.NewSecret("secret"), TLS: bmc.TLS{CA: s.ca},
	}
}

func (s *vendorServer) say(state string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.saying = state
}

// resets are the types of all resets that were asked for.
func (s *vendorServer) resets() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.asked...)
}

func (s *vendorServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	path := strings.TrimSuffix(r.URL.Path, "/")
	switch {
	case s.slashes && path == r.URL.Path:
		http.Redirect(w, r, path+"/", http.StatusPermanentRedirect)
	case r.Method == http.MethodPost && path == "/redfish/v1/SessionService/Sessions":
		w.Header().Set("X-Auth-Token", "token")
		w.Header().Set("Location", s.tls.URL+path+"/1/")
		w.WriteHeader(http.StatusCreated)
	case r.Method == http.MethodDelete && path == "/redfish/v1/SessionService/Sessions/1":
		w.WriteHeader(http.StatusNoContent)
	case path != "/redfish/v1" && r.Header.Get("X-Auth-Token") != "token":
		w.WriteHeader(http.StatusUnauthorized)
	case r.Method == http.MethodPost && path == s.system+"/Actions/ComputerSystem.Reset":
		s.reset(w, r)
	case r.Method == http.MethodGet && s.resources[path] != nil:
		s.show(w, path)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

func (s *vendorServer) show(w http.ResponseWriter, path string) {
	o := s.resources[path]
	if path == s.system {
		o["PowerState"] = map[bool]any{true: "On", false: "Off"}[s.on]
		if s.saying != "" {
			o["PowerState"] = json.RawMessage(s.saying)
		}
	}
	w.Header().Set("ETag", `W/"1"`)
	w.Header().Set("Content-Type", "application/json;odata.metadata=minimal;charset=utf-8")
	_ = json.NewEncoder(w).Encode(o) // the client may be gone
}

func (s *vendorServer) reset(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var ask struct{ ResetType string }
	_ = json.Unmarshal(body, &ask) // else no type, which is refused
	s.asked = append(s.asked, ask.ResetType)
	on, known := map[string]bool{"On": true, "ForceOff": false}[ask.ResetType]
	switch {
	case r.Header.Get("If-Match") != "":
		w.WriteHeader(http.StatusPreconditionFailed)
	case !known || !slices.Contains(s.types, any(ask.ResetType)):
		w.WriteHeader(http.StatusBadRequest)
	case on == s.on && s.refuses != 0:
		w.WriteHeader(s.refuses)
		_, _ = w.Write(s.files["refusal"])
	default:
		s.on = on
		w.WriteHeader(s.accepts)
		_, _ = w.Write(s.files["accepted"]) // nothing where the maker sends nothing
	}
}

// edited is a maker's service with its resources changed.
func edited(t *testing.T, change func(resources map[string]map[string]any)) bmc.Device {
	t.Helper()
	s := serveVendor(t, vendors[len(vendors)-1]) // OpenBMC
	change(s.resources)
	return s.device(t)
}
