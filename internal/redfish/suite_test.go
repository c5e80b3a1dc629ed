package redfish_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/bmc/bmctest"
	"github.com/fenced/fenced/internal/redfish"
	"github.com/fenced/fenced/test/redfishsim"
)

// TestSuite runs the suite of all drivers over TLS, with sessions and with Basic
// authentication, against services that are honest but for what a case asks.
func TestSuite(t *testing.T) {
	const noTCP = "TCP mends what a network loses"
	t.Run("sessions", func(t *testing.T) {
		t.Parallel()
		bmctest.Run(t, bmctest.Driver{
			New:    func(t *testing.T) *bmctest.World { return worldOf(start(t, redfishsim.Options{UUID: uuid1})) },
			Cannot: map[string]string{"Bad": noTCP},
		})
	})
	t.Run("basic", func(t *testing.T) {
		t.Parallel()
		bmctest.Run(t, bmctest.Driver{
			New: func(t *testing.T) *bmctest.World {
				sim := start(t, redfishsim.Options{UUID: uuid1})
				sim.Faults(func(f *redfishsim.Faults) { f.NoSessions = true })
				w := worldOf(sim)
				w.Logins = func() int { return refused(sim) }
				return w
			},
			Cannot: map[string]string{"Bad": noTCP},
		})
	})
	t.Run("tasks and ActionInfo", func(t *testing.T) {
		t.Parallel()
		bmctest.Run(t, bmctest.Driver{
			New: func(t *testing.T) *bmctest.World {
				sim := start(t, redfishsim.Options{UUID: uuid1})
				sim.Quirks(func(q *redfishsim.Quirks) { q.Task, q.ActionInfo = true, true })
				return worldOf(sim)
			},
			Cannot: map[string]string{"Bad": noTCP},
		})
	})
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

func worldOf(sim *redfishsim.Server) *bmctest.World {
	e, err := bmc.ParseEndpoint(sim.BMCAddress())
	if err != nil {
		panic(err) // the simulator's own address
	}
	quirk := func(change func(*redfishsim.Quirks)) error { sim.Quirks(change); return nil }
	fault := func(change func(*redfishsim.Faults)) error { sim.Faults(change); return nil }
	return &bmctest.World{
		Open: func(d bmc.Device) (bmc.Power, error) { return redfish.New(d, timing) },
		Device: bmc.Device{
			Driver: bmc.DriverRedfish, Endpoint: e, Username: "admin", Password: bmc.NewSecret("secret"),
			TLS: bmc.TLS{CA: sim.CAFile()},
		},
		UUID: uuid1,
		On:   sim.Power, SetPower: sim.SetPower, IgnoreOff: sim.IgnoreOff,
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
		Logins:     func() int { return sim.Count(http.MethodPost, "/redfish/v1/SessionService/Sessions") },
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

// TestSuiteWorld: a power off whose answer is lost is carried out.
func TestSuiteWorld(t *testing.T) {
	w := worldOf(start(t, redfishsim.Options{UUID: uuid1}))
	require.NoError(t, w.LoseAnswer(true))
	p, err := w.Open(w.Device)
	require.NoError(t, err)
	_, err = p.Send(t.Context(), bmc.CommandOff)
	bmctest.Failed(t, err, bmc.KindUnreachable)
	require.False(t, w.On())
	require.NoError(t, p.Close(context.Background()))
}
