package k8swatch

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What is the same for all targets is asked once for those who wait for it, whatever the target.
func TestSameQuestionsShareOneRequest(t *testing.T) {
	const many = 20
	for name, c := range map[string]struct {
		ask      func(context.Context, *Cluster) error
		key, got string
	}{
		"the checks of a namespace": {
			ask: func(ctx context.Context, k *Cluster) error {
				_, err := (&looker{c: k}).checksNow(ctx, false, "ns")
				return err
			},
			key: fmt.Sprintf("checks %s ns", checkGVR), got: `{"kind":"List","apiVersion":"machine.openshift.io/v1beta1","metadata":{"resourceVersion":"7"},"items":[]}`,
		},
		"the leader of a controller": {
			ask: func(ctx context.Context, k *Cluster) error {
				_, err := (&looker{c: k}).readLeader(ctx, checkLeader)
				return err
			},
			key: "leader " + checkLeader,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var requests atomic.Int64
			k := served(t, func(w http.ResponseWriter, r *http.Request) {
				requests.Add(1)
				if c.got == "" {
					status(w, http.StatusNotFound, "NotFound", checkLeader)
					return
				}
				w.Header().Set("Content-Type", "application/json")
				_, _ = fmt.Fprint(w, c.got)
			})
			k.shared.patience = time.Hour
			k.shared.running[c.key] = 1 // a read of somebody who asked before
			var g sync.WaitGroup
			for range many {
				g.Go(func() { assert.NoError(t, c.ask(t.Context(), k)) })
			}
			waiting := func() *sharedRead {
				k.shared.mu.Lock()
				defer k.shared.mu.Unlock()
				if r := k.shared.next[c.key]; r != nil && r.waiting == many {
					return r
				}
				return nil
			}
			until(t, time.Minute, "all that ask", func() bool { return waiting() != nil })
			require.Zero(t, requests.Load())
			k.shared.beginLate(c.key, waiting())
			g.Wait()
			assert.EqualValues(t, 1, requests.Load())
		})
	}
}
