package ipmisim_test

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/test/ipmisim"
	"github.com/fenced/fenced/test/pace"
)

// ipmitool asks a BMC with a client that is not ours.
func ipmitool(t *testing.T, b ipmisim.BMC, suite string, words ...string) string {
	t.Helper()
	if _, err := exec.LookPath("ipmitool"); err != nil {
		missing(t, "ipmitool is not installed")
	}
	host, port, err := net.SplitHostPort(b.Addr())
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), pace.Tries)
	defer cancel()
	// A minute for each answer: ipmitool itself gives up after a few seconds.
	args := append([]string{"-I", "lanplus", "-N", "10", "-R", "6", "-C", suite, "-H", host, "-p", port, "-U", "admin", "-E"}, words...)
	cmd := exec.CommandContext(ctx, "ipmitool", args...)
	cmd.Env = append(os.Environ(), "IPMI_PASSWORD=secret")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	return strings.TrimSpace(string(out))
}

// missing skips where a Debian package is absent, except in CI.
func missing(t *testing.T, why string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(why)
	}
	t.Skip(why)
}

func startDebian(t *testing.T, o ipmisim.Options) *ipmisim.DebianBMC {
	t.Helper()
	b, err := ipmisim.StartDebian(t.Context(), o)
	if errors.Is(err, ipmisim.ErrNoDebianSim) {
		missing(t, err.Error())
	}
	require.NoError(t, err)
	t.Cleanup(b.Stop)
	return b
}

func startPyghmi(t *testing.T, o ipmisim.Options) *ipmisim.PyghmiBMC {
	t.Helper()
	b, err := ipmisim.StartPyghmi(t.Context(), o)
	if errors.Is(err, ipmisim.ErrNoPyghmi) {
		missing(t, err.Error())
	}
	require.NoError(t, err)
	t.Cleanup(b.Stop)
	return b
}

func startGo(t *testing.T, o ipmisim.Options) *ipmisim.GoBMC {
	t.Helper()
	b, err := ipmisim.StartGo(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(b.Stop)
	return b
}

func TestPowerAsAnotherClientSeesIt(t *testing.T) {
	peers := []struct {
		name, suite string
		start       func(*testing.T) ipmisim.BMC
	}{
		{"go-ipmi suite 3", "3", func(t *testing.T) ipmisim.BMC { return startGo(t, ipmisim.Options{Suites: []int{3}}) }},
		{"go-ipmi suite 17", "17", func(t *testing.T) ipmisim.BMC { return startGo(t, ipmisim.Options{}) }},
		{"ipmi_sim suite 3", "3", func(t *testing.T) ipmisim.BMC { return startDebian(t, ipmisim.Options{}) }},
		{"pyghmi suite 3", "3", func(t *testing.T) ipmisim.BMC { return startPyghmi(t, ipmisim.Options{}) }},
	}
	for _, p := range peers {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			b := p.start(t)
			assert.True(t, b.Power(), "a host starts on")
			assert.Equal(t, "Chassis Power is on", ipmitool(t, b, p.suite, "chassis", "power", "status"))

			require.NoError(t, b.LieOff(true))
			assert.Equal(t, "Chassis Power is off", ipmitool(t, b, p.suite, "chassis", "power", "status"))
			assert.True(t, b.Power(), "a lie does not switch the host")
			require.NoError(t, b.LieOff(false))

			require.NoError(t, b.IgnoreOff(true))
			ipmitool(t, b, p.suite, "chassis", "power", "off")
			assert.True(t, b.Power(), "an ignored off does not switch the host")
			require.NoError(t, b.IgnoreOff(false))

			ipmitool(t, b, p.suite, "chassis", "power", "off")
			on, err := b.Source(t.Context())
			require.NoError(t, err)
			assert.False(t, on)
			require.NoError(t, b.SetPower(true))
			assert.Equal(t, "Chassis Power is on", ipmitool(t, b, p.suite, "chassis", "power", "status"))
		})
	}
}

func TestStopFreesThePort(t *testing.T) {
	for _, b := range []ipmisim.BMC{startGo(t, ipmisim.Options{}), startDebian(t, ipmisim.Options{}), startPyghmi(t, ipmisim.Options{})} {
		b.Stop()
		b.Stop()
		again, err := ipmisim.StartGo(t.Context(), ipmisim.Options{Addr: b.Addr()})
		require.NoError(t, err)
		again.Stop()
	}
}

func TestOptionsThatCannotBeServed(t *testing.T) {
	for _, o := range []ipmisim.Options{{Suites: []int{99}}, {Suites: []int{0, 12}}, {UUID: "4c4c"}, {Addr: "nowhere"}} {
		_, err := ipmisim.StartGo(t.Context(), o)
		assert.Error(t, err, "%+v", o)
	}
}
