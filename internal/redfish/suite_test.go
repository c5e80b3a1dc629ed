package redfish_test

import (
	"testing"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/bmc/bmctest"
	"github.com/fenced/fenced/internal/redfish"
	"github.com/fenced/fenced/test/redfishsim"
)

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
