package wall

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestSet(t *testing.T) {
	for _, by := range []time.Duration{time.Hour, -time.Hour, time.Second, -time.Second, 0} {
		now := time.Now()
		set := Set(now, by)
		assert.Zero(t, set.Sub(now), "the monotonic clock goes on")
		assert.Equal(t, by, set.Round(0).Sub(now.Round(0)))
		assert.Equal(t, by, set.Add(time.Minute).Round(0).Sub(now.Round(0))-time.Minute)
	}
	assert.Panics(t, func() { Set(time.Now().Round(0), time.Hour) }, "without a monotonic clock nothing can be told apart")
	assert.Panics(t, func() { Set(time.Now(), time.Millisecond) })
}
