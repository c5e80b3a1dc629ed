package engine

import (
	"slices"
	"time"

	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
)

// healthyReset is how long a Node must have been Ready after a run for the runs
// before to count no more in the back-off. // I15
const healthyReset = time.Hour

// history is what was done to one host: power cycles that touched it, the newest
// first.
type history struct {
	cycles []remediate.Run
	// forgiven: a person released the host then. It counts no run that began before.
	forgiven time.Time
	// well: until then the Node was Ready for an hour. // I15
	well time.Time
}

// history collects the power cycles of a target. c.mu is held.
func (c *cluster) history(t remediate.Target, forgiven time.Time) history {
	h := history{forgiven: forgiven, well: c.well[t.Node]}
	for _, r := range c.runs {
		if r.Strategy == remediate.PowerCycle && cycled(r) && r.Target.Overlaps(t) {
			h.cycles = append(h.cycles, r)
		}
	}
	slices.SortFunc(h.cycles, func(a, b remediate.Run) int { return b.Started.Compare(a.Started) })
	return h
}

// cycled says whether a run has touched its host in any attempt: a later one that waits
// for its turn has not done so itself. // I15
func cycled(r remediate.Run) bool { return r.Intervened || r.Attempt > 1 }

// lastEnded is when the newest of them that has ended did.
func (h history) lastEnded() (last time.Time) {
	for _, r := range h.cycles {
		last = later(last, r.Ended)
	}
	return last
}

// within counts those that began not longer ago than that, and since a person
// released the host.
func (h history) within(now time.Time, d time.Duration) (n int) {
	for _, r := range h.cycles {
		if now.Sub(r.Started) < d && !r.Started.Before(h.forgiven) {
			n++
		}
	}
	return n
}

// notDone counts the newest that ended in a row otherwise than well. // I15
func (h history) notDone() (n int) {
	for _, r := range h.cycles {
		switch {
		case r.Open():
			continue
		case r.Step == remediate.Done, r.Started.Before(h.forgiven), !r.Ended.After(h.well.Add(-healthyReset)):
			return n
		}
		n++
	}
	return n
}

// noteHealth remembers of the Nodes that turn not Ready until when they were Ready for
// an hour. c.mu is held, and the ledger has the Nodes as they were before.
func (c *cluster) noteHealth(now time.Time, changes []policy.Change) {
	for i := range changes {
		n, ok := changes[i].Value.(*policy.Node)
		if !ok || n == nil || n.Ready() {
			continue
		}
		before := c.ledger.Node(n.Name)
		if before == nil || !before.Ready() {
			continue
		}
		_, from := turned(before)
		_, until := turned(n)
		if !from.IsZero() && until.Sub(from) >= healthyReset && !until.After(now) {
			c.well[n.Name] = until
		}
	}
}

// turned is the status of a Node's Ready condition, and since when it has that; zero
// when it does not say.
func turned(n *policy.Node) (status string, at time.Time) {
	for _, c := range n.Conditions {
		if c.Type == "Ready" {
			return c.Status, c.LastTransition
		}
	}
	return "", time.Time{}
}

// nextStart is when the cluster may begin one more run, and how many it began within
// an hour. What ended before it touched anything counts no more. c.mu is held. // I11
func (c *cluster) nextStart(now time.Time) (at time.Time, lastHour int) {
	if c.e.opt.Guards.StartsPerHour <= 0 {
		return time.Time{}, 0
	}
	var starts []time.Time
	for _, r := range c.runs {
		if r.Step == remediate.Aborted && r.Strategy == remediate.PowerCycle && !cycled(r) {
			continue
		}
		starts = append(starts, r.Started)
		if now.Sub(r.Started) < time.Hour {
			lastHour++
		}
	}
	return c.e.opt.Guards.Bucket().Next(starts, now), lastHour
}
