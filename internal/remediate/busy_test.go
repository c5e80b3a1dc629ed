package remediate

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/reason"
)

// crowds are the searches of BMCs without a free session.
var crowds = []variant{
	{name: "no session for a while", states: 99_000, levelled: levelled{bmc: crowded}, faults: join(engine, []fault{lostPower, newSession, pause, unfenceOrder}), budget: 2, runTimeout: 5 * time.Minute, want: "Done"},
	{name: "no session for a while, sick, Metal3", levelled: levelled{bmc: crowded}, sick: true, bmh: true, faults: join(crashes, []fault{lostAPI, foreignOn}), budget: 1, want: "Done"},
	{name: "no session for a while, with outlets", levelled: levelled{levels: 2, bmc: crowded}, faults: join(crashes, []fault{lostPower}), budget: 1, want: "Done"},
	{name: "no session ever again", levelled: levelled{bmc: full}, faults: join(crashes, []fault{pause, unfenceOrder}), budget: 1, want: "Held BMCSessions"},
	{name: "waits: no session ever again", retry: 200 * time.Millisecond, levelled: levelled{bmc: full}, faults: crashes, budget: 1, want: "Waiting BMCSessions"},
}

// A BMC that has no session free, or asks to be tried later, does not use up the time of step 1. The
// run goes on where it was, or stops after ten minutes. Another power level is not waited for.
func TestBusyBMCStopsTheClock(t *testing.T) {
	for _, kind := range []bmc.Kind{bmc.KindSessions, bmc.KindBusy, bmc.KindUnreachable} {
		for _, levels := range []int{1, 2} {
			r, s := begin(PowerOff, 0)
			r.Intervened, r.Limits.Levels = true, levels
			s.Power, s.Proof, s.PowerError = bmc.Reading{}, bmc.Proof{}, kind
			at := noon
			for ; r.Step == PowerOff && r.Level == 0 && at.Sub(noon) < time.Hour; at = at.Add(sec) {
				s.At = at
				r, _, _ = Next(r, s, at)
			}
			lasted := at.Sub(noon).Round(5 * sec)
			if kind == bmc.KindUnreachable || levels > 1 {
				assert.Equal(t, r.Limits.OffDeadline, lasted, "%s %d", kind, levels)
				continue
			}
			assert.Equal(t, r.Limits.OffDeadline+busyAtMost, lasted, kind)
			assert.Equal(t, reason.OfBMC(string(kind)), r.Reason)
		}
	}
}

func TestTimeAfterABusyBMC(t *testing.T) {
	r, s := begin(PowerOff, 10*sec)
	r.Intervened = true
	s.Power, s.Proof, s.PowerError = bmc.Reading{}, bmc.Proof{}, bmc.KindSessions
	before := r.Deadline()
	r, _, _ = Next(r, s, noon)
	assert.Equal(t, before.Add(busyAtMost), r.Deadline(), "at the latest")
	s.At, s.PowerError = noon.Add(minute), bmc.KindUnreachable
	r, _, _ = Next(r, s, noon.Add(minute))
	assert.Equal(t, before.Add(minute), r.Deadline(), "what was left is left still")
	require.Zero(t, r.BusySince)

	untouched, s := begin(PowerOff, 0)
	untouched.Intervened = false
	s.Power, s.PowerError = bmc.Reading{}, bmc.KindBusy
	untouched, _, _ = Next(untouched, s, noon)
	assert.Zero(t, untouched.BusySince, "a run that has done nothing is dropped, and begins again later")
}

// Sessions that killed processes left are counted until the BMC has ended them.
func TestSessionsLeftOpen(t *testing.T) {
	at, r := noon, Run{Limits: Limits{SessionTimeout: minute}}
	open := func(first bool) (err error) {
		r.Sessions, err = r.OpenSession(first, at)
		return err
	}
	require.NoError(t, open(true))
	for range 5 {
		require.NoError(t, open(false), "this process ended its sessions itself")
	}
	for range maxLeftOpen - 1 { // killed
		at = at.Add(sec)
		require.NoError(t, open(true))
	}
	for range 5 { // each of them opens none, so it leaves none
		at = at.Add(sec)
		require.ErrorContains(t, open(true), "2 sessions open; the next is opened at "+noon.Add(64*sec).Format(time.TimeOnly))
	}
	at = noon.Add(64 * sec)
	require.NoError(t, open(true))
	assert.Len(t, r.Sessions.Left, 1)

	r.Sessions = Sessions{Left: []time.Time{noon.Add(time.Hour), noon.Add(time.Hour)}}
	at = noon
	require.NoError(t, open(true), "by a clock that is ahead: nobody knows")
	assert.True(t, r.Sessions.Open)

	r.Limits.SessionTimeout = 0
	for range 9 {
		require.NoError(t, open(true))
	}
	assert.Zero(t, r.Sessions)
}
