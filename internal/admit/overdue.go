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

// Deletions are those of Machines which, or the Nodes of which, still exist.
type Deletions struct {
	opt  Options
	wake func()

	// Only the deciding goroutine uses what follows.
	next     time.Time
	reported map[string]bool // the overdue ones, by run ID
}

// List lists the runs that asked for such a deletion: those that count against
// guards.maxDeletions, and those that have exceeded guards.deletionTimeout and count no more.
func (d *Deletions) List(now time.Time) (inProgress, overdue []remediate.Run) {
	b := d.opt.Book
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.complete {
		return nil, nil
	}
	return b.runs.disappearing(b.ledger, d.opt.Limits.Guards().DeletionTimeout, now)
}

// reportOverdue reports each deletion once that has become overdue. Its place is free from
// now on.
func (d *Deletions) reportOverdue(now time.Time) {
	if now.Before(d.next) || !d.opt.Lead.Leads() {
		return
	}
	d.next = now.Add(overdueEvery)
	_, list := d.List(now)
	slices.SortFunc(list, func(a, b remediate.Run) int { return strings.Compare(a.ID, b.ID) })
	reported := map[string]bool{}
	for _, r := range list {
		if reported[r.ID] = true; d.reported[r.ID] {
			continue
		}
		d.opt.Emit(event.Event{Type: event.Failed, Cluster: d.opt.Name, Node: r.Target.Node, Run: r.ID, Check: r.CheckID,
			Reason: reason.DeletionOverdue, Message: overdueMessage(r, d.opt.Limits.Guards().DeletionTimeout)})
		d.wake()
	}
	d.reported = reported
}

func overdueMessage(r remediate.Run, timeout time.Duration) string {
	return fmt.Sprintf("delete Machine %s/%s: the Machine or its Node still exists %s after that (guards.deletionTimeout), so it no longer counts against guards.maxDeletions; "+
		"look at its finalizers and at the log of its controller", r.Target.Namespace, r.Target.Machine, timeout)
}
