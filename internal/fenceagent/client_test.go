package fenceagent

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/bmc/bmctest"
	"github.com/fenced/fenced/test/ipmisim"
	"github.com/fenced/fenced/test/redfishsim"
)

// patience is how long a test waits for an agent. An agent in Python takes half a second of
// CPU time, and the suite runs eight of them at a time: on a busy machine one run can take
// most of a minute.
const patience = 5 * time.Minute

// timing is generous: a test that waits for it in vain is wrong, not slow.
var timing = bmc.Timing{ReadTimeout: patience, SendTimeout: patience}

func init() { cache.timeout = patience } // the daemon reads the metadata again later, a test does not

// header is the metadata of a well-behaved agent, and how it answers for it.
const header = `#!/bin/sh
case "$1" in
-o) cat <<END
<?xml version="1.0" ?>
<resource-agent name="fence_test" shortdesc="Test">
<parameters>
<parameter name="action"/><parameter name="ip"/><parameter name="ipaddr"/><parameter name="username"/>
<parameter name="password"/><parameter name="plug"/><parameter name="port"/><parameter name="community"/>
<parameter name="missing_as_off"/><parameter name="debug_file"/>
<parameter name="plug_separator"><content type="string" default="," /></parameter>
<parameter name="separator"><content type="string" default="," /></parameter><parameter name="uuid"/><parameter name="switch"/>
</parameters>
<actions><action name="on" automatic="0"/><action name="off"/><action name="reboot"/><action name="status"/><action name="list"/></actions>
</resource-agent>
END
exit 0;;
--version) echo 4.2.1; exit 0;;
esac
`

// agent writes a fake agent whose actions are body, and gives where it lies.
// $input is what stood on stdin. It lists the device's outlet.
func agent(t *testing.T, body string) searchPath {
	t.Helper()
	return listing(t, "echo 7,worker-5", body)
}

// listing is agent with another list.
func listing(t *testing.T, list, body string) searchPath {
	t.Helper()
	return raw(t, header+"input=$(cat)\ncase \"$input\" in action=list*) "+list+"; exit;; esac\n"+body+"\n")
}

func raw(t *testing.T, text string) searchPath {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o755))
	executable(t, filepath.Join(dir, "fence_test"), text)
	return searchPath{dirs: []string{dir}, owner: uint32(os.Getuid())}
}

// executable writes a script while nobody forks: a child of another test that
// holds the file open for a moment would make it "text file busy".
func executable(t *testing.T, path, text string) {
	t.Helper()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	require.NoError(t, os.WriteFile(path, []byte(text), 0o755))
}

func device() bmc.Device {
	return bmc.Device{
		Driver: bmc.DriverFenceAgent, Agent: "fence_test", Username: "admin", Password: bmc.NewSecret("c4nary-secret"),
		Endpoint: bmc.Endpoint{Host: "192.0.2.1"}, Parameters: map[string]string{"plug": "7"},
	}
}

func client(t *testing.T, p searchPath, d bmc.Device) *Client {
	t.Helper()
	c, err := newClient(d, timing, p)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close(t.Context())) })
	return c
}

// installed gives a device for an agent of the Debian package fence-agents; the
// test is skipped where it is missing, except in CI.
func installed(t *testing.T, name, addr string, parameters map[string]string) bmc.Device {
	t.Helper()
	if _, err := systemPath.find(name); err != nil {
		bmctest.Missing(t, err.Error())
	}
	d := bmc.Device{Driver: bmc.DriverFenceAgent, Agent: name, Parameters: parameters}
	if addr == "" {
		return d
	}
	e, err := bmc.ParseAgentAddress(addr)
	require.NoError(t, err)
	d.Endpoint, d.Username, d.Password = e, "admin", bmc.NewSecret("secret")
	return d
}

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
			w := bmctest.OverRedfish(sim, "", d, opens)
			w.IgnoreOff = pollFast(d, sim.IgnoreOff)
			w.Logins, w.Sessions = nil, nil // see cannot
			return w
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
