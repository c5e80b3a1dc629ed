package engine_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/wire"
)

// Without a claim an instance evaluates and explains, and acts on nothing.
func TestStandbyExplainsAndTouchesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		p := newPair(t, w, store, nil)
		time.Sleep(10 * time.Minute)
		assert.Empty(t, w.Commands())
		assert.Zero(t, w.Reads(), "no probe is made")
		n, _ := w.Announcements()
		assert.Zero(t, n, "no Lease is taken")
		records, err := store.List(t.Context(), state.KindCluster)
		require.NoError(t, err)
		assert.Empty(t, records, "nothing is saved")
		g := gate(t, p.engine["b"], reason.NotOwner)
		assert.Contains(t, g.Value, "no instance owns")
		assert.Equal(t, "store", g.Source)
		s := p.engine["b"].Status()[0]
		assert.False(t, s.Owner)
		assert.NotEmpty(t, s.Idle)

		p.give("a")
		time.Sleep(time.Second)
		g = gate(t, p.engine["b"], reason.NotOwner)
		assert.Equal(t, "instance a owns the cluster (epoch 1)", g.Value)
		x, err := p.engine["b"].Explain(t.Context(), "c", "n-1")
		require.NoError(t, err)
		assert.Equal(t, policy.Unhealthy, x.Verdict)
		_, err = p.engine["b"].Fence(t.Context(), byHand)
		refusedFor(t, err, reason.NotOwner)
		_, err = p.engine["b"].Arming.Arm(t.Context(), byHand)
		refusedFor(t, err, reason.NotOwner)
		refusedFor(t, unfreeze(t, p.engine["b"], byHand), reason.NotOwner)
		_, err = p.engine["b"].Enroll(t.Context(), byHand)
		refusedFor(t, err, reason.NotOwner)

		time.Sleep(5 * time.Minute)
		assert.Equal(t, remediate.Done, only(t, p.engine["a"]).Step)
		assert.Equal(t, remediate.Done, only(t, p.engine["b"]).Step, "the standby sees the runs of the owner")
		s = p.engine["b"].Status()[0]
		assert.Equal(t, "a", s.OwnerName)
		assert.Equal(t, uint64(1), s.Epoch)
		assert.Empty(t, s.Idle)
		assert.True(t, p.engine["a"].Status()[0].Owner)
		p.end()
	})
}

// Whenever the owner of a cluster changes, the old owner stops at a save point, and the
// new one continues there: one isolation, and the host comes back. // I20
func TestHandOverAtAnyMoment(t *testing.T) {
	for _, at := range []int{60, 61, 62, 63, 64, 66, 68, 72, 80, 88, 95} {
		bubble(t, func(t *testing.T, w *world, store *failingStore) {
			p := newPair(t, w, store, nil)
			p.give("a")
			time.Sleep(time.Duration(at) * time.Second)
			p.take("a")
			p.give("b")
			time.Sleep(3 * time.Minute)
			r := only(t, p.engine["b"])
			assert.Equal(t, remediate.Done, r.Step, "handed over after %ds: %s %s", at, r.Reason, r.Note)
			assert.Equal(t, 1, w.Isolations(), "handed over after %ds", at)
			assert.Equal(t, r.Version, only(t, p.engine["a"]).Version, "the old owner sees how it ended")
			p.end()
		})
	}
}

// An owner that gets a cluster back reads the runs again, and does not continue from
// memory.
func TestRegainedClusterIsReadAgain(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		p := newPair(t, w, store, nil)
		p.give("a")
		time.Sleep(64 * time.Second)
		require.Equal(t, 1, w.Count(bmc.CommandOff))
		p.take("a")
		p.store["a"].deaf.Store(true)
		p.give("b")
		time.Sleep(5 * time.Minute)
		require.Equal(t, remediate.Done, only(t, p.engine["b"]).Step)
		p.take("b")
		sent := len(w.Commands())
		p.give("a")
		time.Sleep(time.Second)
		assert.Equal(t, remediate.Done, only(t, p.engine["a"]).Step)
		time.Sleep(time.Minute)
		assert.Len(t, w.Commands(), sent)
		p.end()
	})
}

// An owner that does not know that it has lost the cluster finds out at its next save, and
// does nothing on a record that was not accepted. // I19
func TestFormerOwnerDoesNothingMore(t *testing.T) {
	for at := 60; at <= 72; at += 2 {
		bubble(t, func(t *testing.T, w *world, store *failingStore) {
			p := newPair(t, w, store, nil)
			p.give("a")
			time.Sleep(time.Duration(at) * time.Second)
			p.expire("a", time.Now()) // as its own clock says
			sent, deleted := len(w.Commands()), w.Isolations()
			time.Sleep(30 * time.Second)
			require.Len(t, w.Commands(), sent, "no command after the claim ran out at %ds", at)
			require.Equal(t, deleted, w.Isolations())
			p.give("b") // the next epoch: what a still saves is refused
			time.Sleep(3 * time.Minute)
			r := only(t, p.engine["b"])
			assert.Equal(t, remediate.Done, r.Step, "%s %s", r.Reason, r.Note)
			assert.Equal(t, 1, w.Isolations())
			p.take("a")
			p.end()
		})
	}
}

// slowPower is a BMC that takes its time for a command, until it is given up.
type slowPower struct {
	bmc.Power
	took  chan<- time.Duration
	delay time.Duration
}

func (s slowPower) Send(ctx context.Context, c bmc.Command) (bmc.Receipt, error) {
	begun := time.Now()
	defer func() { s.took <- time.Since(begun) }()
	select {
	case <-ctx.Done():
		return bmc.Receipt{}, &bmc.Error{Kind: bmc.KindUnreachable, Op: "send", Err: ctx.Err()}
	case <-time.After(s.delay):
		return s.Power.Send(ctx, c)
	}
}

// A command that is running when the claim ends is cancelled before that end. // I19
func TestCommandEndsWithTheClaim(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		took := make(chan time.Duration, 10)
		p := newPair(t, w, store, func(_ string, o *engine.Options) {
			o.Open = func(bmc.Device) (bmc.Power, error) { return slowPower{w.bmc(), took, time.Hour}, nil }
		})
		p.give("a")
		p.expire("a", time.Now().Add(64*time.Second))
		time.Sleep(2 * time.Minute)
		require.Len(t, took, 1, "none was begun with less than the margin left")
		assert.LessOrEqual(t, <-took, 4*time.Second, "at 60 s a command was begun, and cut at 64 s")
		p.end()
	})
}

// People can stop the owner at any instance. // I23
func TestPauseAtAStandbyStopsTheOwner(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		p := newPair(t, w, store, nil)
		p.give("a")
		time.Sleep(30 * time.Second)
		_, err := p.engine["b"].Pause(t.Context(), wire.Order{Cluster: "c", Actor: "ada", Reason: "wait"})
		require.NoError(t, err)
		time.Sleep(time.Second)
		assert.Contains(t, p.engine["a"].Status()[0].Paused, "ada")
		_, err = p.engine["b"].Hold(t.Context(), byHand)
		require.NoError(t, err)
		time.Sleep(5 * time.Minute)
		assert.Empty(t, w.Commands())
		_, err = p.engine["a"].Resume(t.Context(), wire.Order{Cluster: "c", Actor: "ada", Reason: "go"})
		require.NoError(t, err)
		time.Sleep(time.Minute)
		assert.Empty(t, w.Commands())
		gate(t, p.engine["a"], reason.Hold)
		_, err = p.engine["b"].ReleaseHold(t.Context(), byHand)
		require.NoError(t, err)
		time.Sleep(5 * time.Minute)
		assert.Equal(t, remediate.Done, only(t, p.engine["a"]).Step)
		p.end()
	})
}

// The daemon starts beside the record of an ended run that it cannot read, and says so once. The record stays. // I20
func TestEndedRunThatCannotBeReadKeepsNobodyDown(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		const bad = `{"v":1,"data":{"id":"r-0","step":"Done","ended":"2026-01-01T00:00:00Z","of":"another version"}}`
		_, err := store.Put(t.Context(), state.Record{Kind: state.KindRun, Key: "r-0", Data: []byte(bad)})
		require.NoError(t, err)
		e, events, stop := start(t, w, store, nil)
		time.Sleep(2 * time.Hour) // and it is pruned around
		assert.Equal(t, remediate.Done, only(t, e).Step)
		assert.Equal(t, 1, heard(t, events, `"r-0"`))
		r, err := store.Get(t.Context(), state.KindRun, "r-0")
		require.NoError(t, err)
		assert.Equal(t, bad, string(r.Data))
		stop()
	})
}

// An instance does not take over a cluster with unreadable records: one may be of an open
// run. // I20
func TestUnreadableRecordsAreNotTakenOver(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		p := newPair(t, w, store, nil)
		_, err := store.Put(t.Context(), state.Record{Kind: state.KindRun, Key: "r-1", Data: []byte("{")})
		require.NoError(t, err)
		p.give("a")
		time.Sleep(5 * time.Minute)
		assert.Empty(t, w.Commands())
		s := p.engine["a"].Status()[0]
		assert.False(t, s.Owner)
		assert.NotEmpty(t, s.Idle, "and people see that nobody acts")
		require.Len(t, p.told(t, "a", event.Failed), 1)
		assert.Contains(t, p.told(t, "a", event.Failed)[0], "r-1")
		r, err := store.Get(t.Context(), state.KindRun, "r-1")
		require.NoError(t, err)
		require.NoError(t, store.Delete(t.Context(), state.KindRun, "r-1", r.Version))
		time.Sleep(5 * time.Minute)
		assert.Equal(t, remediate.Done, only(t, p.engine["a"]).Step)
		p.end()
	})
}
