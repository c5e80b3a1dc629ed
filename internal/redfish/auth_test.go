package redfish_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/bmc/bmctest"
	"github.com/fenced/fenced/internal/redfish"
	"github.com/fenced/fenced/test/must"
	"github.com/fenced/fenced/test/pace"
	"github.com/fenced/fenced/test/redfishsim"
)

func TestOneSessionAndNoneAfterClose(t *testing.T) {
	sim, c := one(t)
	require.NoError(t, c.Close(t.Context()))
	assert.Empty(t, sim.Requests(), "nothing to close is no request")
	bmctest.Read(t, c)
	bmctest.Read(t, c)
	assert.Equal(t, 1, sim.OpenSessions())
	assert.Equal(t, 1, sim.Count(http.MethodPost, sessions))

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, c.Close(ctx), "an ended context does not keep the session open")
	assert.Zero(t, sim.OpenSessions())
	assert.Equal(t, 1, sim.Count(http.MethodDelete, sessions))
	require.NoError(t, c.Close(t.Context()))
	assert.Equal(t, 1, sim.Count(http.MethodDelete, sessions), "closed once")
}

// gofish leaks a session on the BMC when a login is cancelled.
func TestAbandonedLoginLeavesNoSession(t *testing.T) {
	t.Parallel()
	const latency = 1500 * time.Millisecond
	pace.Until(t, "a login that is given up, and its session closed", func() bool {
		why := abandonLogin(t, latency) // a busy machine may not come to it within the latency
		if why != "" {
			t.Log(why)
		}
		return why == ""
	})
}

// abandonLogin gives a login up between its arrival and its answer, and says what is
// wrong then.
func abandonLogin(t *testing.T, latency time.Duration) (why string) {
	sim, c := one(t)
	sim.Faults(func(f *redfishsim.Faults) { f.LoginLatency = latency })
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer cancel()
		for sim.OpenSessions() == 0 && t.Context().Err() == nil {
			time.Sleep(5 * time.Millisecond)
		}
	}()
	began := time.Now()
	_, err := c.Read(ctx)
	switch {
	case time.Since(began) >= latency || err == nil:
		return "the caller waits"
	case sim.OpenSessions() != 1:
		return "no login was given up"
	}
	bmctest.Failed(t, err, bmc.KindUnreachable)
	require.NoError(t, c.Close(ctx))
	if sim.OpenSessions() > 0 {
		return "Close does not wait for the answer, and leaves the session"
	}
	return ""
}

func TestExpiredSessionIsOpenedAgain(t *testing.T) {
	sim, c := one(t)
	first := bmctest.Read(t, c)
	before := c.Requests()
	sim.ExpireSessions()
	r := bmctest.Read(t, c)
	assert.Equal(t, bmc.On, r.State)
	assert.NotEqual(t, first.Session, r.Session, "a new session starts a new proof")
	assert.Equal(t, 3, c.Requests()-before, "401, login, system")

	sim.ExpireSessions()
	bmctest.Send(t, c, bmc.CommandOff)
	assert.Len(t, sim.System(0).Commands(), 1)
}

func TestWrongPasswordIsTriedOnce(t *testing.T) {
	sim := start(t, redfishsim.Options{})
	h := hostOf(t, sim)
	h.Password = bmc.NewSecret("wrong")
	c := open(t, h, timing)
	_, err := c.Read(t.Context())
	bmctest.Failed(t, err, bmc.KindAuth)
	assert.NotContains(t, err.Error(), "auth: basic", "no hint where nothing asks for it")
	assert.Equal(t, 2, c.Requests(), "login, service root; Basic would count towards a lockout")
	_, err = c.Send(t.Context(), bmc.CommandOff)
	assert.Equal(t, bmc.SentNo, bmctest.Failed(t, err, bmc.KindAuth).Sent)
	assert.Equal(t, 3, c.Requests())
	assert.True(t, sim.Power())
}

// TestWrongPasswordThatIsRefusedLate: a BMC that asks PAM or a directory may take longer to refuse a
// password than a reading may take. The next reading learns it, and does not try it once more.
func TestWrongPasswordThatIsRefusedLate(t *testing.T) {
	t.Parallel()
	pace.Until(t, "a login that is given up before it is refused", func() bool {
		sim := start(t, redfishsim.Options{})
		sim.Faults(func(f *redfishsim.Faults) { f.LoginLatency = 500 * time.Millisecond })
		d := hostOf(t, sim)
		d.Password = bmc.NewSecret("wrong")
		c := open(t, d, timing)
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
		require.NoError(t, c.Close(t.Context()), "waits for the answer")
		for tries := range 2 {
			_, err := c.Read(t.Context())
			bmctest.Failed(t, err, bmc.KindAuth)
			assert.Equal(t, 1+tries, sim.Count(http.MethodPost, sessions), "one more only where somebody asks once more")
		}
		return true
	})
}

func TestPasswordChangedUnderASession(t *testing.T) {
	sim, c := one(t)
	bmctest.Read(t, c)
	sim.SetPassword("other")
	sim.ExpireSessions()
	before := c.Requests()
	_, err := c.Read(t.Context())
	bmctest.Failed(t, err, bmc.KindAuth)
	assert.Equal(t, 2, c.Requests()-before, "system, login")
}

func TestBasicWhereThereIsNoSession(t *testing.T) {
	t.Parallel()
	for name, faults := range map[string]redfishsim.Faults{
		"service without sessions": {NoSessions: true},
		"login not found":          {LoginStatus: http.StatusNotFound},
		"login not allowed":        {LoginStatus: http.StatusMethodNotAllowed},
		"login not implemented":    {LoginStatus: http.StatusNotImplemented},
		"login unavailable":        {LoginStatus: http.StatusServiceUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			sim, c := one(t)
			sim.Faults(func(f *redfishsim.Faults) { *f = faults })
			first := bmctest.Read(t, c)
			assert.Equal(t, bmc.On, first.State)
			bmctest.Send(t, c, bmc.CommandOff)
			r := bmctest.Read(t, c)
			assert.Equal(t, bmc.Off, r.State)
			assert.Equal(t, first.Session, r.Session, "answers without a break are one session")
			assert.LessOrEqual(t, sim.Count(http.MethodPost, sessions), 1)

			sim.Faults(func(f *redfishsim.Faults) { f.Busy = 1 })
			assert.NotEqual(t, r.Session, bmctest.Read(t, c).Session)
		})
	}
}

func TestSessionsUsedUp(t *testing.T) {
	sim, first := one(t)
	bmctest.Read(t, first)
	sim.Faults(func(f *redfishsim.Faults) { f.SessionLimit = 1 })
	second := open(t, hostOf(t, sim), timing)
	assert.Equal(t, bmc.On, bmctest.Read(t, second).State, "by Basic")

	sim.Faults(func(f *redfishsim.Faults) { f.NoBasic = true })
	third := open(t, hostOf(t, sim), timing)
	for range 3 {
		_, err := third.Read(t.Context())
		bmctest.Failed(t, err, bmc.KindSessions)
	}
	assert.Equal(t, 2, refused(sim), "one good, one refused: the password is not tried again and again")

	require.NoError(t, first.Close(t.Context()))
	assert.Equal(t, bmc.On, bmctest.Read(t, third).State, "once there is room")
}

func TestSessionNumbersAreNotShared(t *testing.T) {
	sim := start(t, redfishsim.Options{})
	seen := map[uint64]bool{}
	for range 3 {
		c := must.Do(redfish.New(hostOf(t, sim), timing))(t)
		seen[bmctest.Read(t, c).Session] = true
		require.NoError(t, c.Close(t.Context()))
	}
	assert.Len(t, seen, 3)
	assert.Zero(t, sim.OpenSessions())
}

// What a BMC allowed before a restart is not what it allows after.
func TestAllowedTypesAreReadAgainAfterARestart(t *testing.T) {
	for name, restart := range map[string]func(*redfishsim.Server, *redfish.Client){
		"session gone": func(sim *redfishsim.Server, _ *redfish.Client) { sim.ExpireSessions() },
		"no answer": func(sim *redfishsim.Server, c *redfish.Client) {
			sim.Faults(func(f *redfishsim.Faults) { f.Latency = time.Hour })
			bmctest.Failed(t, giveUp(t, sim, c), bmc.KindUnreachable)
			sim.Faults(func(f *redfishsim.Faults) { f.Latency = 0 })
		},
	} {
		t.Run(name, func(t *testing.T) {
			sim, c := one(t)
			bmctest.Read(t, c)
			sim.Quirks(func(q *redfishsim.Quirks) { q.ResetTypes = []string{"On", "GracefulShutdown"} })
			restart(sim, c)
			_, err := c.Send(t.Context(), bmc.CommandOff)
			bmctest.Failed(t, err, bmc.KindUnsupported)
			assert.True(t, sim.Power())
		})
	}
}

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
		left   int64 // sessions that nobody can end
	}{
		"usual place":              {&loginServer{at: usual, linked: usual, location: usual + "/7"}, 1, 0},
		"another place":            {&loginServer{at: old, linked: old, location: old + "/7"}, 1, 0},
		"no place":                 {&loginServer{}, 0, 0},
		"name in the body":         {&loginServer{at: usual, linked: usual, body: `{"@odata.id":"` + usual + `/7"}`}, 1, 0},
		"name with its own host":   {&loginServer{at: usual, linked: usual, location: "https://bmc.example" + usual + "/7"}, 1, 0},
		"no name":                  {&loginServer{at: usual, linked: usual}, 1, 1},
		"name in the body of none": {&loginServer{at: usual, linked: usual, location: usual + "/7", body: `nonsense`}, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			srv := httptest.NewServer(tc.server)
			defer srv.Close()
			c := open(t, plainHost(t, srv), timing)
			for range 3 {
				assert.Equal(t, bmc.On, bmctest.Read(t, c).State)
			}
			assert.Equal(t, tc.logins, tc.server.logins.Load())
			require.NoError(t, c.Close(t.Context()))
			assert.Equal(t, tc.left, tc.server.open.Load())
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

// proxmox-redfish names a session service and demands Basic authentication for a
// login to it.
func TestBasicOnTheLoginItself(t *testing.T) {
	sim := start(t, redfishsim.Options{UUID: uuid1})
	sim.Faults(func(f *redfishsim.Faults) { f.BasicOnly = true })
	d := hostOf(t, sim)
	_, err := open(t, d, timing).Read(t.Context())
	bmctest.Failed(t, err, bmc.KindAuth)
	assert.Contains(t, err.Error(), "auth: basic")

	d.BasicAuth = true
	sim.ResetRequests()
	offAndOn(t, sim, d)
	assert.Zero(t, sim.Count(http.MethodPost, sessions), "no login is tried")

	d.Password = bmc.NewSecret("wrong")
	c := open(t, d, timing)
	sim.ResetRequests()
	_, err = c.Read(t.Context())
	bmctest.Failed(t, err, bmc.KindAuth)
	assert.Len(t, sim.Requests(), 1, "a refused password is not sent again")
}

// OpenBMC lets an account do nothing with the password that it comes with.
func TestPasswordThatMustBeChanged(t *testing.T) {
	sim, c := one(t)
	sim.Faults(func(f *redfishsim.Faults) { f.PasswordChange = true })
	_, err := c.Read(t.Context())
	bmctest.Failed(t, err, bmc.KindPrivilege)
	assert.Contains(t, err.Error(), "log in to the BMC, change it")
	_, err = c.Send(t.Context(), bmc.CommandOff)
	assert.Contains(t, err.Error(), "log in to the BMC, change it")
}
