package fenceagent

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/bmc/bmctest"
)

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
	receipt, err := c.Send(t.Context(), bmc.CommandOff)
	require.NoError(t, err)
	assert.True(t, receipt.Already, "the agent takes the partition for off, and sends nothing")
	assert.Contains(t, bmctest.Read(t, c).Raw, "Not Available")
	for _, cmd := range []bmc.Command{bmc.CommandOn, bmc.CommandOff} {
		setState(map[bmc.Command]string{bmc.CommandOn: "Not Activated", bmc.CommandOff: "Running"}[cmd])
		_, err := c.Send(t.Context(), cmd)
		require.NoError(t, err)
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
