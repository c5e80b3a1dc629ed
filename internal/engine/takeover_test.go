package engine

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/semaphore"

	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/run"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/state/boltstore"
	"github.com/fenced/fenced/test/fake"
	"github.com/fenced/fenced/test/must"
)

// Clusters that are taken over while the store is read share the next read. None gets a read that began before it asked: another
// instance may have written until then. // I19, I20
func TestTakeoversShareAReadThatBeginsAfterEachAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tk := takeovers{reading: semaphore.NewWeighted(1)}
		written, reads := 0, 0 // runs in the store
		read := func(ctx context.Context) (stored, error) {
			reads++
			now := written
			select {
			case <-ctx.Done():
				return stored{}, ctx.Err()
			case <-time.After(10 * time.Second):
				return stored{runs: make([]remediate.Run, now)}, nil
			}
		}
		var wg sync.WaitGroup
		defer wg.Wait()
		ask := func(ctx context.Context, n int) {
			before := written
			for range n {
				wg.Go(func() {
					s, err := tk.load(ctx, read)
					if ctx.Err() != nil {
						assert.ErrorIs(t, err, context.Canceled)
						return
					}
					assert.NoError(t, err)
					assert.GreaterOrEqual(t, len(s.runs), before, "the read began after the claim")
				})
			}
			synctest.Wait()
		}
		lost, lose := context.WithCancel(t.Context())
		written = 1
		ask(t.Context(), 1)
		time.Sleep(5 * time.Second)
		written = 2
		ask(lost, 1) // it will read for the others that ask now, and lose its claim meanwhile
		ask(t.Context(), 50)
		time.Sleep(7 * time.Second)
		written = 3
		ask(t.Context(), 50)
		lose()
		wg.Wait()
		require.Equal(t, 4, reads, "one alone, one that was cut off, and one for each group")
	})
}

// A read that fails fails for all who wait for it, and for nobody who asks later.
func TestTakeoversShareAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tk := takeovers{reading: semaphore.NewWeighted(1)}
		failed := errors.New("no quorum")
		_, err := tk.load(t.Context(), func(context.Context) (stored, error) { return stored{}, failed })
		require.ErrorIs(t, err, failed)
		s, err := tk.load(t.Context(), func(context.Context) (stored, error) { return stored{runs: make([]remediate.Run, 1)}, nil })
		require.NoError(t, err)
		require.Len(t, s.runs, 1)
	})
}

// beginning is an escalation that has something happen after a leadership has read the runs, before it resumes them.
type beginning struct {
	noEscalation
	happens func()
}

func (b *beginning) Load(context.Context) (begin func(string), err error) {
	return func(string) { b.happens() }, nil
}

// silentAPI is a cluster that answers no look.
type silentAPI struct{ *fake.Cluster }

func (silentAPI) Look(ctx context.Context, _ remediate.Run, _ [][]byte) run.Fresh {
	<-ctx.Done()
	return run.Fresh{Err: ctx.Err()}
}

// A run that begins as soon as the leadership has is not resumed beside its own start: of two workers each would switch the host. // I19
func TestRunThatBeginsWithTheLeadershipIsNotResumed(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		store := must.Do(boltstore.Open(filepath.Join(dir, "state.db")))(t)
		defer func() { require.NoError(t, store.Close()) }()
		was := remediate.Begin(remediate.Run{ID: "1-was-open", Target: remediate.Target{Cluster: "c", Node: "n-1"}}, time.Now().UTC())
		must.Do(state.SaveRun(t.Context(), store, was))(t)
		world, begins := fake.New("c"), &beginning{happens: func() {}}
		e := must.Do(New(t.Context(), Options{Store: store, Hosts: world, Events: event.NewStream(), Escalation: begins, Suspended: func() time.Duration { return 0 },
			Clusters: []ClusterOptions{{Name: "c", Watch: world.Watch(), Kube: silentAPI{world}}}}))(t)
		c := e.clusters.Get("c")
		began := remediate.Begin(remediate.Run{ID: "2-begins", Target: remediate.Target{Cluster: "c", Node: "n-2"}}, time.Now().UTC())
		begins.happens = func() { c.model.Runs.Put(began) }
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			c.lead.Serve(ctx, state.Claim{Cluster: "c", Store: store, Until: func() time.Time { return time.Time{} }})
			close(ended)
		}()
		synctest.Wait()
		works := func(id string) bool {
			known, _ := c.admit.Runner.Order(t.Context(), id, func(r remediate.Run) (remediate.Run, error) { return r, errors.New("no order") }, event.Event{})
			return known
		}
		assert.True(t, works(was.ID))
		assert.False(t, works(began.ID))
		cancel()
		<-ended
	})
}
