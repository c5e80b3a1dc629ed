package suspend

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// It stands still while the host is awake, however long that is.
func TestAwakeHostIsNotSuspended(t *testing.T) {
	first := Total()
	time.Sleep(50 * time.Millisecond)
	assert.InDelta(t, first, Total(), float64(10*time.Millisecond))
}
