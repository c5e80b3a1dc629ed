package bmclib

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/test/ipmisim"
	"github.com/fenced/fenced/test/redfishsim"
)

const uuid = "4c4c4544-0042-4810-8056-b4c04f4d3132"

// timing is generous: a test that waits for it in vain is wrong, not slow.
var timing = bmc.Timing{ReadTimeout: time.Minute, SendTimeout: time.Minute}

// A busy machine delays any of these by many seconds. Close has less, because the suite of all
// drivers bounds it.
func init() {
	dialTimeout, tlsTimeout, headerTimeout, closeTimeout = time.Minute, time.Minute, time.Minute, 20*time.Second
	bodyTimeout = 5 * time.Second // some tests wait for one that never comes
}

// missing skips where a Debian package is absent, except in CI.
func missing(t *testing.T, why string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(why)
	}
	t.Skip(why)
}

// ipmiBMC is a simulated BMC, and the device to reach it by ipmitool.
func ipmiBMC(t *testing.T, o ipmisim.Options) (*ipmisim.GoBMC, bmc.Device) {
	t.Helper()
	if _, err := exec.LookPath("ipmitool"); err != nil {
		missing(t, "ipmitool is not installed: "+err.Error())
	}
	sim, err := ipmisim.StartGo(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(sim.Stop)
	return sim, ipmiDevice(t, sim.Addr())
}

func ipmiDevice(t *testing.T, addr string) bmc.Device {
	t.Helper()
	h, p, err := net.SplitHostPort(addr)
	require.NoError(t, err)
	n, err := strconv.Atoi(p)
	require.NoError(t, err)
	return bmc.Device{
		Driver: bmc.DriverBMCLib, Username: "admin", Password: bmc.NewSecret("secret"),
		Endpoint: bmc.Endpoint{Protocol: bmc.ProtocolIPMI, Host: h, Port: n, Privilege: "ADMINISTRATOR"},
	}
}

// redfishBMC is a simulated service, and the device to reach it by gofish.
func redfishBMC(t *testing.T, o redfishsim.Options) (*redfishsim.Server, bmc.Device) {
	t.Helper()
	sim, err := redfishsim.Start(o)
	require.NoError(t, err)
	t.Cleanup(sim.Stop)
	e, err := bmc.ParseEndpoint(sim.BMCAddress())
	require.NoError(t, err)
	return sim, bmc.Device{
		Driver: bmc.DriverBMCLib, Endpoint: e, Username: "admin", Password: bmc.NewSecret("secret"),
		TLS: bmc.TLS{CA: sim.CAFile()},
	}
}

// open gives a client of d that is closed when the test ends.
func open(t *testing.T, d bmc.Device, dirs ...string) *Client {
	t.Helper()
	if dirs == nil {
		dirs = systemDirs
	}
	c, err := newClient(d, timing, dirs)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close(t.Context())) })
	return c
}

// script writes an executable that stands in for ipmitool, and gives its directory.
func script(t *testing.T, body string) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "ipmitool"), []byte("#!/bin/sh\n"+body+"\n"), 0o755))
	return dir
}
