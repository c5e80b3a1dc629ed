package admit

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// The end of a pause that a clock two hours ahead has written does not keep fenced quiet for two
// hours. // I16
func TestQuietPeriodBeginsNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		f := &Freshness{}
		f.opt.QuietPeriod = time.Minute
		f.BeQuiet(now.Add(2 * time.Hour))
		assert.Equal(t, now.Add(time.Minute), f.QuietUntil())
		f.BeQuiet(now.Add(-time.Hour))
		assert.Equal(t, now.Add(time.Minute), f.QuietUntil(), "it is not shortened")
	})
}
