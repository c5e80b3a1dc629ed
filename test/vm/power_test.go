package vm_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/test/pace"
)

const spacing = 3 * time.Second

// prove reads until the machine is proven off, and says how long it was read On
// before. Proven while the process lives is the one thing that must not be.
func (m *machine) prove(t *testing.T) (on time.Duration) {
	t.Helper()
	begin := time.Now()
	proof := bmc.Proof{Spacing: spacing, MaxAge: 5 * time.Second}
	for time.Since(begin) < 5*time.Minute {
		r := m.read(t)
		if r.State == bmc.On {
			on = r.At.Sub(begin)
		}
		proof = proof.Add(r)
		if proof.Proven(time.Now()) {
			require.Zero(t, m.pid(), "proven off, and it runs")
			require.GreaterOrEqual(t, r.At.Sub(proof.Since()), spacing)
			return on
		}
		time.Sleep(250 * time.Millisecond)
	}
	require.Fail(t, "not proven off")
	return 0
}

// TestVMOffAndOn: off ends the process, and on starts another.
func TestVMOffAndOn(t *testing.T) {
	t.Parallel()
	m := start(t)
	require.Equal(t, bmc.Off, m.read(t).State, "never started")
	first := m.on(t)
	require.True(t, bmc.UUIDsMatch(guid, m.read(t).Identity.UUID))

	_, err := m.power.Send(t.Context(), bmc.CommandOff)
	require.NoError(t, err)
	m.prove(t)

	second := m.on(t)
	require.NotEqual(t, first, second)
	_, err = m.power.Send(t.Context(), bmc.CommandOn)
	require.NoError(t, err, "already on")
	require.Equal(t, second, m.pid(), "on is not a reset")
}

// TestVMLateOff: a machine that cannot stop is off only when it was killed. Its BMC
// accepts the order at once.
func TestVMLateOff(t *testing.T) {
	t.Parallel()
	// The simulator's waits were measured to end after 3.7 to 7.3 s: a busy machine may look later.
	pace.Until(t, "the order is accepted and not done, and On is read until the machine is killed", func() bool {
		m := start(t)
		pid := m.on(t)
		require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
		_, err := m.power.Send(t.Context(), bmc.CommandOff)
		require.NoError(t, err, "accepted")
		notDone := pid == m.pid()
		return m.prove(t) > 2*time.Second && notDone
	})
}

// TestVMFoundOff: a machine that died is proven off without an order.
func TestVMFoundOff(t *testing.T) {
	t.Parallel()
	m := start(t)
	require.NoError(t, syscall.Kill(m.on(t), syscall.SIGKILL))
	m.prove(t)
}
