package admit

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
)

// overdueEvery is how often the deciding goroutine looks for deletions that are overdue.
const overdueEvery = 5 * time.Second

// Deletions lists the runs that asked for the deletion of a Machine which, or the Node of which,
// still exists: those that count against guards.maxDeletions, and those that have exceeded
// guards.deletionTimeout and count no more.
func (c *Cluster) Deletions(now time.Time) (inProgress, overdue []remediate.Run) {
	b := c.book
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.complete {
		return nil, nil
	}
	return b.runs.disappearing(b.ledger, c.opt.Guards.DeletionTimeout, now)
}

// overdueReporter reports each overdue deletion once. Only the deciding goroutine uses it.
type overdueReporter struct {
	next     time.Time
	reported map[string]bool // by run ID
}

// reportOverdue reports the deletions that have become overdue. Their places are free from
// now on.
func (c *Cluster) reportOverdue(now time.Time) {
	if now.Before(c.overdue.next) || !c.opt.Lead.Leads() {
		return
	}
	c.overdue.next = now.Add(overdueEvery)
	_, list := c.Deletions(now)
	slices.SortFunc(list, func(a, b remediate.Run) int { return strings.Compare(a.ID, b.ID) })
	reported := map[string]bool{}
	for _, r := range list {
		reported[r.ID] = true
		if c.overdue.reported[r.ID] {
			continue
		}
		c.emit(event.Event{Type: event.Failed, Node: r.Target.Node, Run: r.ID, Check: r.CheckID, Reason: reason.DeletionOverdue, Message: overdueMessage(r, c.opt.Guards.DeletionTimeout)})
		c.Wake()
	}
	c.overdue.reported = reported
}

func overdueMessage(r remediate.Run, timeout time.Duration) string {
	return fmt.Sprintf("delete Machine %s/%s: the Machine or its Node still exists %s after that (guards.deletionTimeout), so it no longer counts against guards.maxDeletions; "+
		"look at its finalizers and at the log of its controller", r.Target.Namespace, r.Target.Machine, timeout)
}
