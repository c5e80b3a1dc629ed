package redfish_test

import (
	"net/http"
	"testing"
	"time"

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
			w := worldOf(t, sim)
			change(sim, w)
			return w
		},
		Cannot: map[string]string{"Bad": "TCP mends what a network loses"},
	})
}

func worldOf(t *testing.T, sim *redfishsim.Server) *bmctest.World {
	t.Helper()
	quirk := func(change func(*redfishsim.Quirks)) error { sim.Quirks(change); return nil }
	fault := func(change func(*redfishsim.Faults)) error { sim.Faults(change); return nil }
	return &bmctest.World{
		Open:   func(d bmc.Device) (bmc.Power, error) { return redfish.New(d, timing) },
		Device: hostOf(t, sim), UUID: uuid1,
		On: sim.Power, SetPower: sim.SetPower, IgnoreOff: sim.IgnoreOff,
		LateOff: func(d time.Duration) error { return quirk(func(q *redfishsim.Quirks) { q.Lag = d }) },
		BackOn:  func(d time.Duration) error { return quirk(func(q *redfishsim.Quirks) { q.OffThenOn = d }) },
		RefuseSame: func(refuse bool) error {
			return quirk(func(q *redfishsim.Quirks) { q.RefuseSame = map[bool]int{true: http.StatusConflict}[refuse] })
		},
		Transitional: func(say bool) error {
			return quirk(func(q *redfishsim.Quirks) { q.SayPower = map[bool]string{true: `"PoweringOff"`}[say] })
		},
		Hang:       func(hang bool) error { return fault(func(f *redfishsim.Faults) { f.Hang = hang }) },
		HalfOpen:   func(open bool) error { return fault(func(f *redfishsim.Faults) { f.HalfOpen = open }) },
		LoseAnswer: func(lose bool) error { return quirk(func(q *redfishsim.Quirks) { q.DropReset = lose }) },
		Restart:    func() error { sim.Restart(0); return nil },
		Logins:     func() int { return sim.Count(http.MethodPost, sessions) },
		Sessions:   sim.OpenSessions, CutLogins: sim.OpenSessions,
		CutBodies: func(cut bool) error {
			return fault(func(f *redfishsim.Faults) { f.Body = map[bool]redfishsim.BodyFault{true: redfishsim.BodyCut}[cut] })
		},
		CloseSilently: func(end bool) error { return fault(func(f *redfishsim.Faults) { f.CloseSilently = end }) },
		ChangeIdentity: func() error {
			return quirk(func(q *redfishsim.Quirks) { q.UUID = "4c4c4544-0042-4810-8056-b4c04f4d9999" })
		},
	}
}
