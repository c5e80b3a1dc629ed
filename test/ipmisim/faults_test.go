package ipmisim_test

import (
	"context"
	"net"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/test/ipmisim"
	"github.com/fenced/fenced/test/pace"
)

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

func status(t *testing.T, b ipmisim.BMC) string {
	t.Helper()
	return ipmitool(t, b, "3", "chassis", "power", "status")
}

// answers says whether the BMC answers within half a second.
func answers(t *testing.T, b ipmisim.BMC) bool {
	t.Helper()
	host, port, err := net.SplitHostPort(b.Addr())
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	return exec.CommandContext(ctx, "ipmitool", "-I", "lan", "-H", host, "-p", port, "-A", "NONE", "channel", "authcap", "14", "2").Run() == nil
}

func TestOffComesLate(t *testing.T) {
	onEach(t, func(t *testing.T, b ipmisim.Faults) {
		pace.Before(t, 5*time.Second, func(late time.Duration) func() {
			require.NoError(t, b.SetPower(true))
			require.NoError(t, b.LateOff(late))
			powerOff(t, b)
			on, said := b.Power(), status(t, b)
			return func() {
				assert.True(t, on, "accepted is not off")
				assert.Equal(t, "Chassis Power is on", said, "and the BMC does not lie")
			}
		})
		assert.Eventually(t, func() bool { return !b.Power() }, pace.Tries, 10*time.Millisecond)
	})
}

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

func TestHostComesBackByItself(t *testing.T) {
	onEach(t, func(t *testing.T, b ipmisim.Faults) {
		pace.Before(t, 5*time.Second, func(back time.Duration) func() {
			require.NoError(t, b.SetPower(true))
			require.NoError(t, b.BackOn(back))
			powerOff(t, b)
			on := b.Power()
			return func() { assert.False(t, on) }
		})
		assert.Eventually(t, b.Power, pace.Tries, 10*time.Millisecond)
		assert.Equal(t, "Chassis Power is on", status(t, b))
	})
}

func TestHangAndGoOn(t *testing.T) {
	onEach(t, func(t *testing.T, b ipmisim.Faults) {
		status(t, b) // or skips without ipmitool
		require.NoError(t, b.Hang(true))
		assert.False(t, answers(t, b))
		require.NoError(t, b.Hang(false))
		assert.Equal(t, "Chassis Power is on", status(t, b))
	})
}

func TestRestartKeepsTheHost(t *testing.T) {
	onEach(t, func(t *testing.T, b ipmisim.Faults) {
		powerOff(t, b)
		require.NoError(t, b.Restart())
		assert.False(t, b.Power())
		assert.Equal(t, "Chassis Power is off", status(t, b))
	})
}

func TestSessionsAreExhaustedAndFreed(t *testing.T) {
	b := startGo(t, ipmisim.Options{})
	require.NoError(t, b.Exhaust())
	assert.Equal(t, 4, b.Sessions())
	require.NoError(t, b.Restart())
	assert.Zero(t, b.Sessions())
}

// TestAPortThatIsTaken: another BMC that answers at the address of an ipmi_sim is
// not taken for it.
func TestAPortThatIsTaken(t *testing.T) {
	b := startDebian(t, ipmisim.Options{})
	b.Kill()
	thief, err := ipmisim.StartGo(t.Context(), ipmisim.Options{Addr: b.Addr()})
	require.NoError(t, err)
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
	conn, err := net.Dial("udp", b.Addr())
	require.NoError(t, err)
	defer conn.Close()
	header := func(payload, length byte) []byte {
		return []byte{0x06, 0x00, 0xff, 0x07, 0x06, payload, 0, 0, 0, 0, 0, 0, 0, 0, length, 0}
	}
	open := append(header(ipmisim.PayloadOpenRequest, 32), make([]byte, 32)...)
	_, err = conn.Write(open)
	require.NoError(t, err)
	var buf [256]byte
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(pace.Hang)))
	_, err = conn.Read(buf[:])
	require.NoError(t, err)
	_, ended := b.Ended()
	require.False(t, ended)
	_, err = conn.Write(append(header(ipmisim.PayloadRAKP3, 8), 1, 1, 0, 0, 0, 0, 0, 0))
	require.NoError(t, err)
	var log string
	require.Eventually(t, func() bool { log, ended = b.Ended(); return ended }, pace.Hang, 10*time.Millisecond)
	assert.Contains(t, log, "AttributeError")
}
