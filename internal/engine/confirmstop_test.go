package engine_test

import (
	"bytes"
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/fenced/fenced/internal/bmc"
)

// heardAgain is a BMC that answers again, from when it was told to.
type heardAgain struct {
	bmc.Power
	now *atomic.Bool
}

func (h heardAgain) Read(ctx context.Context) (bmc.Reading, error) {
	if err := ctx.Err(); err != nil {
		return bmc.Reading{}, err
	}
	if h.now.Load() {
		return bmc.Reading{State: bmc.On, At: time.Now(), Session: 1}, nil
	}
	return h.Power.Read(ctx)
}

// A daemon that is stopping cannot read the levels once more, so it isolates nothing on a
// manual confirmation. // I26
func TestConfirmationIsolatesNothingWhileStopping(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, inner *failingStore) {
		store := &stubborn{Store: inner}
		var answers atomic.Bool
		_, stop := wrongWord(t, w, store, func(bmc.Device) (bmc.Power, error) { return heardAgain{w.bmc(), &answers}, nil })
		stopped := make(chan struct{})
		store.watch(func(run []byte) {
			if bytes.Contains(run, []byte(`"intent":{"action":"IsolateNode"`)) && answers.CompareAndSwap(false, true) {
				go func() { stop(); close(stopped) }()
				time.Sleep(10 * time.Millisecond) // the save ends after the stop was asked for
			}
		})
		<-stopped
		assert.True(t, answers.Load())
		assert.Zero(t, w.Isolations())
	})
}
