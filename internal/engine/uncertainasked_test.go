package engine_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/state"
)

// muteAsked stores the first record of another remediator and loses the answer.
type muteAsked struct {
	state.Store
	once sync.Once
}

func (m *muteAsked) Put(ctx context.Context, r state.Record) (uint64, error) {
	version, err := m.Store.Put(ctx, r)
	if r.Kind == state.KindMeta && strings.HasPrefix(r.Key, "asked ") {
		m.once.Do(func() { version, err = 0, errors.New("no answer") })
	}
	return version, err
}

// A record whose answer was lost is not left in the store behind the back of the daemon.
func TestFirstSaveWithoutAnAnswerLeavesNoRecordBehind(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		_, _, stop := start(t, w, &muteAsked{Store: store}, handingOver(w))
		time.Sleep(10 * time.Minute)
		require.Len(t, others(w), 1)
		stop()
		records, err := state.LoadAsked(t.Context(), store)
		require.NoError(t, err)
		blocking := 0
		for _, r := range records {
			if r.Blocking() {
				blocking++
			}
		}
		assert.Equal(t, 1, blocking, "only one object can exist")
	})
}
