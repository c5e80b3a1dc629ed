package guard

import (
	"fmt"
	"time"

	"github.com/fenced/fenced/internal/reason"
)

// The back-off between two deletions of Machines of one controller, while the
// Machines that it makes in their place fail before they were ever Ready.
const (
	deletionBackOff    = time.Minute // doubled for each further failure in a row
	deletionBackOffMax = time.Hour
)

// DeletionFact is what is known for a run that deletes a Machine and switches no
// power.
type DeletionFact struct {
	// InProgress counts the Machines of the check whose deletion was asked for, and of
	// which the Machine or its Node still exists.
	InProgress int
	// LastHour is the number of such runs that the cluster started in the last hour.
	// Next is when the bucket has a token for the next one.
	LastHour int
	Next     time.Time
	// Last is the last deletion of a Machine of the same controller; zero: none is
	// known. FailedReplacements counts the Machines that the controller made in place
	// of deleted ones and that failed before they were ever Ready, in a row.
	Last               time.Time
	FailedReplacements int
	// StartingUntil is when the start-up timeout of a replacement ends that was never
	// Ready and has not failed itself; zero: the Machine is none.
	StartingUntil time.Time
}

// deletionGuards limit how many Machines are deleted at a time, how often, and how
// soon their replacements may be deleted. // I11
func deletionGuards(l Limits, d DeletionFact, now time.Time) []reason.Gate {
	limit := max(1, l.MaxDeletions)
	return []reason.Gate{
		reason.NewGate("deletions", d.InProgress < limit, reason.DeletionLimit,
			fmt.Sprintf("%d of this check in progress", d.InProgress), fmt.Sprintf("below %d", limit), "guards.maxDeletions"),
		reason.NewGate("deletionRate", !d.Next.After(now), reason.DeletionRate,
			fmt.Sprintf("%d within the last hour", d.LastHour), bucketText(l.DeletionBucket()), "guards.deletionsPerHour").PassesFrom(d.Next),
		deletionBackOffGuard(d, now),
		replacementGuard(d, now),
	}
}

// deletionBackOffGuard delays the next deletion of a Machine whose controller makes
// no Machine that works.
func deletionBackOffGuard(d DeletionFact, now time.Time) reason.Gate {
	wait, free := time.Duration(0), now
	if d.FailedReplacements > 0 && !d.Last.IsZero() {
		wait = deletionBackOff
		for n := 1; n < d.FailedReplacements && wait < deletionBackOffMax; n++ {
			wait *= 2
		}
		wait = min(wait, deletionBackOffMax)
		free = d.Last.Add(wait)
	}
	value := "no replacement failed"
	if d.FailedReplacements > 0 {
		value = fmt.Sprintf("%s of its controller in a row failed before they were Ready", countText(d.FailedReplacements, "replacement"))
	}
	return reason.NewGate("deletionBackOff", !now.Before(free), reason.DeletionBackOff, value,
		wait.String()+" after the last deletion", "the Machine's controller").PassesFrom(free)
}

// replacementGuard gives a replacement its whole start-up timeout: what is seen of it
// before may be about the Machine or the Node before it.
func replacementGuard(d DeletionFact, now time.Time) reason.Gate {
	value := "not a replacement that is starting"
	if d.StartingUntil.After(now) {
		value = "a replacement that is starting, until " + d.StartingUntil.UTC().Format(time.RFC3339)
	}
	return reason.NewGate("replacement", !d.StartingUntil.After(now), reason.ReplacementStarting, value,
		"its start-up timeout is over", "the check's start-up timeout").PassesFrom(d.StartingUntil)
}
