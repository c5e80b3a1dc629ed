package admit

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/fenced/fenced/internal/cluster"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/remediate"
)

// The end of a pause that a clock two hours ahead has written does not keep fenced quiet for two
// hours. // I16
func TestQuietPeriodBeginsNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		f := &Freshness{}
		f.opt.Limits = cluster.NewLimits(guard.Limits{QuietPeriod: time.Minute}, remediate.Limits{})
		f.BeQuiet(now.Add(2 * time.Hour))
		assert.Equal(t, now.Add(time.Minute), f.QuietUntil())
		f.BeQuiet(now.Add(-time.Hour))
		assert.Equal(t, now.Add(time.Minute), f.QuietUntil(), "it is not shortened")
	})
}

func TestWithDetail(t *testing.T) {
	assert.Equal(t, "not synced yet", withDetail("not synced yet", ""))
	assert.Equal(t, "not synced yet; refused", withDetail("not synced yet", "refused"))
}
