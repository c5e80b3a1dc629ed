package engine_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/test/fake"
)

// waiting lets the runs of an engine wait, with a first pause of a minute.
func waiting(o *engine.Options) { o.Run.RetryInterval = time.Minute }

// What heals ends the run by itself, with the Node Ready and whole. Nobody orders anything. // L5
func TestWaitingRunGoesOnByItself(t *testing.T) {
	for name, c := range map[string]struct {
		code   reason.Code
		from   remediate.Step // the step in which it breaks
		breaks func(*world)
		heal   func(*world)
	}{
		"the BMC is silent right after Off": {"BMCUnreachable", remediate.PowerOff,
			func(w *world) { w.FailReads(noAnswer()) }, func(w *world) { w.FailReads(nil) }},
		"the BMC refuses the account": {"BMCAuth", remediate.PowerOff,
			func(w *world) { w.FailReads(refusedAccount()) }, func(w *world) { w.FailReads(nil) }},
		"the rack has no power after the isolation": {reason.PowerOnFailed, remediate.PowerOn,
			func(w *world) { w.SetFault(fake.Hangs) }, func(w *world) { w.SetFault(fake.NoFault) }},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world, store *failingStore) {
				e, events, stop := start(t, w, store, waiting)
				until(t, e, c.from)
				c.breaks(w)
				r := until(t, e, remediate.Waiting)
				assert.Equal(t, c.code, r.Reason)
				time.Sleep(20 * time.Minute)
				assert.Zero(t, len(eventsOf(t, events, func(ev event.Event) bool { return ev.Step == remediate.Held })), "nobody is called")
				c.heal(w)
				until(t, e, remediate.Done)
				assert.True(t, w.On())
				assert.Equal(t, 1, w.Isolations())
				stop()
			})
		})
	}
}

// A host that was repaired after the power cycles were used up gets its labels back when it
// registers, while the run still waits for its next try.
func TestRepairedHostIsTakenBack(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.SetBootTime(never)
		e, _, stop := start(t, w, store, func(o *engine.Options) {
			waiting(o)
			o.Run.MaxAttempts = 1
		})
		time.Sleep(15 * time.Minute)
		r := only(t, e)
		require.Equal(t, remediate.Waiting, r.Step)
		require.Equal(t, reason.AttemptsExhausted, r.Reason)
		assert.WithinDuration(t, time.Now().Add(time.Hour), r.NextTry(), 15*time.Minute)
		w.SetBootTime(time.Minute)
		w.Do(func(s *fake.State) { // the repair
			s.Host("n-1").Power(false, "hand")
			s.Host("n-1").Power(true, "hand")
		})
		until(t, e, remediate.Done)
		assert.True(t, w.Restored())
		assert.Equal(t, 1, w.Isolations())
		stop()
	})
}

// If nothing repairs the host, the run tries another power cycle by itself, ever more rarely.
func TestAttemptsAreTriedAgain(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.SetBootTime(never)
		e, _, stop := start(t, w, store, func(o *engine.Options) {
			waiting(o)
			o.Run.MaxAttempts = 1
		})
		time.Sleep(100 * time.Minute)
		r := only(t, e)
		assert.Equal(t, remediate.Waiting, r.Step)
		assert.Equal(t, 2, r.Attempt)
		assert.Equal(t, 2, r.Wait.Count)
		w.SetBootTime(time.Minute)
		time.Sleep(4 * time.Hour)
		assert.Equal(t, remediate.Done, only(t, e).Step)
		stop()
	})
}

// Every gate is asked again before step 1 begins again: the run waits while one refuses. // I4, I11, I22, I23
func TestWaitingRunAsksEveryGateAgain(t *testing.T) {
	for code, bar := range bars {
		t.Run(string(code), func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world, store *failingStore) {
				w.SetFault(fake.IgnoresOff)
				e, events, stop := start(t, w, store, waiting)
				until(t, e, remediate.Waiting)
				bar(t, w, e)
				offs := w.Count(bmc.CommandOff)
				w.SetFault(fake.NoFault)
				time.Sleep(10 * time.Minute)
				assert.Equal(t, remediate.Waiting, only(t, e).Step)
				assert.Equal(t, offs, w.Count(bmc.CommandOff), "nothing is sent")
				assert.Zero(t, w.Isolations())
				refused := eventsOf(t, events, func(ev event.Event) bool { return ev.Type == event.Refused && ev.Run != "" })
				if code != reason.NotOwner { // it has no voice then
					require.NotEmpty(t, refused)
					assert.Equal(t, code, refused[0].Reason)
				}
				stop()
			})
		})
	}
}

// A target that is Ready again before its Node was isolated ends the run.
func TestTargetThatIsReadyAgainEndsTheWaitingRun(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.SetFault(fake.IgnoresOff)
		e, _, stop := start(t, w, store, waiting)
		until(t, e, remediate.Waiting)
		w.Recover()
		until(t, e, remediate.Aborted)
		assert.Zero(t, w.Isolations())
		stop()
	})
}

// An unfence or an abort of a Waiting run holds: it is not fenced again. // I23
func TestUnfencedRunIsNotFencedAgain(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e, _, stop := start(t, w, store, waiting)
		until(t, e, remediate.PowerOff)
		w.dead()
		until(t, e, remediate.Waiting)
		_, err := e.Hold(t.Context(), byHand)
		require.NoError(t, err)
		_, err = e.Unfence(t.Context(), byHand)
		require.NoError(t, err)
		until(t, e, remediate.Waiting) // the BMC is silent, so the host cannot be brought back
		time.Sleep(time.Hour)
		offs := w.Count(bmc.CommandOff)
		w.FailReads(nil)
		r := until(t, e, remediate.Aborted)
		assert.Equal(t, reason.Unfenced, r.Reason)
		assert.True(t, w.On())
		assert.Equal(t, offs, w.Count(bmc.CommandOff))
		stop()
	})
}

// A Waiting run has no slot, and waits for a free one before it begins again. // I11
func TestWaitingRunHasNoSlot(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.SetFault(fake.IgnoresOff)
		e, _, stop := start(t, w, store, func(o *engine.Options) {
			waiting(o)
			o.Guards.MaxFencesPerDay = 2
		})
		until(t, e, remediate.Waiting)
		time.Sleep(2 * time.Second)
		slots, err := state.LoadSlots(t.Context(), store)
		require.NoError(t, err)
		assert.Empty(t, slots)
		time.Sleep(3 * time.Hour)
		r := only(t, e)
		assert.Equal(t, remediate.Waiting, r.Step)
		assert.Len(t, r.Tries, 1, "an accepted Off counts as a run of the day") // I15
		stop()
	})
}
