package wire

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/fenced/fenced/internal/remediate"
)

// A status lists the newest runs that ended in the last 24 hours, and counts the others.
func TestRecentRuns(t *testing.T) {
	now := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	ended := func(id string, ago time.Duration) remediate.Run {
		return remediate.Run{ID: id, Step: remediate.Done, Started: now.Add(-ago - time.Minute), Ended: now.Add(-ago)}
	}
	byAnna := ended("r-2", time.Hour)
	byAnna.Manual = &remediate.Order{Actor: "anna"}
	list, more := RecentRuns([]remediate.Run{ended("r-1", 23*time.Hour), {ID: "open", Step: remediate.Waiting}, byAnna, ended("old", 25*time.Hour)}, now)
	assert.Zero(t, more)
	if assert.Len(t, list, 2) {
		assert.Equal(t, []string{"r-2", "anna", ResultDone, "r-1"}, []string{list[0].ID, list[0].Actor, list[0].Result, list[1].ID})
	}
	var many []remediate.Run
	for i := range maxRecent + 3 {
		many = append(many, ended(fmt.Sprintf("r-%02d", i), time.Hour))
	}
	list, more = RecentRuns(many, now)
	assert.Len(t, list, maxRecent)
	assert.Equal(t, 3, more)
	assert.Equal(t, "r-22", list[0].ID)
}
