package fenceagent

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/bmc/bmctest"
	"github.com/fenced/fenced/test/ipmisim"
	"github.com/fenced/fenced/test/redfishsim"
)

// cannot is what no agent can do or be seen to do.
func cannot(more map[string]string) map[string]string {
	all := map[string]string{
		"Bad":            "what an agent makes of a lossy network is its own",
		"Transitional":   "agents tell on or off",
		"Restart":        "each run of an agent is a session of its own: a restart is not seen",
		"Logins":         "how often an agent offers a password is its own",
		"Sessions":       "each run of an agent is a session of its own",
		"CutLogins":      "what a killed agent leaves on the device ends by the device's time-out",
		"ChangeIdentity": "agents do not tell whose outlet it is",
		"CutBodies":      "an agent's library refuses an answer that is not whole",
	}
	for name, why := range more {
		all[name] = why
	}
	return all
}

func TestConformanceFenceIPMILAN(t *testing.T) {
	t.Parallel()
	bmctest.Run(t, bmctest.Driver{
		New: func(t *testing.T) *bmctest.World {
			sim, err := ipmisim.StartGo(t.Context(), ipmisim.Options{Suites: []int{17}})
			require.NoError(t, err)
			t.Cleanup(sim.Stop)
			d := installed(t, "fence_ipmilan", sim.Addr(), map[string]string{
				"lanplus": "1", "cipher": "17", "power_wait": "0", "power_timeout": "30",
			})
			return &bmctest.World{
				Open: opens, Device: d, On: sim.Power, SetPower: sim.SetPower, IgnoreOff: pollFast(d, sim.IgnoreOff),
				LateOff: sim.LateOff, BackOn: sim.BackOn, Hang: sim.Hang,
				RefuseSame: func(refuse bool) error {
					sim.RefuseControl(map[bool]byte{true: 0xd5}[refuse])
					return nil
				},
			}
		},
		Patience: patience,
		Refusal:  bmc.KindUnreachable,
		Blind:    true,
		Cannot: cannot(map[string]string{
			"HalfOpen":      "IPMI has no connections",
			"CloseSilently": "IPMI has no connections",
			"LoseAnswer":    "see fence_redfish",
		}),
	})
}

func TestConformanceFenceRedfish(t *testing.T) {
	t.Parallel()
	bmctest.Run(t, bmctest.Driver{
		New: func(t *testing.T) *bmctest.World {
			sim, err := redfishsim.Start(redfishsim.Options{})
			require.NoError(t, err)
			t.Cleanup(sim.Stop)
			d := installed(t, "fence_redfish", sim.Addr(), map[string]string{
				"ssl_insecure": "1", "systems_uri": sim.System(0).URI(), "power_timeout": "30",
			})
			quirk := func(change func(*redfishsim.Quirks)) error { sim.Quirks(change); return nil }
			fault := func(change func(*redfishsim.Faults)) error { sim.Faults(change); return nil }
			return &bmctest.World{
				Open: opens, Device: d, On: sim.Power, SetPower: sim.SetPower, IgnoreOff: pollFast(d, sim.IgnoreOff),
				LateOff: func(d time.Duration) error { return quirk(func(q *redfishsim.Quirks) { q.Lag = d }) },
				RefuseSame: func(bool) error {
					return quirk(func(q *redfishsim.Quirks) { q.RefuseSame = http.StatusConflict })
				},
				Hang:       func(hang bool) error { return fault(func(f *redfishsim.Faults) { f.Hang = hang }) },
				HalfOpen:   func(open bool) error { return fault(func(f *redfishsim.Faults) { f.HalfOpen = open }) },
				LoseAnswer: func(lose bool) error { return quirk(func(q *redfishsim.Quirks) { q.DropReset = lose }) },
				CloseSilently: func(end bool) error {
					return fault(func(f *redfishsim.Faults) { f.CloseSilently = end })
				},
			}
		},
		Patience: patience,
		Refusal:  bmc.KindProtocol, // the agent ends with a traceback
		Blind:    true,
		Cannot:   cannot(map[string]string{"BackOn": "see fence_ipmilan"}),
	})
}

// pollFast lets the agent of a host that ignores a power off poll without a pause. power_timeout
// is both the number of polls and, in seconds, how long one ipmitool may take: one second is
// enough for the polls, but not for ipmitool on a busy machine.
func pollFast(d bmc.Device, ignoreOff func(bool) error) func(bool) error {
	return func(ignore bool) error {
		d.Parameters["stonith_status_sleep"] = "0"
		return ignoreOff(ignore)
	}
}

func opens(d bmc.Device) (bmc.Power, error) { return New(d, timing) }
