package engine_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/admit"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/policy"
)

// hangingWatch is the watch of a cluster whose deciding loop hangs from a moment on.
type hangingWatch struct {
	admit.Watch
	from <-chan struct{}
	till <-chan struct{}
}

func (w hangingWatch) Changes() []policy.Change {
	select {
	case <-w.from:
		<-w.till
	default:
	}
	return w.Watch.Changes()
}

// The watchdog is fed while the deciding loops of all clusters make progress: one that hangs is noticed,
// though all other goroutines live, the deciding loop of another cluster among them.
func TestOneHungLoopFeedsNoWatchdog(t *testing.T) {
	for _, hung := range []string{"one", "other"} {
		t.Run(hung, func(t *testing.T) {
			bubble(t, func(t *testing.T, _ *world, store *failingStore) {
				p, from, till := &pulse{}, make(chan struct{}), make(chan struct{})
				all := fleets{newFleet("one", 3, "z"), newFleet("other", 3, "z")}
				e, _, stop := all.guardBeating(t, store, func(o *engine.Options) {
					for i := range o.Clusters {
						if c := &o.Clusters[i]; c.Name == hung {
							c.Watch = hangingWatch{c.Watch, from, till}
						}
					}
				}, p.beat)
				time.Sleep(10 * time.Minute)
				p.requireAlive(t)

				close(from)
				time.Sleep(10 * time.Minute)
				require.Greater(t, p.silence(), watchdogTime, "the longest time without a beat")
				for _, c := range e.Status() {
					assert.Less(t, c.View.Age, time.Minute, "what watches %s lives", c.Name)
				}
				close(till)
				stop()
			})
		})
	}
}
