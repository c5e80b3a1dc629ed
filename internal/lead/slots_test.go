package lead

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/fenced/fenced/internal/state"
)

// silent is a store whose calls fail after a while.
type silent struct{ state.Store }

func (silent) List(context.Context, state.Kind) ([]state.Record, error) {
	time.Sleep(6 * time.Second)
	return nil, errors.New("no answer")
}

// If the store does not answer, only one of all clusters waits for it: a run that starts would have
// to wait behind them.
func TestOnlyOneClusterWaitsForTheSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, began := NewSlots(func(string) {}), time.Now()
		var clusters sync.WaitGroup
		for range 4 {
			clusters.Go(func() { assert.ErrorContains(t, s.refresh(t.Context(), silent{}), "no answer") })
		}
		clusters.Wait()
		assert.Equal(t, 6*time.Second, time.Since(began))
		time.Sleep(slotsFresh)
		assert.Error(t, s.refresh(t.Context(), silent{}))
		assert.Equal(t, 12*time.Second+slotsFresh, time.Since(began), "then the store is asked again")
	})
}
