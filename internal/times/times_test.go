package times

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestBackoff(t *testing.T) {
	var b Backoff
	assert.False(t, b.Failing())
	now := time.Unix(1, 0)
	for _, pause := range []time.Duration{10 * time.Second, 20 * time.Second, 40 * time.Second, time.Minute, time.Minute} {
		b = b.After(now, 10*time.Second, time.Minute)
		assert.True(t, b.Failing())
		assert.Equal(t, now.Add(pause), b.Next)
		now = b.Next
	}
}

func TestQuantile(t *testing.T) {
	assert.Zero(t, Quantile(nil, 0.95))
	assert.Equal(t, time.Second, Quantile([]time.Duration{time.Second}, 0.95))
	var all []time.Duration
	for i := range 20 {
		all = append(all, time.Duration(20-i))
	}
	assert.Equal(t, time.Duration(19), Quantile(all, 0.95))
	assert.Equal(t, time.Duration(10), Quantile(all, 0.5))
	assert.Equal(t, time.Duration(20), Quantile(all, 1))
	assert.Equal(t, time.Duration(1), Quantile(all, 0))
	assert.Equal(t, time.Duration(20), all[0], "they keep their order")
}
