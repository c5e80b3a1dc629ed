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

	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
)

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
