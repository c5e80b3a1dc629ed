package engine_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/test/fake"
)

// A host for which another remediator was asked is in flight: the next one waits until that request is
// gone, also after a restart. // I11
func TestRequestsAreInFlight(t *testing.T) {
	for name, limit := range map[reason.Code]func(*engine.Options){
		reason.InFlightLimit: func(o *engine.Options) { o.Guards.MaxInFlight = 1 },
		reason.TotalInFlight: func(o *engine.Options) { o.Guards.MaxInFlightTotal = 1 },
	} {
		bubble(t, func(t *testing.T, w *world, store *failingStore) {
			limited := func(o *engine.Options) { handingOver(w)(o); limit(o) }
			_, _, stop := start(t, w, store, limited)
			time.Sleep(2 * time.Minute)
			require.Len(t, others(w), 1)
			answer(w, "True")
			w.addOther(100) // well, and then not
			w.Do(func(s *fake.State) { s.Host("other-100").Hang(time.Time{}); s.SetReady("other-100", "Unknown") })
			stop()
			e, _, stop := start(t, w, store, limited)
			time.Sleep(3 * time.Minute)
			assert.Len(t, others(w), 1, "%s", name)
			x, err := e.Explain(t.Context(), "c", "other-100")
			require.NoError(t, err)
			codes := map[reason.Code]bool{}
			for _, g := range x.Gates {
				codes[g.Reason] = codes[g.Reason] || !g.Pass
			}
			assert.True(t, codes[name], "%s is not among %+v", name, x.Gates)
			w.Recover()
			time.Sleep(3 * time.Minute)
			require.Len(t, others(w), 1, "%s", name)
			assert.NotEqual(t, "m-1", others(w)[0].Name, "the place is free")
			stop()
		})
	}
}
