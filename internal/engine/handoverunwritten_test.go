package engine_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/escalate"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/policy"
)

// busyHandovers are of objects that change each time before they are deleted.
type busyHandovers struct {
	escalate.Objects
	busy *atomic.Bool
}

func (b busyHandovers) Delete(ctx context.Context, o escalate.Object, live *policy.Request) (wrote bool, err error) {
	if b.busy.Load() {
		return false, nil
	}
	return b.Objects.Delete(ctx, o, live)
}

// The audit log says what was done, not what was tried on an object that has changed meanwhile. // I24
func TestOnlyWhatWasWrittenIsTold(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		busy, change := &atomic.Bool{}, handingOver(w)
		busy.Store(true)
		_, events, stop := start(t, w, store, func(o *engine.Options) {
			change(o)
			askedBy(o, func(made escalate.Objects) escalate.Objects { return busyHandovers{made, busy} })
		})
		awaitAsked(t, w, "it is asked", func() bool { return len(others(w)) == 1 })
		w.Recover()
		time.Sleep(5 * time.Minute)
		deleted := func() int {
			return len(eventsOf(t, events, func(ev event.Event) bool {
				return ev.Type == event.Requested && strings.HasPrefix(ev.Message, "delete ")
			}))
		}
		assert.Zero(t, deleted(), "the object exists")
		busy.Store(false)
		awaitAsked(t, w, "it is deleted", func() bool { return len(others(w)) == 0 })
		assert.Equal(t, 1, deleted())
		stop()
	})
}
