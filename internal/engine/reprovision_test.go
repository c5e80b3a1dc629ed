package engine_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/remediate"
)

// If a host does not come back, its Machine is deleted, once, and only where that is
// allowed and a controller replaces it. // I14
func TestMachineOfAHostThatStaysAwayIsDeleted(t *testing.T) {
	for name, c := range map[string]struct {
		allowed, owned bool
		want           remediate.Step
		deprovisioned  []string
	}{
		"allowed":          {true, true, remediate.Reprovisioned, []string{"n-1"}},
		"not allowed":      {false, true, remediate.Held, nil},
		"nobody's Machine": {true, false, remediate.Held, nil},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world, store *failingStore) {
				if c.owned {
					w.ownMachines()
				}
				w.SetBootTime(never)
				e, _, stop := start(t, w, store, func(o *engine.Options) {
					o.Run.MaxAttempts, o.Clusters[0].Reprovision = 1, c.allowed
				})
				time.Sleep(90 * time.Minute)
				r := only(t, e)
				assert.Equal(t, c.want, r.Step, "%s: %s", r.Reason, r.Note)
				assert.Equal(t, c.deprovisioned, w.Deprovisioned())
				assert.Equal(t, c.deprovisioned == nil, w.On(), "a host is erased with its Machine, and with nothing else")
				assert.Zero(t, w.HandedOver())
				stop()
			})
		})
	}
}
