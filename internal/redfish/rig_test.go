package redfish_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
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

const (
	uuid1 = "4c4c4544-0042-4810-8056-b4c04f4d3132"
	uuid2 = "4c4c4544-0042-4810-8056-b4c04f4d3232"
	uuid3 = "4c4c4544-0042-4810-8056-b4c04f4d3332"

	sessions = "/redfish/v1/SessionService/Sessions"
)

var timing = bmc.Timing{ReadTimeout: time.Minute, SendTimeout: time.Minute}

func TestMain(m *testing.M) {
	pace.Together(16) // they wait for timeouts and for what never comes most of the time
	os.Exit(m.Run())
}

// start runs a simulated service until the test ends.
func start(t *testing.T, o redfishsim.Options) *redfishsim.Server {
	t.Helper()
	sim := must.Do(redfishsim.Start(o))(t)
	t.Cleanup(sim.Stop)
	return sim
}

// hostOf is the inventory's entry for the first system of sim.
func hostOf(t testing.TB, sim *redfishsim.Server) bmc.Device {
	t.Helper()
	e := must.Do(bmc.ParseEndpoint(sim.BMCAddress()))(t)
	return bmc.Device{
		Driver: bmc.DriverRedfish, Endpoint: e, Username: "admin", Password: bmc.NewSecret("secret"),
		TLS: bmc.TLS{CA: sim.CAFile()},
	}
}

// plainHost is the inventory's entry for the system of a service over plain HTTP.
func plainHost(t *testing.T, srv *httptest.Server) bmc.Device {
	t.Helper()
	e := must.Do(bmc.ParseEndpoint("redfish+http://" + strings.TrimPrefix(srv.URL, "http://") + "/redfish/v1/Systems/1"))(t)
	return bmc.Device{Endpoint: e, Username: "admin", Password: bmc.NewSecret("secret")}
}

// open gives a client of h that is closed when the test ends.
func open(t *testing.T, h bmc.Device, tm bmc.Timing) *redfish.Client {
	t.Helper()
	c := must.Do(redfish.New(h, tm))(t)
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

func one(t *testing.T) (*redfishsim.Server, *redfish.Client) {
	t.Helper()
	sim := start(t, redfishsim.Options{UUID: uuid1})
	return sim, open(t, hostOf(t, sim), timing)
}

// giveUp reads, and gives up when the request has arrived.
func giveUp(t *testing.T, sim *redfishsim.Server, c *redfish.Client) error {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	before := len(sim.Requests())
	go func() {
		defer cancel()
		for len(sim.Requests()) == before && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
	}()
	_, err := c.Read(ctx)
	return err
}

// closedPort is an address on loopback where nothing listens.
func closedPort(t *testing.T) (host string, port int) {
	t.Helper()
	l := must.Do(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	return "127.0.0.1", l.Addr().(*net.TCPAddr).Port
}

// offAndOn reads, switches off and on, and checks that the host followed.
func offAndOn(t *testing.T, sim *redfishsim.Server, d bmc.Device) {
	t.Helper()
	c := open(t, d, timing)
	require.Equal(t, bmc.On, bmctest.Read(t, c).State)
	bmctest.Send(t, c, bmc.CommandOff)
	assert.False(t, sim.Power())
	assert.Equal(t, bmc.Off, bmctest.Read(t, c).State)
	bmctest.Send(t, c, bmc.CommandOn)
	assert.True(t, sim.Power())
	assert.Equal(t, []bool{false, true}, sim.System(0).Commands(), "each was carried out once")
}

// refused is how often the account's password was offered with a request.
func refused(sim *redfishsim.Server) int {
	n := 0
	for _, r := range sim.Requests() {
		if r.Auth == "basic" {
			n++
		}
	}
	return n
}

// answerWith is a BMC over plain HTTP that has sessions for all, and this
// answer about everything else.
func answerWith(t *testing.T, body string) bmc.Device {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/redfish/v1/":
			_, _ = w.Write([]byte(`{"Systems":{"@odata.id":"/redfish/v1/Systems"}}`))
		default:
			_, _ = w.Write([]byte(body))
		}
	}))
	t.Cleanup(srv.Close)
	return plainHost(t, srv)
}

// TestSuite runs the suite of all drivers over TLS, with sessions and with Basic
// authentication, against services that are honest but for what a case asks.
func TestSuite(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*redfishsim.Server, *bmctest.World){
		"sessions": func(*redfishsim.Server, *bmctest.World) {},
		"basic": func(sim *redfishsim.Server, w *bmctest.World) {
			sim.Faults(func(f *redfishsim.Faults) { f.NoSessions = true })
			w.Logins = func() int { return refused(sim) }
		},
		"tasks and ActionInfo": func(sim *redfishsim.Server, _ *bmctest.World) {
			sim.Quirks(func(q *redfishsim.Quirks) { q.Task, q.ActionInfo = true, true })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runSuite(t, change)
		})
	}
}

// The whole suite, for a device whose entry says that the login itself demands Basic authentication.
func TestSuiteBasicOnly(t *testing.T) {
	t.Parallel()
	runSuite(t, func(sim *redfishsim.Server, w *bmctest.World) {
		sim.Faults(func(f *redfishsim.Faults) { f.BasicOnly = true })
		w.Device.BasicAuth = true
		w.Logins = func() int { return refused(sim) }
	})
}

// runSuite runs the suite; change makes each world what the test is about.
func runSuite(t *testing.T, change func(*redfishsim.Server, *bmctest.World)) {
	bmctest.Run(t, bmctest.Driver{
		New: func(t *testing.T) *bmctest.World {
			sim := start(t, redfishsim.Options{UUID: uuid1})
			w := bmctest.OverRedfish(sim, uuid1, hostOf(t, sim), func(d bmc.Device) (bmc.Power, error) { return redfish.New(d, timing) })
			change(sim, w)
			return w
		},
		Cannot: map[string]string{"Bad": "TCP mends what a network loses"},
	})
}
