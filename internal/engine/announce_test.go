package engine_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/lead"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
)

var errForbidden = errors.New("update Lease kube-system/fenced: forbidden")

// contests counts the events that say that nothing is done because of others.
func contests(t *testing.T, s *event.Stream) int {
	t.Helper()
	return len(eventsOf(t, s, func(ev event.Event) bool {
		return ev.Type == event.Refused && ev.Node == "" && ev.Reason == reason.NotOwner
	}))
}

// Of two installations with separate stores, the one that starts second only observes, and
// reports it.
func TestSecondInstallationOnlyObserves(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		const foreigner = "fenced instance x holds the Lease"
		w.setForeignHolder(foreigner)
		e, events, stop := start(t, w, store, func(o *engine.Options) { o.Instance, o.StoreID = "a", "id" })
		time.Sleep(10 * time.Minute)
		assert.Empty(t, w.Commands())
		assert.Equal(t, foreigner, gate(t, e, reason.NotOwner).Value)
		assert.Equal(t, "Lease fenced", gate(t, e, reason.NotOwner).Source)
		assert.Equal(t, foreigner, e.Status()[0].Idle)
		assert.Equal(t, 1, contests(t, events), "told once")
		_, err := e.Fence(t.Context(), byHand)
		refusedFor(t, err, reason.NotOwner)
		_, told := w.Announcements()
		assert.Equal(t, lead.Announcement{Instance: "a", StoreID: "id", Epoch: 1}, told)
		w.setForeignHolder("")
		time.Sleep(5 * time.Minute)
		assert.Equal(t, remediate.Done, only(t, e).Step)
		assert.Empty(t, e.Status()[0].Idle)
		stop()
	})
}

// slowProof makes a run take its time between Off and the isolation.
func slowProof(o *engine.Options) {
	o.Power.OffReadSpacing = 20 * time.Second
	o.Run.OffDeadline = 5 * time.Minute
}

// When another installation starts to act, an open run is rolled back.
func TestForeignInstallationRollsBackAnOpenRun(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e, _, stop := start(t, w, store, slowProof)
		time.Sleep(untilOff)
		require.Equal(t, 1, w.Count(bmc.CommandOff))
		w.setForeignHolder("fenced instance x holds the Lease")
		time.Sleep(5 * time.Minute)
		r := e.Runs("c")[0]
		assert.Equal(t, remediate.Aborted, r.Step)
		assert.Equal(t, "Contested", string(r.Reason))
		assert.Contains(t, r.Note, "instance x")
		assert.True(t, w.On())
		assert.Zero(t, w.Isolations())
		assert.Len(t, e.Runs("c"), 1, "and no other run is begun")
		stop()
	})
}

// If the API server forbids the Lease, fenced cannot know whether another installation
// acts, and starts no run.
func TestForbiddenLeaseForbidsEveryRun(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.failAnnouncements(errForbidden)
		e, events, stop := start(t, w, store, nil)
		time.Sleep(10 * time.Minute)
		assert.Empty(t, w.Commands())
		assert.Contains(t, gate(t, e, reason.NotOwner).Value, "forbidden")
		assert.Equal(t, 1, contests(t, events))
		w.failAnnouncements(nil)
		time.Sleep(5 * time.Minute)
		assert.Equal(t, remediate.Done, only(t, e).Step)
		stop()
	})
}

// 15 s after the last renewal of the Lease nothing destructive is done, and the host is
// powered on again.
func TestLeaseThatIsNotRenewedForbidsTheIsolation(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e, _, stop := start(t, w, store, slowProof)
		time.Sleep(untilOff) // announced at 60 s, proven off at 80 s
		require.Equal(t, 1, w.Count(bmc.CommandOff))
		w.failAnnouncements(errForbidden)
		time.Sleep(10 * time.Minute)
		assert.Zero(t, w.Isolations())
		assert.True(t, w.On())
		assert.NotEqual(t, remediate.Done, only(t, e).Step)
		stop()
	})
}

// If the Lease expires between the look and the command, the command is not sent.
func TestExpiredLeaseForbidsTheNextCommand(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		_, _, stop := start(t, w, store, func(o *engine.Options) {
			o.Record = func(ev event.Event) error {
				if ev.Action == remediate.SendOff {
					w.failAnnouncements(errForbidden)
					time.Sleep(16 * time.Second) // a slow disk
				}
				return nil
			}
		})
		time.Sleep(3 * time.Minute)
		assert.Zero(t, w.Count(bmc.CommandOff))
		stop()
	})
}

// An instance that only observes does not take the Lease. It takes it when it is armed.
func TestObserverTakesNoLease(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e, _, stop := start(t, w, store, func(o *engine.Options) { o.Clusters[0].Mode = guard.ModeObserve })
		time.Sleep(10 * time.Minute)
		n, _ := w.Announcements()
		assert.Zero(t, n)
		assert.Empty(t, e.Status()[0].Idle)
		_, err := e.Arming.Arm(t.Context(), byHand)
		require.NoError(t, err)
		time.Sleep(4 * time.Second)
		require.Len(t, e.Runs("c"), 1)
		_, err = e.Arming.Disarm(t.Context(), byHand)
		require.NoError(t, err)
		before, _ := w.Announcements()
		time.Sleep(20 * time.Second)
		n, _ = w.Announcements()
		assert.Greater(t, n, before, "as long as a run is open")
		time.Sleep(10 * time.Minute)
		before, _ = w.Announcements()
		time.Sleep(time.Minute)
		n, _ = w.Announcements()
		assert.Equal(t, before, n)
		stop()
	})
}
