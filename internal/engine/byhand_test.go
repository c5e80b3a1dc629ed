package engine_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/wire"
)

func observing(o *engine.Options) { o.Clusters[0].Mode = guard.ModeObserve }

// byAdmin is the order of an administrator.
func byAdmin() wire.Order {
	o := byHand
	o.Role = wire.Admin
	return o
}

// In mode observe only an administrator's order fences, and it fences nothing else.
func TestAdministratorFencesByHandInModeObserve(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e, _, stop := start(t, w, store, observing)
		time.Sleep(2 * time.Minute)
		_, err := e.Fence(t.Context(), byHand)
		refusedFor(t, err, reason.Observing)
		n, _ := w.Announcements()
		require.Zero(t, n, "nothing acts")

		out, err := e.Fence(t.Context(), byAdmin())
		require.NoError(t, err)
		n, _ = w.Announcements()
		assert.NotZero(t, n, "the Lease keeps other installations from acting")
		time.Sleep(10 * time.Minute)
		r := only(t, e)
		assert.Equal(t, out.Run, r.ID)
		assert.Equal(t, remediate.Done, r.Step)
		assert.True(t, r.Manual.Admin)
		assert.False(t, e.Status()[0].Armed)
		before, _ := w.Announcements()
		time.Sleep(10 * time.Minute)
		after, _ := w.Announcements()
		assert.Equal(t, before, after, "the Lease is kept for the run only")
		stop()
	})
}

// Every other gate binds an administrator in mode observe, and so does another installation, of
// which only the Lease tells. // I22
func TestGatesBindAnAdministratorInModeObserve(t *testing.T) {
	for _, tc := range []struct {
		reason reason.Code
		set    func(*testing.T, *world, *engine.Engine)
	}{
		{reason.NotOwner, func(_ *testing.T, w *world, _ *engine.Engine) {
			w.setForeignHolder("fenced instance x holds the Lease")
		}},
		{reason.NotOwner, func(_ *testing.T, w *world, _ *engine.Engine) { w.failAnnouncements(errForbidden) }},
		{reason.Contested, func(_ *testing.T, w *world, _ *engine.Engine) { w.setContested(remediate.Yes) }},
		{reason.Paused, func(t *testing.T, _ *world, e *engine.Engine) {
			_, err := e.Pause(t.Context(), wire.Order{Actor: "ada", Reason: "stop"})
			require.NoError(t, err)
		}},
		{reason.Hold, func(t *testing.T, _ *world, e *engine.Engine) {
			_, err := e.Hold(t.Context(), byHand)
			require.NoError(t, err)
		}},
	} {
		t.Run(string(tc.reason), func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world, store *failingStore) {
				e, _, stop := start(t, w, store, observing)
				time.Sleep(2 * time.Minute)
				tc.set(t, w, e)
				_, err := e.Fence(t.Context(), byAdmin())
				refusedFor(t, err, tc.reason)
				time.Sleep(time.Minute)
				assert.Empty(t, w.Commands())
				assert.Empty(t, e.Runs("c"))
				stop()
			})
		})
	}
}

// A dry run in mode observe asks every gate and the BMC, for somebody who may only look, and
// begins nothing.
func TestDryRunInModeObserveAsksTheBMC(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e, _, stop := start(t, w, store, func(o *engine.Options) {
			observing(o)
			o.Clusters[0].Pods = func(_ context.Context, node string) (wire.Pods, error) {
				return wire.Pods{Names: []string{"default/web-on-" + node}}, nil
			}
		})
		time.Sleep(2 * time.Minute)
		o := byHand
		o.DryRun, o.Role = true, wire.Viewer
		out, err := e.Fence(t.Context(), o)
		refusedFor(t, err, reason.Observing)
		failing := map[reason.Code]bool{}
		for _, g := range out.Gates {
			if !g.Pass {
				failing[g.Reason] = true
			}
			if g.Name == "identity" {
				assert.Equal(t, "match", g.Value)
			}
		}
		assert.Equal(t, map[reason.Code]bool{reason.Observing: true}, failing)
		require.NotNil(t, out.Target)
		assert.Equal(t, []string{"Unknown", "match", "c", "n-1"}, []string{out.Target.Ready, out.Target.Identity, out.Target.Cluster, out.Target.Node})
		assert.Equal(t, []string{"default/web-on-n-1"}, out.Target.Pods.Names)
		assert.NotEmpty(t, out.Target.BMC)
		assert.NotZero(t, w.Reads())

		w.setContested(remediate.Yes)
		w.FailReads(noAnswer())
		out, err = e.Fence(t.Context(), o)
		refusedFor(t, err, reason.Observing)
		failing = map[reason.Code]bool{}
		for _, g := range out.Gates {
			failing[g.Reason] = failing[g.Reason] || !g.Pass
		}
		assert.True(t, failing[reason.Contested], "the cluster is asked although the BMC does not answer: %v", failing)
		assert.True(t, failing["BMCUnreachable"], "%v", failing)
		assert.Empty(t, w.Commands())
		assert.Zero(t, w.Count(bmc.CommandOff))
		n, _ := w.Announcements()
		assert.Zero(t, n)
		stop()
	})
}

// Somebody who may only look does not have a refused account tried again before its time; who
// may fence does, because the password may have been corrected.
func TestDryRunOfAViewerLeavesARefusedAccountAlone(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.pauseCheck()
		w.FailReads(refusedAccount())
		e, _, stop := start(t, w, store, nil)
		time.Sleep(2 * time.Second)
		o := dryRun(byHand)
		_, err := e.Fence(t.Context(), o)
		refusedFor(t, err, "BMCAuth")
		asked := w.Reads()
		o.Role = wire.Viewer
		_, err = e.Fence(t.Context(), o)
		refusedFor(t, err, "BMCAuth")
		assert.Equal(t, asked, w.Reads(), "the account is not tried again")
		w.FailReads(nil)
		o.Role = wire.Operator
		_, err = e.Fence(t.Context(), o)
		require.NoError(t, err)
		stop()
	})
}

// Dry runs of viewers, however many and however slow, keep no operator's from its place.
func TestOperatorsDryRunWaitsForNoViewer(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.pauseCheck()
		slow := make(chan struct{})
		var began atomic.Int32
		e, _, stop := start(t, w, store, func(o *engine.Options) {
			o.Clusters[0].Pods = func(ctx context.Context, _ string) (wire.Pods, error) {
				if ctx.Value(slow) != nil {
					began.Add(1)
					<-slow
				}
				return wire.Pods{}, nil
			}
		})
		time.Sleep(2 * time.Second)
		var viewers sync.WaitGroup
		for range 20 {
			viewers.Go(func() {
				o := dryRun(byHand)
				o.Role = wire.Viewer
				_, err := e.Fence(context.WithValue(t.Context(), slow, true), o)
				assert.NoError(t, err)
			})
		}
		time.Sleep(time.Minute)
		assert.Equal(t, int32(2), began.Load(), "the others wait")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := e.Fence(ctx, dryRun(byHand))
		require.NoError(t, err)
		close(slow)
		viewers.Wait()
		stop()
	})
}

// In mode observe a manual confirmation begins no run, whoever gives it. It continues one that an
// administrator began and that cannot go on without it. // I26
func TestConfirmationInModeObserve(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e, _, stop := start(t, w, store, observing)
		time.Sleep(2 * time.Minute)
		out, err := e.Fence(t.Context(), byAdmin())
		require.NoError(t, err)
		for w.Count(bmc.CommandOff) == 0 {
			time.Sleep(100 * time.Millisecond)
		}
		w.dead()
		until(t, e, remediate.Held)
		confirmed, err := e.ConfirmOff(t.Context(), byAdmin())
		require.NoError(t, err)
		assert.Equal(t, out.Run, confirmed.Run)
		stop()
	})
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.dead()
		e, _, stop := start(t, w, store, observing)
		time.Sleep(2 * time.Minute)
		_, err := e.ConfirmOff(t.Context(), byAdmin())
		refusedFor(t, err, reason.Observing)
		assert.Empty(t, e.Runs("c"))
		stop()
	})
}
