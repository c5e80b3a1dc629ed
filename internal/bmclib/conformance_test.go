package bmclib

import (
	"net/http"
	"testing"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/bmc/bmctest"
	"github.com/fenced/fenced/test/ipmisim"
	"github.com/fenced/fenced/test/redfishsim"
)

func opens(d bmc.Device) (bmc.Power, error) { return New(d, timing) }

// backOn switches the host on again d after it went off.
func backOn(t *testing.T, on func() bool, set func(bool) error) func(time.Duration) error {
	return func(d time.Duration) error {
		go func() {
			for t.Context().Err() == nil && on() {
				time.Sleep(5 * time.Millisecond)
			}
			time.Sleep(d)
			_ = set(true) // a simulator that ended has no host
		}()
		return nil
	}
}

func TestConformanceGofish(t *testing.T) {
	t.Parallel()
	bmctest.Run(t, bmctest.Driver{
		New: func(t *testing.T) *bmctest.World {
			sim, d := redfishBMC(t, redfishsim.Options{UUID: uuid})
			quirk := func(change func(*redfishsim.Quirks)) error { sim.Quirks(change); return nil }
			fault := func(change func(*redfishsim.Faults)) error { sim.Faults(change); return nil }
			return &bmctest.World{
				Open: opens, Device: d, UUID: uuid, On: sim.Power, SetPower: sim.SetPower, IgnoreOff: sim.IgnoreOff,
				LateOff: func(d time.Duration) error { return quirk(func(q *redfishsim.Quirks) { q.Lag = d }) },
				BackOn:  backOn(t, sim.Power, sim.SetPower),
				RefuseSame: func(bool) error {
					return quirk(func(q *redfishsim.Quirks) { q.RefuseSame = http.StatusConflict })
				},
				Transitional: func(say bool) error {
					return quirk(func(q *redfishsim.Quirks) { q.SayPower = map[bool]string{true: `"PoweringOff"`}[say] })
				},
				Hang:     func(hang bool) error { return fault(func(f *redfishsim.Faults) { f.Hang = hang }) },
				HalfOpen: func(open bool) error { return fault(func(f *redfishsim.Faults) { f.HalfOpen = open }) },
				LoseAnswer: func(lose bool) error {
					return quirk(func(q *redfishsim.Quirks) { q.DropReset = lose })
				},
				Restart:  func() error { sim.Restart(0); return nil },
				Logins:   func() int { return sim.Count(http.MethodPost, "/redfish/v1/SessionService/Sessions") },
				Sessions: sim.OpenSessions, CutLogins: sim.OpenSessions,
				CutBodies: func(cut bool) error {
					return fault(func(f *redfishsim.Faults) { f.Body = map[bool]redfishsim.BodyFault{true: redfishsim.BodyCut}[cut] })
				},
				CloseSilently: func(end bool) error { return fault(func(f *redfishsim.Faults) { f.CloseSilently = end }) },
				ChangeIdentity: func() error {
					return quirk(func(q *redfishsim.Quirks) { q.UUID = "4c4c4544-0042-4810-8056-b4c04f4d9999" })
				},
			}
		},
		Cannot: map[string]string{"Bad": "TCP mends what a network loses"},
	})
}

func TestConformanceIpmitool(t *testing.T) {
	t.Parallel()
	bmctest.Run(t, bmctest.Driver{
		New: func(t *testing.T) *bmctest.World {
			sim, d := ipmiBMC(t, ipmisim.Options{Suites: []int{17}})
			return &bmctest.World{
				Open: opens, Device: d, On: sim.Power, SetPower: sim.SetPower, IgnoreOff: sim.IgnoreOff,
				LateOff: sim.LateOff, BackOn: sim.BackOn, Hang: sim.Hang,
				RefuseSame: func(refuse bool) error {
					sim.RefuseControl(map[bool]byte{true: 0xd5}[refuse])
					return nil
				},
				LoseAnswer: func(lose bool) error { return loseAnswer(sim, lose) },
			}
		},
		Refusal: bmc.KindUnreachable,
		Cannot: map[string]string{
			"HalfOpen":       "IPMI has no connections",
			"CloseSilently":  "IPMI has no connections",
			"CutBodies":      "a datagram is whole",
			"Bad":            "bmclib lets ipmitool wait 5 s for each lost datagram",
			"Transitional":   "IPMI tells on or off, and nothing between",
			"Restart":        "each command of ipmitool is a session of its own: a restart is not seen",
			"Logins":         "ipmitool itself finds the password refused",
			"Sessions":       "each command of ipmitool is a session of its own",
			"CutLogins":      "a killed ipmitool leaves its session to the BMC's time-out",
			"ChangeIdentity": "ipmitool does not tell who answers",
		},
	})
}

// loseAnswer lets the BMC fall silent with the next power off, which it carries out.
func loseAnswer(sim *ipmisim.GoBMC, lose bool) error {
	if !lose {
		sim.Intercept(nil)
		return sim.Hang(false)
	}
	sim.Intercept(func(c ipmisim.Command) *ipmisim.Reply {
		if c.NetFn != 0 || c.Cmd != 2 { // Chassis Control
			return nil
		}
		if sim.SetPower(false) != nil || sim.Hang(true) != nil {
			return nil
		}
		return &ipmisim.Reply{}
	})
	return nil
}
