package engine_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
)

// The host of the etcd member that serves the owner's watch dies silently, which takes
// long to notice, while all other requests go to the next member. A stop that is set at
// the other instance meanwhile applies. // I23
func TestStopElsewhereAppliesWhileTheWatchIsDead(t *testing.T) {
	for name, stopNow := range map[string]func(t *testing.T, e *engine.Engine) error{
		"hold":  func(t *testing.T, e *engine.Engine) error { _, err := e.Hold(t.Context(), byHand); return err },
		"pause": func(t *testing.T, e *engine.Engine) error { _, err := e.Pause(t.Context(), byHand); return err },
	} {
		for given, offs := range map[time.Duration]int{55 * time.Second: 0, untilOff: 1} {
			bubble(t, func(t *testing.T, w *world, store *failingStore) {
				p := newPair(t, w, store, func(_ string, o *engine.Options) { slowProof(o) })
				p.give("a")
				time.Sleep(given)
				p.store["a"].deaf.Store(true)
				require.NoError(t, stopNow(t, p.engine["b"]))
				time.Sleep(3 * time.Minute)
				assert.Equal(t, offs, w.Count(bmc.CommandOff), "%s at %s", name, given)
				assert.Zero(t, w.Isolations(), "%s at %s", name, given)
				assert.True(t, w.On())
				p.end()
			})
		}
	}
}
