package bmctest

import (
	"net/http"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/test/redfishsim"
)

// OverRedfish is the world of a driver that asks a simulated Redfish service, whose first system
// has this UUID.
func OverRedfish(sim *redfishsim.Server, uuid string, d bmc.Device, open bmc.Opener) *World {
	quirk := func(change func(*redfishsim.Quirks)) error { sim.Quirks(change); return nil }
	fault := func(change func(*redfishsim.Faults)) error { sim.Faults(change); return nil }
	return &World{
		Open: open, Device: d, UUID: uuid, On: sim.Power, SetPower: sim.SetPower, IgnoreOff: sim.IgnoreOff,
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
