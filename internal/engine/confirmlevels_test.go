package engine_test

import (
	"bytes"
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
)

// deadOutlet is one that nobody can reach.
type deadOutlet struct{}

func (deadOutlet) Read(context.Context) (bmc.Reading, error) { return bmc.Reading{}, noAnswer() }

func (deadOutlet) Send(context.Context, bmc.Command) (bmc.Receipt, error) {
	return bmc.Receipt{}, noAnswer()
}

func (deadOutlet) Close(context.Context) error { return nil }

// wrongWord is a switch that is down: neither the Node, nor its BMC, nor the PDU answers, and a person
// says that the host is off, which runs.
func wrongWord(t *testing.T, w *world, store state.Store, first bmc.Opener) (e *engine.Engine, stop func()) {
	w.pauseCheck()
	withOutlet(w)
	w.FailReads(noAnswer()) // w.On() stays
	e, _, stop = start(t, w, store, func(o *engine.Options) {
		o.Open = func(d bmc.Device) (bmc.Power, error) {
			if d.Driver == bmc.DriverFenceAgent {
				return deadOutlet{}, nil
			}
			return first(d)
		}
	})
	time.Sleep(time.Second)
	_, err := e.ConfirmOff(t.Context(), byHand)
	require.NoError(t, err)
	for only(t, e).Level == 0 {
		time.Sleep(100 * time.Millisecond)
	}
	require.Equal(t, remediate.PowerOff, only(t, e).Step)
	return e, stop
}

// The BMC returns and reads On before the Node is isolated. // I26
func TestConfirmationIsContradictedByABMCThatReadsOn(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e, stop := wrongWord(t, w, store, func(bmc.Device) (bmc.Power, error) { return w.bmc(), nil })
		w.FailReads(nil)
		time.Sleep(10 * time.Minute)
		r := only(t, e)
		assert.Equal(t, remediate.Held, r.Step)
		assert.Equal(t, "ConfirmedOffContradicted", string(r.Reason))
		assert.Regexp(t, "^(power level 1 .*|ipmi://192.0.2.1:623) reads On", r.Note, "asked by the run, or heard by the witness of the level above")
		assert.Contains(t, r.Note, "reads On, although ada (uid 1000) confirmed that the host is off")
		assert.Zero(t, w.Isolations())
		stop()
	})
}

// heardOnce is a BMC that answers once after it was told to: one question, or all of one
// moment.
type heardOnce struct {
	bmc.Power
	told   *atomic.Bool
	moment *atomic.Int64 // nil for one question
}

func (h heardOnce) Read(ctx context.Context) (bmc.Reading, error) {
	now := time.Now()
	first := h.told.CompareAndSwap(true, false)
	if first && h.moment != nil {
		h.moment.Store(now.UnixNano())
	}
	if first || h.moment != nil && h.moment.Load() == now.UnixNano() {
		return bmc.Reading{State: bmc.On, At: now, Session: 1}, nil
	}
	return h.Power.Read(ctx)
}

// All levels are read once more before the isolation. An On then counts, even if no level
// answers in the next look. // I26
func TestAllLevelsAreReadBeforeAConfirmationCounts(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, inner *failingStore) {
		store := &stubborn{Store: inner}
		var answers atomic.Bool
		var moment atomic.Int64
		e, stop := wrongWord(t, w, store, func(bmc.Device) (bmc.Power, error) { return heardOnce{w.bmc(), &answers, &moment}, nil })
		var isolates atomic.Int32
		store.watch(func(run []byte) {
			if bytes.Contains(run, []byte(`"intent":{"action":"IsolateNode"`)) {
				isolates.Add(1)
				answers.Store(true) // its look is over: only the last question hears this
			}
		})
		time.Sleep(10 * time.Minute)
		r := only(t, e)
		assert.EqualValues(t, 1, isolates.Load())
		assert.Equal(t, "ConfirmedOffContradicted", string(r.Reason), r.Note)
		assert.Zero(t, w.Isolations())
		stop()
	})
}

// If a BMC answers a single read, its On contradicts the confirmation, whether the look
// read it or the witnesses of the level above, whose own reading failed. // I26
func TestOneOnReadingContradictsAConfirmation(t *testing.T) {
	for _, after := range []time.Duration{0, time.Second, 3 * time.Second, 5 * time.Second, 7 * time.Second} {
		bubble(t, func(t *testing.T, w *world, store *failingStore) {
			var answers atomic.Bool
			e, stop := wrongWord(t, w, store, func(bmc.Device) (bmc.Power, error) { return heardOnce{w.bmc(), &answers, nil}, nil })
			time.Sleep(after)
			answers.Store(true)
			time.Sleep(10 * time.Minute)
			r := only(t, e)
			assert.Equal(t, "ConfirmedOffContradicted", string(r.Reason), "after %s: %s", after, r.Note)
			assert.Zero(t, w.Isolations())
			stop()
		})
	}
}
