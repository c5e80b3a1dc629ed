package engine_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/test/fake"
)

// The API is lost between Off and the isolation: after its time limit the run powers the
// host on, and stays open until the Node was read again.
func TestAPILostAfterOffBringsTheHostBack(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e, _, stop := start(t, w, store, slowProof)
		time.Sleep(untilOff)
		require.Equal(t, 1, w.Count(bmc.CommandOff))
		w.takeAPIDown()
		time.Sleep(10 * time.Minute)
		assert.True(t, w.On())
		assert.True(t, only(t, e).Open(), "it may have been deleted after all")
		w.SetReady("True")
		w.bringAPIUp()
		time.Sleep(5 * time.Minute)
		r := only(t, e)
		assert.Equal(t, remediate.Aborted, r.Step)
		assert.Equal(t, "APIUnreachable", string(r.Reason))
		assert.Zero(t, w.Isolations())
		stop()
	})
}

// The answer to the deletion is lost with the API. When the API returns, the Node is found
// gone, and its labels and taints are restored.
func TestDeletionWithALostAnswerIsCompleted(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.Do(func(s *fake.State) { s.DownAtIsolation = true })
		e, _, stop := start(t, w, store, nil)
		time.Sleep(10 * time.Minute)
		require.Equal(t, 1, w.Isolations())
		assert.True(t, w.On())
		w.bringAPIUp()
		time.Sleep(5 * time.Minute)
		r := only(t, e)
		assert.Equal(t, remediate.Done, r.Step, "%s %s", r.Reason, r.Note)
		assert.True(t, w.Restored())
		assert.Equal(t, 1, w.Isolations())
		stop()
	})
}

// The BMC network is lost after Off was sent, and there is no other level: nothing is
// deleted without a reading.
func TestBMCNetworkLostIsHeldAndNothingIsDeleted(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e, _, stop := start(t, w, store, slowProof)
		time.Sleep(untilOff)
		require.Equal(t, 1, w.Count(bmc.CommandOff))
		w.FailReads(noAnswer())
		time.Sleep(20 * time.Minute)
		r := only(t, e)
		assert.Equal(t, remediate.Held, r.Step)
		assert.Zero(t, w.Isolations())
		w.FailReads(nil)
		time.Sleep(5 * time.Minute)
		assert.True(t, w.On(), "it is brought back once its BMC answers")
		stop()
	})
}

// The owner loses the store during a run: it sends nothing after the end of its claim and
// starts nothing, and the next owner completes the run. // I19
func TestStoreLostInMidRun(t *testing.T) {
	for at := 60; at <= 70; at += 2 {
		bubble(t, func(t *testing.T, w *world, store *failingStore) {
			p := newPair(t, w, store, nil)
			p.give("a")
			time.Sleep(time.Duration(at) * time.Second)
			p.store["a"].set(true)
			p.expire("a", time.Now().Add(9*time.Second))
			time.Sleep(9 * time.Second)
			sent, deleted := len(w.Commands()), w.Isolations()
			time.Sleep(20 * time.Second)
			require.Len(t, w.Commands(), sent)
			require.Equal(t, deleted, w.Isolations())
			p.take("a")
			p.give("b")
			time.Sleep(3 * time.Minute)
			r := p.engine["b"].Runs("c")[0]
			assert.Equal(t, remediate.Done, r.Step, "lost after %ds: %s %s", at, r.Reason, r.Note)
			assert.Equal(t, 1, w.Isolations())
			p.end()
		})
	}
}

// When the API returns after an outage, heartbeats were missed on every Node. The quiet
// period lets them return before a Node is evaluated. // I16
func TestOutageEndsInAQuietPeriod(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.SetReady("True")
		e, _, stop := start(t, w, store, func(o *engine.Options) { o.Guards.QuietPeriod = 5 * time.Minute })
		time.Sleep(10 * time.Minute)
		w.takeAPIDown()
		time.Sleep(5 * time.Minute)
		w.SetReadySince("Unknown", time.Now().Add(-4*time.Minute))
		w.setOthersDown(true)
		w.bringAPIUp()
		time.Sleep(4 * time.Minute)
		g := gate(t, e, reason.QuietPeriod)
		assert.False(t, g.Pass)
		w.Recover()
		w.setOthersDown(false)
		time.Sleep(10 * time.Minute)
		assert.Empty(t, e.Runs("c"))
		assert.Empty(t, w.Commands())
		stop()
	})
}

// While this daemon itself is cut off, its view gets older, and no Node is fenced, however
// long that takes. // I16
func TestOwnPartitionNeverFences(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e, _, stop := start(t, w, store, nil)
		time.Sleep(30 * time.Second) // the check's minute runs
		w.takeAPIDown()
		time.Sleep(time.Hour)
		assert.Empty(t, e.Runs("c"))
		assert.Empty(t, w.Commands())
		assert.False(t, gate(t, e, reason.ViewStale).Pass)
		stop()
	})
}
