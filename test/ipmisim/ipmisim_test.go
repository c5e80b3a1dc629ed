package ipmisim_test

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc/bmctest"
	"github.com/fenced/fenced/test/ipmisim"
	"github.com/fenced/fenced/test/must"
	"github.com/fenced/fenced/test/pace"
)

// ipmitool asks a BMC with a client that is not ours.
func ipmitool(t *testing.T, b ipmisim.BMC, suite string, words ...string) string {
	t.Helper()
	if _, err := exec.LookPath("ipmitool"); err != nil {
		bmctest.Missing(t, "ipmitool is not installed")
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

func startDebian(t *testing.T, o ipmisim.Options) *ipmisim.DebianBMC {
	t.Helper()
	b, err := ipmisim.StartDebian(t.Context(), o)
	if errors.Is(err, ipmisim.ErrNoDebianSim) {
		bmctest.Missing(t, err.Error())
	}
	require.NoError(t, err)
	t.Cleanup(b.Stop)
	return b
}

func startPyghmi(t *testing.T, o ipmisim.Options) *ipmisim.PyghmiBMC {
	t.Helper()
	b, err := ipmisim.StartPyghmi(t.Context(), o)
	if errors.Is(err, ipmisim.ErrNoPyghmi) {
		bmctest.Missing(t, err.Error())
	}
	require.NoError(t, err)
	t.Cleanup(b.Stop)
	return b
}

func startGo(t *testing.T, o ipmisim.Options) *ipmisim.GoBMC {
	t.Helper()
	b := must.Do(ipmisim.StartGo(t.Context(), o))(t)
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
			on := must.Do(b.Source(t.Context()))(t)
			assert.False(t, on)
			require.NoError(t, b.SetPower(true))
			assert.Equal(t, "Chassis Power is on", ipmitool(t, b, p.suite, "chassis", "power", "status"))
		})
	}
}

func TestOptionsThatCannotBeServed(t *testing.T) {
	for _, o := range []ipmisim.Options{{Suites: []int{99}}, {Suites: []int{0, 12}}, {UUID: "4c4c"}, {Addr: "nowhere"}} {
		_, err := ipmisim.StartGo(t.Context(), o)
		assert.Error(t, err, "%+v", o)
	}
}

// onEach runs fn against each kind of BMC.
func onEach(t *testing.T, fn func(*testing.T, ipmisim.Faults)) {
	t.Run("go-ipmi", func(t *testing.T) {
		t.Parallel()
		fn(t, startGo(t, ipmisim.Options{Suites: []int{3}}))
	})
	t.Run("ipmi_sim", func(t *testing.T) {
		t.Parallel()
		fn(t, startDebian(t, ipmisim.Options{}))
	})
	t.Run("pyghmi", func(t *testing.T) {
		t.Parallel()
		fn(t, startPyghmi(t, ipmisim.Options{}))
	})
}

// powerOff orders off, which the BMC accepts.
func powerOff(t *testing.T, b ipmisim.BMC) { ipmitool(t, b, "3", "chassis", "power", "off") }

func TestANewOrderOverrulesALateOne(t *testing.T) {
	onEach(t, func(t *testing.T, b ipmisim.Faults) {
		var wait time.Duration
		pace.Before(t, 2*time.Second, func(late time.Duration) func() {
			require.NoError(t, b.SetPower(true))
			require.NoError(t, b.LateOff(late))
			powerOff(t, b)
			on := b.Power()
			require.NoError(t, b.SetPower(true))
			wait = late
			return func() { assert.True(t, on, "the order is not carried out yet") }
		})
		time.Sleep(wait + 200*time.Millisecond)
		assert.True(t, b.Power())
	})
}

// TestAPortThatIsTaken: another BMC that answers at the address of an ipmi_sim is
// not taken for it.
func TestAPortThatIsTaken(t *testing.T) {
	b := startDebian(t, ipmisim.Options{})
	b.Kill()
	thief := must.Do(ipmisim.StartGo(t.Context(), ipmisim.Options{Addr: b.Addr()}))(t)
	assert.ErrorContains(t, b.Restart(), "somebody else took the port")
	thief.Stop()
	assert.NoError(t, b.Restart())
}

// TestKG: each kind of BMC with a key of its own, as another client sees it.
func TestKG(t *testing.T) {
	o := ipmisim.Options{KG: "the-bmc-key", Suites: []int{3}}
	for name, b := range map[string]ipmisim.BMC{"go-ipmi": startGo(t, o), "ipmi_sim": startDebian(t, o), "pyghmi": startPyghmi(t, o)} {
		assert.Equal(t, "Chassis Power is on", ipmitool(t, b, "3", "-k", o.KG, "chassis", "power", "status"), name)
	}
}

// TestPyghmiEndsAtARefusal: it is the peer that it is used as. A refusal of a session
// whose RAKP 2 it did not send ends it, with the reason in its log.
func TestPyghmiEndsAtARefusal(t *testing.T) {
	b := startPyghmi(t, ipmisim.Options{})
	conn := must.Do(net.Dial("udp", b.Addr()))(t)
	defer conn.Close()
	header := func(payload, length byte) []byte {
		return []byte{0x06, 0x00, 0xff, 0x07, 0x06, payload, 0, 0, 0, 0, 0, 0, 0, 0, length, 0}
	}
	open := append(header(ipmisim.PayloadOpenRequest, 32), make([]byte, 32)...)
	must.Do(conn.Write(open))(t)
	var buf [256]byte
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(pace.Hang)))
	must.Do(conn.Read(buf[:]))(t)
	_, ended := b.Ended()
	require.False(t, ended)
	must.Do(conn.Write(append(header(ipmisim.PayloadRAKP3, 8), 1, 1, 0, 0, 0, 0, 0, 0)))(t)
	var log string
	require.Eventually(t, func() bool { log, ended = b.Ended(); return ended }, pace.Hang, 10*time.Millisecond)
	assert.Contains(t, log, "AttributeError")
}
