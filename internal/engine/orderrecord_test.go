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
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/wire"
)

// orders are those on record.
func (l *ledger) orders() (all []event.Event) {
	for _, e := range l.all() {
		if e.Type == event.Ordered {
			all = append(all, e)
		}
	}
	return all
}

// I24: no crash leaves the effect of an order on a run without a record of the order. The
// record comes before the run is stored, also if nobody waits for the answer.
func TestOrderIsOnRecordBeforeItsEffect(t *testing.T) {
	for _, gone := range []bool{false, true} {
		bubble(t, func(t *testing.T, w *world, store *failingStore) {
			l, people := &ledger{}, &stubborn{Store: store}
			e, events, stop := start(t, w, people, func(o *engine.Options) { o.Record = l.record })
			for len(e.Runs("c")) == 0 {
				time.Sleep(100 * time.Millisecond)
			}
			var stored atomic.Int32
			people.watch(func(run []byte) {
				if bytes.Contains(run, []byte(`"abort":`)) && stored.Add(1) == 1 {
					assert.Len(t, l.orders(), 1)
				}
			})
			ctx, cancel := context.WithCancel(t.Context())
			if gone {
				cancel()
			}
			_, err := e.Abort(ctx, wire.Order{Cluster: "c", Run: e.Runs("c")[0].ID, Actor: "ada", Reason: "wrong host"})
			cancel()
			if !gone {
				require.NoError(t, err)
			}
			time.Sleep(5 * time.Minute)
			assert.Equal(t, remediate.Aborted, only(t, e).Step)
			require.NotZero(t, stored.Load())
			require.Len(t, l.orders(), 1)
			on := l.orders()[0]
			assert.Equal(t, []string{"ada", "wrong host", "n-1", e.Runs("c")[0].ID}, []string{on.Actor, on.Why, on.Node, on.Run})
			assert.Equal(t, 1, heard(t, events, "ada aborts"))
			stop()
		})
	}
}

// An order that cannot be recorded is carried out all the same: it may bring a host
// back. // I24
func TestOrderIsCarriedOutWithoutARecord(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		l := &ledger{}
		e, events, stop := start(t, w, store, func(o *engine.Options) { o.Record = l.record })
		for w.Count(bmc.CommandOff) == 0 {
			time.Sleep(100 * time.Millisecond)
		}
		l.set(func(event.Event) bool { return true })
		_, err := e.Abort(t.Context(), wire.Order{Cluster: "c", Run: only(t, e).ID, Actor: "ada", Reason: "wrong host"})
		require.NoError(t, err)
		time.Sleep(5 * time.Minute)
		assert.Equal(t, 1, w.Count(bmc.CommandOn))
		assert.Equal(t, remediate.Aborted, only(t, e).Step)
		recorded := eventsOf(t, events, func(ev event.Event) bool { return ev.Type == event.Ordered && ev.Recorded })
		assert.Empty(t, recorded, "the audit log is to take it when it can")
		stop()
	})
}
