package admit

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/api"
)

// TestRunIDsAreNames: a run that is made can be named in an order.
func TestRunIDsAreNames(t *testing.T) {
	for _, at := range []time.Time{time.Now(), time.UnixMilli(1), time.Date(2500, 1, 1, 0, 0, 0, 0, time.UTC)} {
		id := newRunID(at)
		require.NoError(t, api.CheckRun(id))
	}
}
