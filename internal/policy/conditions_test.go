package policy

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"

	"github.com/fenced/fenced/test/law"
)

// The conditions of a Node are those that it was given, to the nanosecond, also without a time and at the bounds of times.
func TestLawConditions(t *testing.T) {
	law.Check(t, func(t *rapid.T) {
		var list []Condition
		for range rapid.IntRange(0, 5).Draw(t, "conditions") {
			at := rapid.SampledFrom([]time.Time{{}, earliestTime, latestTime, ledgerEpoch, time.Unix(0, 0).UTC()}).Draw(t, "time")
			if !at.IsZero() {
				at = at.Add(time.Duration(rapid.Int64Range(-1, 2_000_000_000).Draw(t, "more")))
			}
			list = append(list, Condition{rapid.StringMatching("[a-c]?").Draw(t, "type"), rapid.StringMatching("[a-c]?").Draw(t, "status"), at})
		}
		all := ConditionsOf(list)
		assert.Equal(t, list, slices.Collect(all.All()))
		for first := range all.All() {
			assert.Equal(t, list[0], first)
			break
		}
	})
}
