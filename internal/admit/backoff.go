package admit

import (
	"fmt"
	"time"

	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
)

const (
	rerunAfter = 10 * time.Second // minimum time between two runs on one target
	rerunMax   = 10 * time.Minute // upper limit of that time after many runs without an action
)

// backOffGates returns a failing gate while the last run on the target ended too recently.
// The wait doubles with each run in a row that ended without an action. It returns nil when
// enough time has passed.
func (c *Cluster) backOffGates(a candidate, now time.Time) []reason.Gate {
	ended := c.book.endedOn(a.draft.Target)
	if len(ended) == 0 {
		return nil
	}
	wait, unproductive := rerunAfter, 0
	for i, r := range ended {
		if !endedWithoutAction(r) || i > 0 && ended[i-1].Started.Sub(r.Ended) > 2*rerunMax {
			break
		}
		if unproductive++; unproductive > 1 {
			wait = min(2*wait, rerunMax)
		}
	}
	next := ended[0].Ended.Add(wait)
	if !now.Before(next) {
		return nil
	}
	return []reason.Gate{{
		Name: "backOff", Reason: reason.PowerInterval, Until: next, Source: "state", Threshold: wait.String(),
		Value: fmt.Sprintf("the last run ended at %s; %d runs in a row ended without an action", ended[0].Ended.UTC().Format(time.RFC3339), unproductive),
	}}
}

// endedWithoutAction says whether a run that a check asked for ended before it did anything.
func endedWithoutAction(r remediate.Run) bool {
	return r.Step == remediate.Aborted && !r.Intervened && r.Manual == nil
}
