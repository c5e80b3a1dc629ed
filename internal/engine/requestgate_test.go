package engine_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
)

// explain says of a request that came to nothing why, and not that its time has not come.
func TestRequestThatIsOverIsExplained(t *testing.T) {
	for code, over := range map[reason.Code]func(*policy.Request){
		reason.RequestTimeout: func(q *policy.Request) { q.TimedOut = time.Now() },
		reason.Deleting:       func(q *policy.Request) { q.Deleting = true },
	} {
		bubble(t, func(t *testing.T, w *world, store *failingStore) {
			ask(w, over)
			e, _, stop := start(t, w, store, responding(w))
			time.Sleep(5 * time.Minute)
			require.Empty(t, e.Runs("c"))
			assert.Equal(t, "request", gate(t, e, code).Name)
			stop()
		})
	}
}
