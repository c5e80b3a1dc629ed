package run

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestQueueGoesByDueTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := &queue{size: 1}
		require.True(t, q.enter(t.Context(), time.Now()))
		var order []string
		for _, w := range []struct {
			name string
			due  time.Duration
		}{{"first look", overtakeLimit}, {"another", overtakeLimit}, {"proof under way", 0}, {"late", -time.Second}} {
			go func() {
				require.True(t, q.enter(t.Context(), time.Now().Add(w.due)))
				order = append(order, w.name)
				q.leave()
			}()
			synctest.Wait()
		}
		assert.Empty(t, order)
		q.leave()
		synctest.Wait()
		assert.Equal(t, []string{"late", "proof under way", "first look", "another"}, order)
		assert.Zero(t, q.inside)
	})
}

// However many urgent ones arrive, one that is not urgent is admitted after overtakeLimit.
func TestQueueStarvesNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := &queue{size: 2}
		ctx, cancel := context.WithCancel(t.Context())
		for range 10 { // always more than there is room for
			go func() {
				for ctx.Err() == nil && q.enter(ctx, time.Now()) {
					time.Sleep(100 * time.Millisecond)
					q.leave()
				}
			}()
		}
		synctest.Wait()
		began := time.Now()
		require.True(t, q.enter(ctx, time.Now().Add(overtakeLimit)))
		assert.InDelta(t, overtakeLimit, time.Since(began), float64(time.Second))
		q.leave()
		cancel()
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Zero(t, q.inside)
		assert.Empty(t, q.waiting)
	})
}

// A waiter that gives up occupies no place, even if it is admitted at that moment.
func TestQueueFreesThePlaceOfAWaiterThatGaveUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := &queue{size: 3}
		var inside, most atomic.Int64
		for i := range 200 {
			go func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%17)*10*time.Millisecond)
				defer cancel()
				if !q.enter(ctx, time.Now().Add(time.Duration(i%5)*time.Millisecond)) {
					return
				}
				most.Store(max(most.Load(), inside.Add(1)))
				time.Sleep(10 * time.Millisecond)
				inside.Add(-1)
				q.leave()
			}()
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Zero(t, q.inside)
		assert.Empty(t, q.waiting)
		assert.EqualValues(t, 3, most.Load())
	})
}
