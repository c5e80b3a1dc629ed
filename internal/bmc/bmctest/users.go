package bmctest

import (
	"context"
	"sync"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/power"
)

// closeLimit is how long the end of a session may take.
const closeLimit = 2 * time.Second

func closes(t T, d Driver, w *World) {
	u := use(t, d, w)
	u.close() // of what was never used
	u = use(t, d, w)
	u.read()
	for range 3 {
		start := time.Now()
		u.close()
		assert.Less(t, time.Since(start), closeLimit+d.Slack)
	}
	u = use(t, d, w)
	u.read()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	assert.NoError(t, u.p.Close(ended), "the caller's time is over; that is no failure of the BMC")
}

func closeLeavesNothing(t T, d Driver, w *World) {
	noneLeft(t, d, w, "no session left", func(u *user) {
		u.read()
		u.read()
		few(t, d, w)
		u.close()
	})
	noneLeft(t, d, w, "no session left after a cancelled read", func(u *user) {
		u.read()
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := u.p.Read(ended)
		require.Error(t, err)
		u.typed(err)
		_ = u.p.Close(ended) // the session must end all the same
	})
}

// forgets is less than the minute after which a BMC ends a session that is not used.
func (d Driver) forgets() time.Duration { return min(d.Patience, 30*time.Second) }

// noneLeft asserts that no session is left by what uses the device. It is used several
// times: a delay of the machine may cost one session, which the BMC ends later.
func noneLeft(t T, d Driver, w *World, what string, using func(*user)) {
	t.Helper()
	for tries := 1; ; tries++ {
		using(use(t, d, w))
		for end := time.Now().Add(d.forgets()); time.Now().Before(end); time.Sleep(pace) {
			if w.Sessions() == 0 {
				return
			}
		}
		require.Less(t, tries, leftTries, what)
	}
}

// leftTries is how often a session may be left.
const leftTries = 4

// cutLogins: who gives up in the middle of a login leaves nothing on the BMC.
func cutLogins(t T, d Driver, w *World) {
	u := use(t, d, w)
	for _, limit := range []time.Duration{time.Microsecond, 100 * time.Microsecond, time.Millisecond, 5 * time.Millisecond} {
		_, _ = u.try(limit)
	}
	u.close()
	u.until("no session left", func() bool { return w.CutLogins() == 0 })
}

// few waits until one session is open, or none: a delay of the machine may open two for a
// moment.
func few(t T, d Driver, w *World) {
	t.Helper()
	end := time.Now().Add(d.forgets())
	for w.Sessions() > 1 && time.Now().Before(end) {
		time.Sleep(pace)
	}
	assert.LessOrEqual(t, w.Sessions(), 1, "one session for all reads")
}

func closeHung(t T, d Driver, w *World) {
	u := use(t, d, w)
	u.read()
	require.NoError(t, w.Hang(true))
	start := time.Now()
	if err := u.p.Close(context.Background()); err != nil {
		u.typed(err)
	}
	assert.Less(t, time.Since(start), closeLimit+d.Slack)
	require.NoError(t, w.Hang(false))
}

// manyUsers share the BMC through actors: nobody fails, and one session serves all.
func manyUsers(t T, d Driver, w *World) {
	a := power.NewActors(w.Open)
	var wait sync.WaitGroup
	var powers []bmc.Power
	for range 6 {
		p, err := a.Urgent()(w.Device)
		require.NoError(t, err)
		powers = append(powers, p)
	}
	for _, p := range powers {
		wait.Go(func() {
			for range 4 {
				r, err := p.Read(t.Context())
				assert.NoError(t, err)
				assert.Equal(t, bmc.On, r.State)
			}
			if w.Sessions != nil {
				few(t, d, w)
			}
			_, err := p.Send(t.Context(), bmc.CommandOn)
			assert.NoError(t, err)
			assert.NoError(t, p.Close(context.Background()))
		})
	}
	wait.Wait()
	if w.Sessions == nil {
		return
	}
	for end := time.Now().Add(d.Patience); w.Sessions() > 0; time.Sleep(pace) {
		require.True(t, time.Now().Before(end), "a session is left")
	}
}
