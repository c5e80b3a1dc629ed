package engine

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/semaphore"

	"github.com/fenced/fenced/internal/remediate"
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
