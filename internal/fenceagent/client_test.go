package fenceagent

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/bmc/bmctest"
	"github.com/fenced/fenced/test/ipmisim"
	"github.com/fenced/fenced/test/must"
	"github.com/fenced/fenced/test/pace"
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
	c := must.Do(newClient(d, timing, p))(t)
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
	e := must.Do(bmc.ParseAgentAddress(addr))(t)
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
			sim := must.Do(ipmisim.StartGo(t.Context(), ipmisim.Options{Suites: []int{17}}))(t)
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
		Programs: true,
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
			sim := must.Do(redfishsim.Start(redfishsim.Options{}))(t)
			t.Cleanup(sim.Stop)
			d := installed(t, "fence_redfish", sim.Addr(), map[string]string{
				"ssl_insecure": "1", "systems_uri": sim.System(0).URI(), "power_timeout": "30",
			})
			w := bmctest.OverRedfish(sim, "", d, opens)
			polls := pollFast(d, sim.IgnoreOff)
			w.IgnoreOff = func(ignore bool) error {
				d.Parameters["power_timeout"] = "3" // the number of polls, and nothing else here
				return polls(ignore)
			}
			w.Logins, w.Sessions = nil, nil // see cannot
			return w
		},
		Patience: patience,
		Programs: true,
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

// gone says whether no process runs with this word in its command line.
func gone(t *testing.T, word string) func() bool {
	t.Helper()
	return func() bool {
		lines := must.Do(filepath.Glob("/proc/[0-9]*/cmdline"))(t)
		for _, path := range lines {
			if text, err := os.ReadFile(path); err == nil && strings.Contains(string(text), word) {
				return false
			}
		}
		return true
	}
}

// whenThere is the time of a caller who goes when a file is there.
func whenThere(t *testing.T, file string) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer cancel()
		for ctx.Err() == nil {
			if _, err := os.Stat(file); err == nil {
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
	}()
	return ctx
}

// Neither a hanging agent nor its children outlive the context.
func TestHangingAgentIsKilledWhole(t *testing.T) {
	t.Parallel()
	started := filepath.Join(t.TempDir(), "started")
	c := client(t, agent(t, `sleep 3141.5 & : >`+started+`; sleep 3141.5`), device())
	must.Do(c.Describe(t.Context()))(t)
	begin := time.Now()
	_, err := c.Send(whenThere(t, started), bmc.CommandOff)
	assert.Equal(t, bmc.SentMaybe, bmctest.Failed(t, err, bmc.KindUnreachable).Sent)
	assert.ErrorIs(t, err, context.Canceled)
	assert.Less(t, time.Since(begin), pace.Hang)
	assert.Eventually(t, gone(t, "3141.5"), time.Minute, 10*time.Millisecond)
}

// What an agent leaves running in its group ends with it.
func TestNothingIsLeftBehind(t *testing.T) {
	t.Parallel()
	c := client(t, agent(t, `sleep 2718.2 & echo Status: OFF; exit 2`), device())
	begin := time.Now()
	assert.Equal(t, bmc.Off, bmctest.Read(t, c).State)
	assert.Less(t, time.Since(begin), pace.Hang)
	assert.Eventually(t, gone(t, "2718.2"), time.Minute, 10*time.Millisecond)
}

// Somebody who left the process group and holds the output keeps nobody waiting.
func TestOutputHeldByAnotherSession(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "pid")
	c := client(t, agent(t, `setsid sleep 300 & echo $! >`+file+`; echo Status: ON`), device())
	t.Cleanup(func() { // nobody else ends it
		text := must.Do(os.ReadFile(file))(t)
		pid := must.Do(strconv.Atoi(strings.TrimSpace(string(text))))(t)
		_ = syscall.Kill(pid, syscall.SIGKILL)
	})
	begin := time.Now()
	assert.Equal(t, bmc.On, bmctest.Read(t, c).State)
	assert.Less(t, time.Since(begin), pace.Hang)
}

func TestFloodIsKilled(t *testing.T) {
	t.Parallel()
	for _, to := range []string{"", " >&2"} {
		c := client(t, agent(t, `while :; do echo Status: OFF; done`+to), device())
		begin := time.Now()
		_, err := c.Read(t.Context())
		assert.Contains(t, bmctest.Failed(t, err, bmc.KindProtocol).Error(), "too much output")
		assert.Less(t, time.Since(begin), pace.Hang)
	}
}

func TestAgentThatReadsNothing(t *testing.T) {
	t.Parallel()
	d := device()
	d.Parameters["community"] = strings.Repeat("x", 200<<10) // more than a pipe holds
	c := client(t, raw(t, header+"echo Status: ON\n"), d)
	assert.Equal(t, bmc.On, bmctest.Read(t, c).State)
}

func TestAgentEndedBySignal(t *testing.T) {
	t.Parallel()
	c := client(t, agent(t, `echo Status: OFF; kill -9 $$`), device())
	_, err := c.Read(t.Context())
	assert.Contains(t, bmctest.Failed(t, err, bmc.KindProtocol).Error(), "signal")
}

// The secrets are on stdin, and in nothing that others could see.
func TestSecretsOnlyOnStdin(t *testing.T) {
	t.Setenv("FENCED_CANARY", "of-the-daemon")
	out := t.TempDir()
	c := client(t, agent(t, `echo "$input" >`+out+`/stdin; cat /proc/$$/environ >`+out+`/environ; cat /proc/$$/cmdline >`+out+`/cmdline; exit 0`), device())
	require.Equal(t, bmc.On, bmctest.Read(t, c).State)
	file := func(name string) string {
		text := must.Do(os.ReadFile(filepath.Join(out, name)))(t)
		return string(text)
	}
	assert.Equal(t, "action=status\nip=192.0.2.1\npassword=c4nary-secret\nplug=7\nusername=admin\n", file("stdin"))
	assert.NotContains(t, file("environ")+file("cmdline"), "c4nary")
	assert.Equal(t, "PATH=/usr/sbin:/usr/bin:/sbin:/bin\x00LANG=C\x00", file("environ"))
}

func TestNotStartedIsNotSent(t *testing.T) {
	t.Parallel()
	p := agent(t, `exit 0`)
	c := client(t, p, device())
	must.Do(c.Describe(t.Context()))(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := c.Send(ctx, bmc.CommandOff)
	assert.Equal(t, bmc.SentNo, bmctest.Failed(t, err, bmc.KindUnreachable).Sent)

	require.NoError(t, os.Remove(filepath.Join(p.dirs[0], "fence_test")))
	_, err = c.Send(t.Context(), bmc.CommandOff)
	assert.Equal(t, bmc.SentNo, bmctest.Failed(t, err, bmc.KindUnsupported).Sent)
}

// agentSays asks an installed agent for what the suite of all drivers does not ask.
func agentSays(t *testing.T, d bmc.Device) {
	t.Helper()
	c := client(t, systemPath, d)
	assert.Equal(t, "STATUS: ON", bmctest.Read(t, c).Raw)
	assert.False(t, bmctest.Send(t, c, bmc.CommandOff).Already)
	described := must.Do(c.Describe(t.Context()))(t)
	assert.Equal(t, d.Agent, described.Model)
	assert.NotEmpty(t, described.Firmware)
}

func TestFenceIPMILAN(t *testing.T) {
	t.Parallel()
	sim := must.Do(ipmisim.StartGo(t.Context(), ipmisim.Options{Suites: []int{17}}))(t)
	t.Cleanup(sim.Stop)
	d := installed(t, "fence_ipmilan", sim.Addr(), map[string]string{"lanplus": "1", "cipher": "17", "power_wait": "0"})
	agentSays(t, d)

	d.Password = bmc.NewSecret("wrong-secret")
	_, err := client(t, systemPath, d).Read(t.Context())
	bmctest.Failed(t, err, bmc.KindUnreachable)
}

func TestFenceRedfish(t *testing.T) {
	t.Parallel()
	sim := must.Do(redfishsim.Start(redfishsim.Options{}))(t)
	t.Cleanup(sim.Stop)
	d := installed(t, "fence_redfish", sim.Addr(), map[string]string{"ssl_insecure": "1", "systems_uri": sim.System(0).URI()})
	agentSays(t, d)
}

// fence_redfish that is not told takes the last system of the service.
func TestFenceRedfishWithoutSystemIsRefused(t *testing.T) {
	_, err := New(bmc.Device{Driver: bmc.DriverFenceAgent, Agent: "fence_redfish"}, timing)
	bmctest.Failed(t, err, bmc.KindUnsupported)
}

// The agents that cut off switches and disks, and those that tell no state, are
// refused by what they say about themselves.
func TestAgentsThatDoNotSwitchPower(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"fence_brocade", "fence_scsi", "fence_mpath", "fence_ifmib", "fence_kdump", "fence_heuristics_ping"} {
		d := installed(t, name, "", nil)
		_, err := client(t, systemPath, d).Read(t.Context())
		bmctest.Failed(t, err, bmc.KindUnsupported)
	}
}

// pdu writes SNMP tools for a PDU with one outlet, number 4, that feeds worker-5.
func pdu(t *testing.T) map[string]string {
	t.Helper()
	dir := t.TempDir()
	tools := map[string]string{
		"snmpget": `case "$*" in *12.3.5.1.1.4.4*) echo .1.3.6.1.4.1.318.1.1.12.3.5.1.1.4.4 "$(cat ` + dir + `/state)";;
*) echo ".1.3.6.1.4.1.318.1.1.12.3.5.1.1.4.9 No Such Instance currently exists at this OID";; esac`,
		"snmpset": `case "$*" in *12.3.3.1.1.4.4*) for word; do :; done; echo $word >` + dir + `/state;; esac`,
		"snmpwalk": `case "$*" in *.1.3.6.1.2.1.1.2.0*) echo .1.3.6.1.2.1.1.2.0 .1.3.6.1.4.1.318.1.3.4.5;;
*12.3.5.1.1.2*) echo '.1.3.6.1.4.1.318.1.1.12.3.5.1.1.2.4 "worker-5"';; esac`,
	}
	p := map[string]string{"snmp_version": "2c", "power_wait": "0"}
	for tool, body := range tools {
		p[tool+"_path"] = filepath.Join(dir, tool)
		executable(t, p[tool+"_path"], "#!/bin/sh\n"+body+"\n")
	}
	executable(t, filepath.Join(dir, "state"), "1\n")
	return p
}

// fence_apc_snmp says off of an outlet that the PDU does not have. // I1
func TestFenceAPCSNMP(t *testing.T) {
	t.Parallel()
	parameters := pdu(t)
	power := func(plug string) *Client {
		d := installed(t, "fence_apc_snmp", "", map[string]string{"plug": plug})
		for name, value := range parameters {
			d.Parameters[name] = value
		}
		d.Endpoint.Host = "192.0.2.9"
		return client(t, systemPath, d)
	}
	c := power("9")
	receipt := bmctest.Send(t, c, bmc.CommandOff)
	assert.True(t, receipt.Already, "the agent takes the outlet for off, and sends nothing")
	r := bmctest.Read(t, c)
	assert.Equal(t, bmc.Unknown, r.State)
	assert.Contains(t, r.Raw, "neither on nor off: No Such Instance")

	for _, plug := range []string{"4", "worker-5"} {
		c := power(plug)
		bmctest.Send(t, c, bmc.CommandOn)
		require.Equal(t, bmc.On, bmctest.Read(t, c).State)
		bmctest.Send(t, c, bmc.CommandOff)
		assert.Equal(t, bmc.Off, bmctest.Read(t, c).State)
	}

	executable(t, filepath.Join(filepath.Dir(parameters["snmpget_path"]), "state"), "4\n") // outletUnknown
	c = power("4")
	assert.True(t, bmctest.Send(t, c, bmc.CommandOff).Already, "the agent takes the outlet for off, and sends nothing")
	assert.Equal(t, bmc.Unknown, bmctest.Read(t, c).State)
	bmctest.Send(t, c, bmc.CommandOn)
	assert.Equal(t, bmc.On, bmctest.Read(t, c).State, "On is sent whatever the state")
}

// Agents over SNMP report off for every value that they do not know as on. // I1
func TestStatesThatAreNeitherOnNorOff(t *testing.T) {
	t.Parallel()
	for name, says := range map[string]struct{ on, strange string }{
		"fence_tripplite_snmp": {"1", "4"}, "fence_emerson": {"2", "3"}, "fence_ibmblade": {"1", "3"}, "fence_ipdu": {"1", "2"}, "fence_intelmodular": {"2", "1"},
	} {
		for value, want := range map[string]bmc.PowerState{says.on: bmc.On, says.strange: bmc.Unknown, says.on + " " + says.on: bmc.Unknown} {
			tool := filepath.Join(t.TempDir(), "snmpget")
			executable(t, tool, "#!/bin/sh\necho .1.3.6 "+value+"\n")
			executable(t, filepath.Join(filepath.Dir(tool), "snmpwalk"), "#!/bin/sh\n")
			d := installed(t, name, "", map[string]string{"plug": "4", "snmp_version": "2c", "snmpget_path": tool, "snmpwalk_path": filepath.Join(filepath.Dir(tool), "snmpwalk")})
			d.Endpoint.Host = "192.0.2.9"
			assert.Equal(t, want, bmctest.Read(t, client(t, systemPath, d)).State, "%s says %s", name, value)
		}
	}
}
