package power

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
)

// A run and the sweep share a client. What the sweep saw at the address is not what
// the run decided about. // I8
func TestCommandIsForWhomItsUserSaw(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y, who := newYard(), "a"
		y.read = func(context.Context, bmc.Device) (bmc.Reading, error) {
			return bmc.Reading{State: bmc.On, At: time.Now(), Identity: bmc.Identity{UUID: who}}, nil
		}
		a := NewActors(y.open)
		run, sweep := opened(t, a.Urgent(), deviceAt("x")), opened(t, a.Patient(), deviceAt("x"))
		read := func(p bmc.Power, want string) {
			t.Helper()
			r, err := p.Read(within(t, time.Minute))
			require.NoError(t, err)
			require.Equal(t, want, r.Identity.UUID)
		}
		send := func() error { return errOf(run.Send(t.Context(), bmc.CommandOff)) }
		read(run, "a")
		read(sweep, "a")
		require.NoError(t, send(), "all saw the same")

		who = "b"
		read(sweep, "b")
		for range 2 {
			e, ok := errors.AsType[*bmc.Error](send())
			require.True(t, ok)
			assert.Equal(t, bmc.KindIdentity, e.Kind)
			assert.Equal(t, bmc.SentNo, e.Sent)
		}
		read(run, "b")
		require.NoError(t, send(), "its user knows by now whom")

		who = "c"
		y.read = func(context.Context, bmc.Device) (bmc.Reading, error) {
			return bmc.Reading{Identity: bmc.Identity{UUID: who}}, errors.New("torn")
		}
		require.Error(t, errOf(run.Read(t.Context())))
		require.NoError(t, send(), "what comes with an error says nothing")
		require.NoError(t, run.Close(t.Context()))
		require.NoError(t, sweep.Close(t.Context()))
		quiet(t, a)
	})
}
