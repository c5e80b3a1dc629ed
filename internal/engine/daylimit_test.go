package engine_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
)

// A host that always returns slightly too late is fenced again and again, and each run
// ends while it waits for its second attempt. The daily limit counts these runs, and the
// host is quarantined. // I15
func TestRunsThatEndBeforeTheirNextAttemptCount(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e, _, stop := start(t, w, store, func(o *engine.Options) {
			o.Run.ReadyTimeout = 15 * time.Second // the kubelet needs 20 s
			o.Guards.MaxFencesPerDay, o.Guards.MinPowerInterval = 3, 3*time.Minute
		})
		for end := time.Now().Add(4 * time.Hour); time.Now().Before(end); {
			time.Sleep(10 * time.Minute)
			if w.On() && w.Ready() {
				w.Hang()
			}
		}
		assert.Equal(t, 3, w.Count(bmc.CommandOff), "power cycles within a day")
		assert.NotEmpty(t, e.Holds("c"), "quarantine")
		stop()
	})
}
