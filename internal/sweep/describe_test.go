package sweep

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A description is many questions. The class of a BMC rests on it, so a slow one
// has time, and one that could not be finished is seen and asked for again soon.
func TestASlowDescriptionIsWaitedFor(t *testing.T) {
	w := newWorld()
	m := w.host(1)
	m.description.Model, m.tells = "R650", 8*readTimeout
	w.run(t, func(t *testing.T) {
		w.wait(3 * every)
		assert.Equal(t, "R650", w.result(t, 1).Description.Model)
		assert.Equal(t, m.takes, w.result(t, 1).Latency, "of the reading alone")
		require.Equal(t, 1, m.described)

		w.change(func() { m.tells = time.Hour })
		w.wait(describeEvery)
		r := w.result(t, 1)
		assert.Contains(t, r.DescribeProblem, "describe")
		assert.Equal(t, "R650", r.Description.Model, "as it was told before")
		assert.True(t, r.Dependable)
		before := m.described
		w.wait(describeRetry + 3*every)
		assert.Greater(t, m.described, before)

		w.change(func() { m.tells = 0 })
		w.wait(describeRetry + 3*every)
		assert.Empty(t, w.result(t, 1).DescribeProblem)
	})
}

func TestAnOrderWaitsForASlowDescription(t *testing.T) {
	w := newWorld()
	m := w.host(1)
	m.description.Model, m.tells = "R650", longTimeout-time.Second
	w.run(t, func(t *testing.T) {
		got, err := w.sweep.Audit(t.Context(), "prod", "n-1")
		require.NoError(t, err)
		assert.Equal(t, "R650", got[0].Description.Model)
		assert.Empty(t, got[0].DescribeProblem)
	})
}
