package engine_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/remediate"
)

// An action that was recorded too late, and so was not done, may still appear in the log.
// Each time an event says that it was not done. // I24
func TestLateRecordIsFollowedByNotDone(t *testing.T) {
	for _, tc := range []struct {
		late func(event.Event) bool
		told string
	}{
		{func(e event.Event) bool { return e.Action == remediate.SendOff }, "not done: "},
		{func(e event.Event) bool { return e.Type == event.Started }, "not started: "},
	} {
		bubble(t, func(t *testing.T, w *world, store *failingStore) {
			var mu sync.Mutex
			inLog := map[string]int{} // by run
			_, events, stop := start(t, w, store, func(o *engine.Options) {
				o.Record = func(e event.Event) error {
					if !tc.late(e) {
						return nil
					}
					time.Sleep(5 * time.Second)
					mu.Lock()
					defer mu.Unlock()
					inLog[e.Run]++
					return fmt.Errorf("wait for the audit log: %w", context.DeadlineExceeded)
				}
			})
			time.Sleep(10 * time.Minute)
			stop()
			mu.Lock()
			defer mu.Unlock()
			require.NotEmpty(t, inLog)
			require.Zero(t, w.Count(bmc.CommandOff))
			undone := map[string]int{}
			for _, ev := range eventsOf(t, events, func(ev event.Event) bool {
				return ev.Type == event.Failed && strings.HasPrefix(ev.Message, tc.told)
			}) {
				undone[ev.Run]++
			}
			assert.Equal(t, inLog, undone)
		})
	}
}
