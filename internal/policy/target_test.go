package policy

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// What shows a live kubelet is that its Lease changes, by the clock of whoever reads it. The times that others
// wrote may be any. // I4
func TestRenewedUntil(t *testing.T) {
	noon := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) time.Time { return noon.Add(-d) }
	minute, never, year2999 := time.Minute, time.Time{}, time.Date(2999, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		status string
		since  time.Time
		lease  Lease
		alive  bool
	}{
		"Ready is not Unknown":                      {"False", ago(5 * minute), Lease{RenewTime: ago(0), Since: ago(0), Before: ago(minute)}, false},
		"the only version, renewed since":           {"Unknown", ago(5 * minute), Lease{RenewTime: ago(10), Since: ago(0), Before: never}, true},
		"the only version, renewed before":          {"Unknown", ago(5 * minute), Lease{RenewTime: ago(6 * minute), Since: ago(0), Before: never}, false},
		"the year 2999, just read":                  {"Unknown", ago(5 * minute), Lease{RenewTime: year2999, Since: ago(0), Before: never}, true},
		"the year 2999, unchanged for a minute":     {"Unknown", ago(5 * minute), Lease{RenewTime: year2999, Since: ago(minute), Before: never}, false},
		"an old time, and it changed since":         {"Unknown", ago(5 * minute), Lease{RenewTime: ago(time.Hour), Since: ago(minute / 2), Before: ago(minute)}, true},
		"an old time, and the last change is old":   {"Unknown", ago(5 * minute), Lease{RenewTime: ago(time.Hour), Since: ago(minute), Before: ago(2 * minute)}, false},
		"it changed before or after, nobody knows":  {"Unknown", ago(5 * minute), Lease{RenewTime: ago(time.Hour), Since: ago(0), Before: ago(6 * minute)}, false},
		"a condition of the year 2999, and changes": {"Unknown", year2999, Lease{RenewTime: ago(time.Hour), Since: ago(0), Before: ago(minute)}, true},
		"a condition of the year 2999, standing":    {"Unknown", year2999, Lease{RenewTime: year2999, Since: ago(minute), Before: never}, false},
		"a saved state":                             {"Unknown", ago(5 * minute), Lease{RenewTime: ago(minute / 2)}, true},
		"a saved state, old":                        {"Unknown", ago(5 * minute), Lease{RenewTime: ago(minute)}, false},
	} {
		n := &Node{Conditions: []Condition{{Type: "Ready", Status: c.status, LastTransition: c.since}}}
		assert.Equal(t, c.alive, noon.Before(RenewedUntil(n, c.lease, noon)), name)
	}
	assert.True(t, RenewedUntil(nil, Lease{}, noon).IsZero())
}

// The longest timeout that can be written is no negative number of seconds.
func TestLongestTimeoutInSeconds(t *testing.T) {
	assert.Equal(t, int(math.MaxInt64/time.Second)+1, wholeSeconds(math.MaxInt64))
	assert.Equal(t, 2, wholeSeconds(time.Second+1))
	assert.Equal(t, 1, wholeSeconds(time.Second))
	assert.Zero(t, wholeSeconds(0))
}
