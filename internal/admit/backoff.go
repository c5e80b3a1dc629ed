package admit

import (
	"fmt"
	"time"

	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
)

const (
	rerunAfter = 10 * time.Second // between two runs on one target, whatever the guards say
	rerunMost  = 10 * time.Minute // after many that came to nothing
)

// backOff is a gate for a target on which a run has just ended: one that was
// dropped at once must not be begun again at once, and ever later when the next
// one is dropped, too. Nil when enough time has passed.
func (c *Cluster) backOff(a candidate, now time.Time) []reason.Gate {
	ended := c.book.endedOn(a.draft.Target)
	if len(ended) == 0 {
		return nil
	}
	wait, vain := rerunAfter, 0
	for i, r := range ended {
		if !inVain(r) || i > 0 && ended[i-1].Started.Sub(r.Ended) > 2*rerunMost {
			break
		}
		if vain++; vain > 1 {
			wait = min(2*wait, rerunMost)
		}
	}
	again := ended[0].Ended.Add(wait)
	if !now.Before(again) {
		return nil
	}
	return []reason.Gate{{
		Name: "backOff", Reason: reason.PowerInterval, Until: again, Source: "state", Threshold: wait.String(),
		Value: fmt.Sprintf("the last run ended at %s; %d in a row touched nothing", ended[0].Ended.UTC().Format(time.RFC3339), vain),
	}}
}

// inVain says whether a run that a check asked for ended before it did anything.
func inVain(r remediate.Run) bool {
	return r.Step == remediate.Aborted && !r.Intervened && r.Manual == nil
}
