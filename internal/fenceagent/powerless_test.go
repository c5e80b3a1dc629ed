package fenceagent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/bmc/bmctest"
)

// Agents that read back a note of their own, and no power: their off is a message
// on a disk, a file, or a cable that does not answer. None proves a host off. // I1
func TestAgentsWithoutPowerAreRefused(t *testing.T) {
	for agent, why := range nonPowerAgents {
		_, err := New(bmc.Device{Driver: bmc.DriverFenceAgent, Agent: agent}, timing)
		assert.ErrorContains(t, bmctest.Failed(t, err, bmc.KindUnsupported), why, agent)
	}
}

// Of the agents of the package fence-agents those are taken that switch machines or
// outlets. A new one must be looked at before it joins them here.
func TestInstalledAgents(t *testing.T) {
	t.Parallel()
	installed(t, "fence_ipmilan", "", nil)
	paths, err := filepath.Glob("/usr/sbin/fence_*")
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	for _, path := range paths {
		name := filepath.Base(path)
		d := bmc.Device{Driver: bmc.DriverFenceAgent, Agent: name}
		if name == "fence_redfish" {
			d.Parameters = map[string]string{"systems_uri": "/redfish/v1/Systems/1"}
		}
		c, err := New(d, timing)
		if err == nil {
			_, _, err = c.(*Client).agent(t.Context())
		}
		assert.Equal(t, strings.Contains(switching, " "+name+" "), err == nil, "%s: %v", name, err)
	}
}

// switching are the agents of Debian 12 that were looked at and switch machines or outlets.
var switching = " fence_aliyun fence_alom fence_amt fence_apc fence_apc_snmp fence_aws fence_azure_arm fence_bladecenter fence_cdu " +
	"fence_cisco_ucs fence_cyberpower_ssh fence_docker fence_drac fence_drac5 fence_eaton_snmp fence_ecloud fence_emerson " +
	"fence_eps fence_gce fence_hds_cb fence_hpblade fence_ibm_powervs fence_ibm_vpc fence_ibmblade fence_ibmz fence_idrac " +
	"fence_ilo fence_ilo2 fence_ilo3 fence_ilo3_ssh fence_ilo4 fence_ilo4_ssh fence_ilo5 fence_ilo5_ssh fence_ilo_moonshot " +
	"fence_ilo_mp fence_ilo_ssh fence_imm fence_intelmodular fence_ipdu fence_ipmilan fence_ipmilanplus fence_ironic " +
	"fence_kubevirt fence_ldom fence_lindypdu fence_lpar fence_netio fence_openstack fence_powerman fence_pve fence_raritan " +
	"fence_raritan_px3 fence_redfish fence_rhevm fence_rsa fence_rsb fence_tripplite_snmp fence_vbox " +
	"fence_virsh fence_vmware fence_vmware_rest fence_vmware_soap fence_vmware_vcloud fence_wti fence_xenapi fence_zvmip " +
	"fence_amt_ws fence_virt fence_xvm fence_zvm " // packages of their own

// A link to such an agent, and a copy of it under another name, are the same agent.
func TestPowerlessAgentUnderAnotherName(t *testing.T) {
	t.Parallel()
	p := raw(t, strings.Replace(header, `name="fence_test"`, `name="fence_sbd"`, 1))
	_, err := client(t, p, device()).Read(t.Context())
	bmctest.Failed(t, err, bmc.KindUnsupported)

	p = agent(t, "exit 0")
	path := filepath.Join(p.dirs[0], "fence_test")
	require.NoError(t, os.Rename(path, filepath.Join(p.dirs[0], "fence_crosslink")))
	require.NoError(t, os.Symlink("fence_crosslink", path))
	_, err = client(t, p, device()).Read(t.Context())
	bmctest.Failed(t, err, bmc.KindUnsupported)
}
