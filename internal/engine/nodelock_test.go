package engine_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/test/fake"
)

// lockOf is medik8s' Lease on n-1; the zero value if there is none.
func (w *world) lockOf() (l fake.NodeLock) {
	w.Do(func(s *fake.State) { l = s.NodeLocks["n-1"] })
	return l
}

func (w *world) installMedik8s() { w.Do(func(s *fake.State) { s.Medik8s = true }) }

// A run holds medik8s' Lease on its Node from before its first command until its end.
func TestRunHoldsTheNodeLock(t *testing.T) { // I22
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.installMedik8s()
		e, _, stop := start(t, w, store, nil)
		defer stop()
		require.Eventually(t, func() bool { return len(w.Commands()) > 0 }, 10*time.Minute, time.Second)
		r := only(t, e)
		assert.Equal(t, r.ID, w.lockOf().Run)
		for only(t, e).Step != remediate.Done {
			assert.False(t, w.lockOf().Expired())
			time.Sleep(time.Second)
		}
		time.Sleep(10 * time.Second)
		assert.Empty(t, w.lockOf(), "it is given back")
	})
}

// While medik8s has the Node, fenced leaves it alone. When medik8s is done, fenced goes on.
func TestNodeLockOfMedik8sIsWaitedFor(t *testing.T) { // I22
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.installMedik8s()
		w.Do(func(s *fake.State) {
			s.NodeLocks["n-1"] = fake.NodeLock{Holder: "NodeHealthCheck-x", Renewed: time.Now().Add(10 * time.Minute)}
		})
		e, _, stop := start(t, w, store, nil)
		defer stop()
		time.Sleep(10 * time.Minute)
		assert.Contains(t, gate(t, e, reason.Contested).Value, "NodeHealthCheck-x")
		assert.Empty(t, w.Commands())
		time.Sleep(30 * time.Minute) // it has expired
		assert.Equal(t, remediate.Done, only(t, e).Step)
	})
}

// What a look has found is not asked again: without medik8s there is nothing to take.
func TestNoNodeLockIsAskedForWithoutMedik8s(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		asked := 0
		e, _, stop := start(t, w, store, withLock(func(context.Context, remediate.Run) error {
			asked++
			return nil
		}))
		defer stop()
		require.Eventually(t, func() bool { return len(e.Runs("c")) == 1 && only(t, e).Step == remediate.Done }, time.Hour, time.Second)
		assert.Zero(t, asked)
	})
}

// lockKube changes how the API server answers LockNode.
type lockKube struct {
	engine.Kube
	lock func(ctx context.Context, r remediate.Run) error
}

func (k lockKube) LockNode(ctx context.Context, r remediate.Run) (time.Duration, string, error) {
	if err := k.lock(ctx, r); err != nil {
		return 0, "", err
	}
	return k.Kube.LockNode(ctx, r)
}

func withLock(lock func(ctx context.Context, r remediate.Run) error) func(*engine.Options) {
	return func(o *engine.Options) { o.Clusters[0].Kube = lockKube{o.Clusters[0].Kube, lock} }
}

// Without medik8s' Lease nothing destructive is done, whether the API server refuses it or
// does not answer. Once it can be taken, the run goes on.
func TestNoCommandWithoutTheNodeLock(t *testing.T) { // I22
	for name, fail := range map[string]func(ctx context.Context) error{
		"refused": func(context.Context) error { return errors.New("forbidden") },
		"hangs":   func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world, store *failingStore) {
				w.installMedik8s()
				mended := time.Now().Add(30 * time.Minute)
				e, _, stop := start(t, w, store, withLock(func(ctx context.Context, _ remediate.Run) error {
					if time.Now().Before(mended) {
						return fail(ctx)
					}
					return nil
				}))
				defer stop()
				time.Sleep(29 * time.Minute)
				assert.Empty(t, w.Commands())
				assert.Zero(t, w.Isolations())
				time.Sleep(2 * time.Hour)
				assert.True(t, slices.ContainsFunc(e.Runs("c"), func(r remediate.Run) bool { return r.Step == remediate.Done }))
				assert.Equal(t, 1, w.Isolations())
			})
		})
	}
}

// After the isolation nothing waits for the Lease: the host is brought back although it can
// neither be renewed nor given back.
func TestNodeLockDelaysNoWayBack(t *testing.T) { // I20, I22
	run := func(t *testing.T, lock func(ctx context.Context, r remediate.Run) error) (took time.Duration) {
		bubble(t, func(t *testing.T, w *world, store *failingStore) {
			w.installMedik8s()
			e, _, stop := start(t, w, store, withLock(lock))
			defer stop()
			began := time.Now()
			require.Eventually(t, func() bool { return len(e.Runs("c")) == 1 && only(t, e).Step == remediate.Done }, time.Hour, time.Second)
			took = time.Since(began)
			assert.Equal(t, 1, w.Isolations())
		})
		return took
	}
	usual := run(t, func(context.Context, remediate.Run) error { return nil })
	hung := run(t, func(ctx context.Context, r remediate.Run) error {
		if r.Isolated.IsZero() {
			return nil
		}
		<-ctx.Done()
		return ctx.Err()
	})
	assert.Equal(t, usual, hung, "in virtual time")
}

// A run that has lost its Lease after the isolation takes it again before it deletes the Machine.
func TestLostNodeLockIsTakenAgain(t *testing.T) { // I22
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.installMedik8s()
		w.ownMachines()
		w.SetBootTime(never)
		var held []string
		e, _, stop := start(t, w, store, func(o *engine.Options) {
			o.Run.MaxAttempts, o.Clusters[0].Reprovision = 1, true
			o.Clusters[0].Kube = actKube{o.Clusters[0].Kube, func(a remediate.Action) {
				if a == remediate.DeleteTargetMachine {
					held = append(held, w.lockOf().Run)
				}
			}}
		})
		defer stop()
		until(t, e, remediate.AwaitNode)
		w.Do(func(s *fake.State) { delete(s.NodeLocks, "n-1") })
		time.Sleep(30 * time.Minute)
		r := only(t, e)
		assert.Equal(t, remediate.Reprovisioned, r.Step)
		assert.Equal(t, []string{r.ID}, held)
	})
}

// actKube tells of each write before it is done.
type actKube struct {
	engine.Kube
	before func(remediate.Action)
}

func (k actKube) Act(ctx context.Context, r remediate.Run, a remediate.Action, backups [][]byte, b remediate.Backup) error {
	k.before(a)
	return k.Kube.Act(ctx, r, a, backups, b)
}

// A run that another process, or another instance with the same store, takes up has its
// Lease already.
func TestNodeLockOutlivesARestart(t *testing.T) { // I20, I22
	for _, at := range []time.Duration{63, 66, 70, 76, 82, 95} {
		bubble(t, func(t *testing.T, w *world, store *failingStore) {
			w.installMedik8s()
			_, _, stop := start(t, w, store, nil)
			time.Sleep(at * time.Second)
			before := w.lockOf()
			stop()
			assert.Equal(t, before.Run, w.lockOf().Run, "stopped after %ds: an open run keeps it", at)
			e, _, stop := start(t, w, store, nil)
			time.Sleep(10 * time.Minute)
			assert.Equal(t, remediate.Done, only(t, e).Step, "stopped after %ds", at)
			assert.Equal(t, 1, w.Isolations())
			stop()
		})
	}
}

// A run that is Held keeps the Node, for as long as it is open.
func TestHeldRunKeepsTheNodeLock(t *testing.T) { // I22
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.installMedik8s()
		w.Do(func(s *fake.State) { s.Host("n-1").BMC.Fault = fake.IgnoresOff })
		e, _, stop := start(t, w, store, func(o *engine.Options) { o.Run.RetryInterval = 0 })
		defer stop()
		time.Sleep(20 * time.Minute)
		r := only(t, e)
		require.Equal(t, remediate.Held, r.Step)
		assert.Equal(t, r.ID, w.lockOf().Run)
		assert.False(t, w.lockOf().Expired())
		abort := byHand
		abort.Run = r.ID
		_, err := e.Abort(t.Context(), abort)
		require.NoError(t, err)
		assert.Eventually(t, func() bool { return w.lockOf().Run != r.ID }, 5*time.Minute, time.Second, "it is given back")
	})
}

// deadUnlock is an API server that fenced did not live to ask for the end of the Lease.
type deadUnlock struct{ engine.Kube }

func (deadUnlock) UnlockNode(context.Context, remediate.Run) error { return errors.New("killed") }

// The Lease of a run that ended just before fenced was killed ends by itself, and the next run takes
// it over.
func TestNodeLockThatIsLeftEnds(t *testing.T) { // I22
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.installMedik8s()
		e, _, stop := start(t, w, store, func(o *engine.Options) { o.Clusters[0].Kube = deadUnlock{o.Clusters[0].Kube} })
		r := until(t, e, remediate.Done)
		require.Equal(t, r.ID, w.lockOf().Run, "left behind")
		stop()
		e, _, stop = start(t, w, store, nil)
		time.Sleep(fake.LockDuration + time.Minute)
		assert.True(t, w.lockOf().Expired(), "nobody renews it")
		time.Sleep(time.Hour)
		w.Hang()
		require.Eventually(t, func() bool { l := w.lockOf(); return l.Run != "" && l.Run != r.ID }, time.Hour, time.Second)
		require.Eventually(t, func() bool { return w.lockOf() == fake.NodeLock{} }, time.Hour, time.Second, "given back by the next run")
		assert.Len(t, e.Runs("c"), 2)
		stop()
	})
}
