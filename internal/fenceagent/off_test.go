package fenceagent

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/bmc/bmctest"
	"github.com/fenced/fenced/test/dice"
	"github.com/fenced/fenced/test/must"
)

func TestStatus(t *testing.T) {
	for name, c := range map[string]struct {
		body string
		want bmc.PowerState
	}{
		"off":                    {`echo Status: OFF; exit 2`, bmc.Off},
		"off among other words":  {`echo hello; echo "  Status: off  "; echo bye; exit 2`, bmc.Off},
		"on":                     {`echo Status: ON`, bmc.On},
		"on without a word":      {``, bmc.On},
		"2 without a word":       {`exit 2`, bmc.Unknown},
		"2 of a usage error":     {`echo "usage: fence_test [-h]" >&2; exit 2`, bmc.Unknown},
		"2 that says on":         {`echo Status: ON; exit 2`, bmc.Unknown},
		"0 that says off":        {`echo Status: OFF; exit 0`, bmc.Unknown},
		"two words":              {`echo Status: OFF; echo Status: ON; exit 2`, bmc.Unknown},
		"words of another state": {`echo Status: OFFLINE; exit 2`, bmc.Unknown},
		"words on stderr":        {`echo Status: OFF >&2; exit 2`, bmc.Unknown},
		// The shell ends with 2 when it cannot read the script.
		"a broken script": {`if then`, bmc.Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := bmctest.Read(t, client(t, agent(t, c.body), device()))
			assert.Equal(t, c.want, r.State)
			assert.LessOrEqual(t, len(r.Raw), maxRaw)
			assert.NotEmpty(t, r.Raw)
			assert.Empty(t, r.Identity)
		})
	}
}

func TestComplaints(t *testing.T) {
	for name, c := range map[string]struct {
		body string
		kind bmc.Kind
		text string
	}{
		"login":     {`echo "ERROR: Unable to connect/login to fencing device" >&2; exit 1`, bmc.KindUnreachable, "Unable to connect/login"},
		"privilege": {`echo "Failed: The user does not have the correct privileges to do it." >&2; exit 1`, bmc.KindPrivilege, "privileges"},
		"plug":      {`echo "Failed: You have to enter plug" >&2; echo "ERROR: Please use '-h' for usage" >&2; exit 1`, bmc.KindProtocol, "enter plug"},
		"nothing":   {`exit 9`, bmc.KindProtocol, "exit status 9: it said nothing"},
		"secrets":   {`echo "$input c0mmunity-secret" | tr '\n' ' ' >&2; exit 1`, bmc.KindProtocol, "[redacted]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := device()
			d.SecretParameters = map[string]bmc.Secret{"community": bmc.NewSecret("c0mmunity-secret")}
			d.Password = bmc.NewSecret("c4nary-secret")
			cl := client(t, agent(t, c.body), d)
			_, err := cl.Read(t.Context())
			assert.Contains(t, bmctest.Failed(t, err, c.kind).Error(), c.text)
			_, err = cl.Send(t.Context(), bmc.CommandOff)
			assert.Equal(t, bmc.SentMaybe, bmctest.Failed(t, err, c.kind).Sent, "it was started")
		})
	}
}

func TestSend(t *testing.T) {
	t.Parallel()
	p := agent(t, `case "$input" in *action=reboot*|*action=cycle*) exit 1;; *action=off*) echo "Success: Already OFF";; *) echo "Success: Powered ON";; esac`)
	c := client(t, p, device())
	r := bmctest.Send(t, c, bmc.CommandOff)
	assert.True(t, r.Already)
	r = bmctest.Send(t, c, bmc.CommandOn)
	assert.False(t, r.Already)
	_, err := c.Send(t.Context(), bmc.Command(0))
	assert.Equal(t, bmc.SentNo, bmctest.Failed(t, err, bmc.KindUnsupported).Sent)
}

const saysOff = `case "$input" in *action=off*) echo "Success: Already OFF"; exit 0;; esac; echo Status: OFF; exit 2`

// An agent that says off of an outlet that it does not list proves nothing. // I1
func TestOffOfAnOutletThatIsNotThere(t *testing.T) {
	for name, c := range map[string]struct {
		list       string
		parameters map[string]string
		want       bmc.PowerState
	}{
		"listed":                     {`echo 6,; echo 7,worker-5`, nil, bmc.Off},
		"another outlet":             {`echo 6,; echo 17,worker-5; echo 71,`, nil, bmc.Unknown},
		"an empty list":              {`:`, nil, bmc.Unknown},
		"no list of this device":     {`echo "NOTICE: List option is not working on this device yet"`, nil, bmc.Unknown},
		"a word without a separator": {`echo 7`, nil, bmc.Unknown},
		"on stderr":                  {`echo 7,worker-5 >&2`, nil, bmc.Unknown},
		"twice":                      {`echo 7,a; echo 7,b`, nil, bmc.Unknown},
		"by its alias":               {`echo 3,worker-5`, map[string]string{"plug": "worker-5"}, bmc.Off},
		"by the alias of two":        {`echo 3,worker-5; echo 4,worker-5`, map[string]string{"plug": "worker-5"}, bmc.Unknown},
		"a part of an alias":         {`echo 3,worker-5,b`, map[string]string{"plug": "worker-5"}, bmc.Unknown},
		"other letters":              {`echo Worker-5,`, map[string]string{"plug": "worker-5"}, bmc.Unknown},
		"a place that is an alias":   {`echo 3,7`, nil, bmc.Unknown},
		"both place and alias":       {`echo 7,7`, nil, bmc.Off},
		"in a chain":                 {`echo 1:7,; echo 2:7,`, map[string]string{"plug": "7", "switch": "2"}, bmc.Off},
		"not in the chain":           {`echo 1:7,`, map[string]string{"plug": "7", "switch": "2"}, bmc.Unknown},
		"another separator":          {`echo "worker,5|"`, map[string]string{"plug": "worker,5", "plug_separator": ";", "separator": "|"}, bmc.Off},
		"by UUID":                    {`echo ab-12,worker-5`, map[string]string{"uuid": "ab-12"}, bmc.Off},
		"by another UUID":            {`echo ab-12,worker-5`, map[string]string{"uuid": "ab-13", "plug": "worker-5"}, bmc.Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := device()
			if c.parameters != nil {
				d.Parameters = c.parameters
			}
			cl := client(t, listing(t, c.list, saysOff), d)
			r := bmctest.Read(t, cl)
			assert.Equal(t, c.want, r.State, r.Raw)
			if c.want == bmc.Unknown {
				assert.Contains(t, r.Raw, "is not listed")
			}
			bmctest.Send(t, cl, bmc.CommandOff)
			assert.Equal(t, c.want, bmctest.Read(t, cl).State, "a command makes no outlet")
		})
	}
}

// A list that cannot be read lists nothing.
func TestListThatFails(t *testing.T) {
	for list, kind := range map[string]bmc.Kind{
		`echo 7,worker-5; echo "ERROR: Connection lost" >&2; exit 1`: bmc.KindUnreachable,
		`echo 7,worker-5; exit 2`:                                    bmc.KindProtocol,
		`while :; do echo 7,worker-5; done`:                          bmc.KindProtocol,
	} {
		_, err := client(t, listing(t, list, saysOff), device()).Read(t.Context())
		assert.Contains(t, bmctest.Failed(t, err, kind).Error(), "list of outlets")
	}
	c := client(t, listing(t, `sleep 1618.3`, saysOff), device())
	must.Do(c.Describe(t.Context()))(t)
	c.timing.ReadTimeout = 500 * time.Millisecond
	_, err := c.Read(t.Context())
	bmctest.Failed(t, err, bmc.KindUnreachable)
	assert.Eventually(t, gone(t, "1618.3"), time.Minute, 10*time.Millisecond)
}

// The list is asked for an Off alone, and believed for a minute at most.
func TestListIsAskedSeldom(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	asked, on := filepath.Join(dir, "asked"), filepath.Join(dir, "on")
	p := listing(t, "echo x >>"+asked+"; echo 7,", "[ -e "+on+" ] && exit 0\n"+saysOff)
	times := func() int {
		b, _ := os.ReadFile(asked)
		return strings.Count(string(b), "x")
	}
	require.NoError(t, os.WriteFile(on, nil, 0o600))
	c := client(t, p, device())
	require.Equal(t, bmc.On, bmctest.Read(t, c).State)
	assert.Zero(t, times())
	require.NoError(t, os.Remove(on))
	require.Equal(t, bmc.Off, bmctest.Read(t, c).State)
	require.Equal(t, bmc.Off, bmctest.Read(t, c).State)
	assert.Equal(t, 1, times())
	c.listedAt = c.listedAt.Add(-listAge)
	require.Equal(t, bmc.Off, bmctest.Read(t, c).State)
	assert.Equal(t, 2, times())
	require.Equal(t, bmc.Off, bmctest.Read(t, client(t, p, device())).State)
	assert.Equal(t, 3, times(), "what another session saw is not believed")
}

// One outlet of several, of which nothing tells whether it is there, is no level.
func TestAgentsWithoutAList(t *testing.T) {
	t.Parallel()
	text := strings.Replace(header, `<action name="list"/>`, "", 1) + "cat >/dev/null; echo Status: OFF; exit 2\n"
	d := device()
	c := client(t, raw(t, text), d)
	_, err := c.Read(t.Context())
	assert.Contains(t, bmctest.Failed(t, err, bmc.KindUnsupported).Error(), "cannot list its outlets")
	_, err = c.Send(t.Context(), bmc.CommandOff)
	assert.Equal(t, bmc.SentNo, bmctest.Failed(t, err, bmc.KindUnsupported).Sent)
	d.Parameters = nil
	assert.Equal(t, bmc.Off, bmctest.Read(t, client(t, raw(t, text), d)).State, "the whole box is always there")

	d = installed(t, "fence_powerman", "127.0.0.1:1", map[string]string{"plug": "t1"})
	d.Username, d.Password = "", bmc.Secret{}
	_, err = client(t, systemPath, d).Read(t.Context())
	assert.Contains(t, bmctest.Failed(t, err, bmc.KindUnsupported).Error(), "cannot list its outlets")
}

func FuzzList(f *testing.F) {
	f.Add([]byte("7,worker-5\n"), "7", ",")
	f.Add([]byte("N/A\n"), "N/A", ",")
	f.Add([]byte("7,7\n7,7"), "7", ":")
	f.Fuzz(func(t *testing.T, list []byte, plug, separator string) {
		if separator == "" || plug == "" {
			return
		}
		if (outlet{plug}).isListed(list, separator) && (!strings.Contains(string(list), plug) || !strings.Contains(string(list), separator)) {
			t.Fatalf("%q with %q lists %q", list, separator, plug)
		}
	})
}

// hmc writes an ssh that leads to the shell of an HMC with one partition, worker-5, and
// gives a function that sets the partition's state.
func hmc(t *testing.T) (ssh string, setState func(string)) {
	t.Helper()
	dir := t.TempDir()
	ssh = filepath.Join(dir, "ssh")
	executable(t, ssh, `#!/bin/sh
printf 'hscroot@hmc:~> '
while read -r line; do
	state=$(cat `+dir+`/state)
	case "$line" in
	*'-F name:state'*) echo "worker-5:$state";;
	*"--filter 'lpar_names="*) echo "name=worker-5,lpar_id=4,lpar_env=aixlinux,state=$state,resource_config=1";;
	*'-o shutdown'*'-n worker-5'*) echo 'Not Activated' >`+dir+`/state;;
	*'-o on'*'-n worker-5'*) echo Running >`+dir+`/state;;
	quit*) exit;;
	esac
	printf 'hscroot@hmc:~> '
done
`)
	setState = func(state string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "state"), []byte(state+"\n"), 0o644))
	}
	return ssh, setState
}

// fence_lpar says off of every state that it does not know: a partition of a managed system
// that the HMC has lost is not off. // I1
func TestFenceLPAR(t *testing.T) {
	t.Parallel()
	ssh, setState := hmc(t)
	d := installed(t, "fence_lpar", "", map[string]string{
		"managed": "p9-1", "plug": "worker-5", "identity_file": ssh, "ssh_path": ssh, // this ssh needs no key
	})
	d.Endpoint.Host, d.Username, d.Password = "192.0.2.9", "hscroot", bmc.Secret{}
	c := client(t, systemPath, d)
	for state, want := range map[string]bmc.PowerState{
		"Running": bmc.On, "Open Firmware": bmc.On, "Shutting Down": bmc.On, "Not Activated": bmc.Off,
		"Not Available": bmc.Unknown, "Migrating - Running": bmc.Unknown, "Error": bmc.Unknown,
	} {
		setState(state)
		r := bmctest.Read(t, c)
		assert.Equal(t, want, r.State, "%s: %s", state, r.Raw)
	}
	setState("Not Available")
	receipt := bmctest.Send(t, c, bmc.CommandOff)
	assert.True(t, receipt.Already, "the agent takes the partition for off, and sends nothing")
	assert.Contains(t, bmctest.Read(t, c).Raw, "Not Available")
	for _, cmd := range []bmc.Command{bmc.CommandOn, bmc.CommandOff} {
		setState(map[bmc.Command]string{bmc.CommandOn: "Not Activated", bmc.CommandOff: "Running"}[cmd])
		bmctest.Send(t, c, cmd)
		assert.Equal(t, map[bmc.Command]bmc.PowerState{bmc.CommandOn: bmc.On, bmc.CommandOff: bmc.Off}[cmd], bmctest.Read(t, c).State)
	}
}

// The debug output of an agent would show a password, also in the system log. // I25
func TestFenceLPARTakesNoPassword(t *testing.T) {
	d := installed(t, "fence_lpar", "", map[string]string{"managed": "p9-1", "plug": "worker-5", "identity_file": "/k"})
	d.Endpoint.Host = "192.0.2.9"
	d.Password = bmc.NewSecret("c4nary-secret")
	_, err := client(t, systemPath, d).Read(t.Context())
	assert.ErrorContains(t, bmctest.Failed(t, err, bmc.KindUnsupported), "set the parameter identity_file, and no password")
}

// vcenter is the part of vCenter that fence_vmware_rest asks, with one machine of a name with a blank among others. It gives a
// function that sets the machine's state.
func vcenter(t *testing.T) (addr string, setState func(string)) {
	t.Helper()
	type machine struct {
		VM    string `json:"vm"`
		Name  string `json:"name"`
		State string `json:"power_state"`
	}
	var mu sync.Mutex
	all := []machine{{"vm-1", "worker-4", "POWERED_OFF"}, {"vm-2", "worker 5", "POWERED_ON"}}
	setState = func(state string) {
		mu.Lock()
		defer mu.Unlock()
		all[1].State = state
	}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := any("")
		switch r.URL.Path {
		case "/rest/com/vmware/cis/session":
			answer = "t0ken"
		case "/rest/vcenter/vm/vm-2/power/start":
			setState("POWERED_ON")
		case "/rest/vcenter/vm/vm-2/power/stop":
			setState("POWERED_OFF")
		case "/rest/vcenter/vm":
			names, states := r.URL.Query()["filter.names"], r.URL.Query()["filter.power_states"]
			mu.Lock()
			defer mu.Unlock()
			answer = slices.DeleteFunc(slices.Clone(all), func(m machine) bool {
				return len(names) > 0 && !slices.Contains(names, m.Name) || len(states) > 0 && !slices.Contains(states, m.State)
			})
		default:
			w.WriteHeader(http.StatusNotFound)
		}
		assert.NoError(t, json.NewEncoder(w).Encode(map[string]any{"value": answer}))
	}))
	t.Cleanup(server.Close)
	return server.Listener.Addr().String(), setState
}

// fence_vmware_rest says off of a suspended machine, and its on resumes it. Only what vCenter lists as powered off is off. // I1
func TestFenceVMwareREST(t *testing.T) {
	t.Parallel()
	addr, setState := vcenter(t)
	d := installed(t, "fence_vmware_rest", addr, map[string]string{"plug": "worker 5", "ssl_insecure": "1", "filter": "filter.names=worker-4"})
	c := client(t, systemPath, d)
	assert.Equal(t, bmc.On, bmctest.Read(t, c).State)
	bmctest.Send(t, c, bmc.CommandOff)
	assert.Equal(t, bmc.Off, bmctest.Read(t, c).State, "whatever the filter of the entry lists")
	setState("SUSPENDED")
	r := bmctest.Read(t, c)
	assert.Equal(t, bmc.Unknown, r.State, "the list of a moment ago is no state: %s", r.Raw)
	assert.Equal(t, "the agent reports off, and does not list as off worker 5", r.Raw)
	receipt := bmctest.Send(t, c, bmc.CommandOff)
	assert.True(t, receipt.Already, "the agent takes the machine for off, and sends nothing")
	bmctest.Send(t, c, bmc.CommandOn)
	assert.Equal(t, bmc.On, bmctest.Read(t, c).State)
}

// Agents that read back a note of their own, and no power: their off is a message
// on a disk, a file, or a cable that does not answer. None proves a host off. // I1
func TestAgentsWithoutPowerAreRefused(t *testing.T) {
	for agent, why := range nonPowerAgents {
		_, err := New(bmc.Device{Driver: bmc.DriverFenceAgent, Agent: agent}, timing)
		assert.ErrorContains(t, bmctest.Failed(t, err, bmc.KindUnsupported), why, agent)
	}
}

// Agents that say off of a machine that sleeps, that runs with a fault, or of which its manager knows nothing, send it no off, and
// their on wakes it with all that it had in memory. // I1
func TestAgentsThatTakeSleepForOffAreRefused(t *testing.T) {
	for _, agent := range []string{"fence_amt", "fence_cisco_ucs", "fence_ibmz", "fence_vmware_soap"} {
		t.Run(agent, func(t *testing.T) {
			_, err := New(installed(t, agent, "", nil), timing)
			assert.ErrorContains(t, bmctest.Failed(t, err, bmc.KindUnsupported), "it reports off for a")
		})
	}
}

// A link to an agent is that agent, with what its Off needs and how it selects a machine. // I1, I8
func TestLinkIsTheAgentThatItLeadsTo(t *testing.T) {
	t.Parallel()
	p := agent(t, `echo "Status: OFF"; exit 2`)
	dir := p.dirs[0]
	for _, name := range []string{"fence_lpar", "fence_redfish"} {
		require.NoError(t, os.Link(filepath.Join(dir, "fence_test"), filepath.Join(dir, name)))
		require.NoError(t, os.Symlink(name, filepath.Join(dir, name+"_link")))
	}
	d := device()
	assert.Equal(t, bmc.Off, bmctest.Read(t, client(t, p, d)).State)

	d.Agent = "fence_lpar_link"
	_, err := client(t, p, d).Read(t.Context())
	assert.ErrorContains(t, bmctest.Failed(t, err, bmc.KindUnsupported), "set the parameter identity_file, and no password")
	d.Password = bmc.Secret{}
	r := bmctest.Read(t, client(t, p, d))
	assert.Equal(t, bmc.Unknown, r.State)
	assert.Equal(t, "the agent reports off and does not show the state of the device", r.Raw)

	d.Agent = "fence_redfish_link"
	_, err = client(t, p, d).Read(t.Context())
	assert.ErrorContains(t, bmctest.Failed(t, err, bmc.KindUnsupported), "set the parameter systems_uri")
}

// Of the agents of the package fence-agents those are taken that switch machines or
// outlets. A new one must be looked at before it joins them here.
func TestInstalledAgents(t *testing.T) {
	t.Parallel()
	installed(t, "fence_ipmilan", "", nil)
	paths := must.Do(filepath.Glob("/usr/sbin/fence_*"))(t)
	require.NotEmpty(t, paths)
	for i, path := range paths {
		if i%6 != 0 && !dice.Soak() { // ninety programs in Python; which there are changes with Debian alone
			continue
		}
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
var switching = " fence_aliyun fence_alom fence_apc fence_apc_snmp fence_aws fence_azure_arm fence_bladecenter fence_cdu " +
	"fence_cyberpower_ssh fence_docker fence_drac fence_drac5 fence_eaton_snmp fence_ecloud fence_emerson " +
	"fence_eps fence_gce fence_hds_cb fence_hpblade fence_ibm_powervs fence_ibm_vpc fence_ibmblade fence_idrac " +
	"fence_ilo fence_ilo2 fence_ilo3 fence_ilo3_ssh fence_ilo4 fence_ilo4_ssh fence_ilo5 fence_ilo5_ssh fence_ilo_moonshot " +
	"fence_ilo_mp fence_ilo_ssh fence_imm fence_intelmodular fence_ipdu fence_ipmilan fence_ipmilanplus fence_ironic " +
	"fence_kubevirt fence_ldom fence_lindypdu fence_lpar fence_netio fence_openstack fence_powerman fence_pve fence_raritan " +
	"fence_raritan_px3 fence_redfish fence_rhevm fence_rsa fence_rsb fence_tripplite_snmp fence_vbox " +
	"fence_virsh fence_vmware fence_vmware_rest fence_vmware_vcloud fence_wti fence_xenapi fence_zvmip " +
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
