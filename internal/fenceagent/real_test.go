package fenceagent

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/bmc/bmctest"
	"github.com/fenced/fenced/test/ipmisim"
	"github.com/fenced/fenced/test/redfishsim"
)

// agentSays asks an installed agent for what the suite of all drivers does not ask.
func agentSays(t *testing.T, d bmc.Device) {
	t.Helper()
	c := client(t, systemPath, d)
	assert.Equal(t, "STATUS: ON", bmctest.Read(t, c).Raw)
	assert.False(t, bmctest.Send(t, c, bmc.CommandOff).Already)
	described, err := c.Describe(t.Context())
	require.NoError(t, err)
	assert.Equal(t, d.Agent, described.Model)
	assert.NotEmpty(t, described.Firmware)
}

func TestFenceIPMILAN(t *testing.T) {
	t.Parallel()
	sim, err := ipmisim.StartGo(t.Context(), ipmisim.Options{Suites: []int{17}})
	require.NoError(t, err)
	t.Cleanup(sim.Stop)
	d := installed(t, "fence_ipmilan", sim.Addr(), map[string]string{"lanplus": "1", "cipher": "17", "power_wait": "0"})
	agentSays(t, d)

	d.Password = bmc.NewSecret("wrong-secret")
	_, err = client(t, systemPath, d).Read(t.Context())
	bmctest.Failed(t, err, bmc.KindUnreachable)
}

func TestFenceRedfish(t *testing.T) {
	t.Parallel()
	sim, err := redfishsim.Start(redfishsim.Options{})
	require.NoError(t, err)
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
	assert.Equal(t, "outlet 9 is not listed", r.Raw)

	for _, plug := range []string{"4", "worker-5"} {
		c := power(plug)
		bmctest.Send(t, c, bmc.CommandOn)
		require.Equal(t, bmc.On, bmctest.Read(t, c).State)
		bmctest.Send(t, c, bmc.CommandOff)
		assert.Equal(t, bmc.Off, bmctest.Read(t, c).State)
	}
}
