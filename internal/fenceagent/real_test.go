package fenceagent

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/bmc/bmctest"
	"github.com/fenced/fenced/test/ipmisim"
	"github.com/fenced/fenced/test/redfishsim"
)

// switches takes the host off and on again through an installed agent.
func switches(t *testing.T, d bmc.Device, power func() bool) {
	t.Helper()
	c := client(t, systemPath, d)
	first := bmctest.Read(t, c)
	require.Equal(t, bmc.On, first.State)
	assert.Equal(t, "STATUS: ON", first.Raw)
	r, err := c.Send(t.Context(), bmc.CommandOff)
	require.NoError(t, err)
	assert.False(t, r.Already)
	assert.False(t, power())
	second := bmctest.Read(t, c)
	assert.Equal(t, bmc.Off, second.State)
	assert.Equal(t, first.Session, second.Session)
	r, err = c.Send(t.Context(), bmc.CommandOff)
	require.NoError(t, err)
	assert.True(t, r.Already)
	_, err = c.Send(t.Context(), bmc.CommandOn)
	require.NoError(t, err)
	assert.True(t, power())
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
	switches(t, d, sim.Power)

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
	switches(t, d, sim.Power)
}

// fence_redfish that is not told takes the last system of the service.
func TestFenceRedfishWithoutSystemIsRefused(t *testing.T) {
	t.Parallel()
	sim, err := redfishsim.Start(redfishsim.Options{Systems: []redfishsim.SystemOptions{{}, {}}})
	require.NoError(t, err)
	t.Cleanup(sim.Stop)
	d := installed(t, "fence_redfish", sim.Addr(), map[string]string{"ssl_insecure": "1"})
	_, err = New(d, timing)
	bmctest.Failed(t, err, bmc.KindUnsupported)
	assert.True(t, sim.System(0).Power() && sim.System(1).Power())
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

// A dead BMC keeps an agent no longer than the context.
func TestRealAgentIsKilled(t *testing.T) {
	t.Parallel()
	sim, err := ipmisim.StartGo(t.Context(), ipmisim.Options{})
	require.NoError(t, err)
	d := installed(t, "fence_ipmilan", sim.Addr(), map[string]string{"lanplus": "1"})
	c := client(t, systemPath, d)
	_, err = c.Describe(t.Context()) // the metadata is there
	require.NoError(t, err)
	relay, err := ipmisim.StartRelay(sim.Addr())
	require.NoError(t, err)
	t.Cleanup(relay.Stop)
	t.Cleanup(sim.Stop)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	relay.Filter(func(ipmisim.Datagram) []ipmisim.Datagram {
		cancel() // the caller goes when the agent has asked the BMC
		return nil
	})
	d = installed(t, "fence_ipmilan", relay.Addr(), map[string]string{"lanplus": "1"})
	begin := time.Now()
	_, err = client(t, systemPath, d).Send(ctx, bmc.CommandOff)
	assert.Equal(t, bmc.SentMaybe, bmctest.Failed(t, err, bmc.KindUnreachable).Sent)
	assert.ErrorIs(t, err, context.Canceled)
	assert.Less(t, time.Since(begin), patience)
}
