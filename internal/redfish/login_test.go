package redfish_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/bmc/bmctest"
	"github.com/fenced/fenced/test/redfishsim"
)

// A BMC that refuses the sessions it gives is asked twice, not for ever, and is
// left with none open.
func TestRefusedSessionsAreNoStorm(t *testing.T) {
	sim, c := one(t)
	bmctest.Read(t, c)
	before := c.Requests()
	sim.Faults(func(f *redfishsim.Faults) { f.Unauthorized = 2 })
	_, err := c.Read(t.Context())
	bmctest.Failed(t, err, bmc.KindAuth)
	assert.Equal(t, 5, c.Requests()-before, "system, login, system, and the end of two sessions")
	assert.Zero(t, sim.OpenSessions())

	sim.Faults(func(f *redfishsim.Faults) { f.Unauthorized = 1000 })
	before = c.Requests()
	_, err = c.Send(t.Context(), bmc.CommandOff)
	assert.Equal(t, bmc.SentNo, bmctest.Failed(t, err, bmc.KindAuth).Sent)
	assert.LessOrEqual(t, c.Requests()-before, 6)
	assert.True(t, sim.Power())
}

// loginServer is a BMC over plain HTTP that takes logins at one path, and
// answers 401 to all else that carries no token.
type loginServer struct {
	at       string // of the collection of sessions; "" is none
	linked   string // what the service root says of that
	location string // of a session, in the header
	body     string // of the answer to a login
	open     atomic.Int64
	logins   atomic.Int64
}

func (s *loginServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	basic := strings.HasPrefix(r.Header.Get("Authorization"), "Basic ")
	switch {
	case r.URL.Path == "/redfish/v1/":
		_, _ = w.Write([]byte(`{"Links":{"Sessions":{"@odata.id":"` + s.linked + `"}}}`))
	case r.Method == http.MethodPost && s.at != "" && r.URL.Path == s.at:
		s.open.Add(1)
		s.logins.Add(1)
		w.Header().Set("X-Auth-Token", "token")
		if s.location != "" {
			w.Header().Set("Location", s.location)
		}
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write([]byte(s.body))
	case r.Header.Get("X-Auth-Token") != "token" && !basic:
		w.WriteHeader(http.StatusUnauthorized)
	case r.Method == http.MethodDelete && r.URL.Path == s.at+"/7":
		s.open.Add(-1)
		w.WriteHeader(http.StatusNoContent)
	default:
		_, _ = w.Write([]byte(`{"PowerState":"On"}`))
	}
}

func TestWhereLoginsAreTaken(t *testing.T) {
	const usual, old = sessions, "/redfish/v1/Sessions"
	for name, tc := range map[string]struct {
		server *loginServer
		logins int64
	}{
		"usual place":              {&loginServer{at: usual, linked: usual, location: usual + "/7"}, 1},
		"another place":            {&loginServer{at: old, linked: old, location: old + "/7"}, 1},
		"no place":                 {&loginServer{}, 0},
		"name in the body":         {&loginServer{at: usual, linked: usual, body: `{"@odata.id":"` + usual + `/7"}`}, 1},
		"name with its own host":   {&loginServer{at: usual, linked: usual, location: "https://bmc.example" + usual + "/7"}, 1},
		"name in the body of none": {&loginServer{at: usual, linked: usual, location: usual + "/7", body: `nonsense`}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			srv := httptest.NewServer(tc.server)
			defer srv.Close()
			e, err := bmc.ParseEndpoint("redfish+http://" + strings.TrimPrefix(srv.URL, "http://") + "/redfish/v1/Systems/1")
			require.NoError(t, err)
			c := open(t, bmc.Device{Endpoint: e, Username: "admin", Password: bmc.NewSecret("secret")}, timing)
			for range 3 {
				assert.Equal(t, bmc.On, bmctest.Read(t, c).State)
			}
			assert.Equal(t, tc.logins, tc.server.logins.Load())
			require.NoError(t, c.Close(t.Context()))
			assert.Zero(t, tc.server.open.Load())
		})
	}
}

// Sessions that ran out while the way there is unknown must not become "this
// service has none".
func TestRoomForASessionIsSoughtAgain(t *testing.T) {
	sim := start(t, redfishsim.Options{})
	d := hostOf(t, sim)
	d.Endpoint.System = "" // so that the service root is read meanwhile
	c := open(t, d, timing)
	sim.Faults(func(f *redfishsim.Faults) { f.LoginStatus = http.StatusServiceUnavailable })
	bmctest.Read(t, c)
	assert.Zero(t, sim.OpenSessions())
	sim.Faults(func(f *redfishsim.Faults) { f.LoginStatus = 0 })
	sim.Restart(0)
	bmctest.Read(t, c) // by Basic, and sees the restart
	bmctest.Read(t, c)
	assert.Equal(t, 1, sim.OpenSessions())
}
