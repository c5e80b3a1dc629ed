package admit

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

// history collects the power cycles of a target. Until well its Node was Ready for an
// hour; since forgiven a person lets the host be fenced again.
func (rs runs) history(t remediate.Target, well, forgiven time.Time) history {
	h := history{forgiven: forgiven, well: well}
	for _, r := range rs.byID {
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

// wellUntil is, by Node, until when the Node was Ready for an hour. It has no lock: its
// Book has.
type wellUntil map[string]time.Time

// note remembers the Nodes that turn not Ready. The ledger has the Nodes as they were
// before.
func (w wellUntil) note(l *policy.Ledger, now time.Time, changes []policy.Change) {
	for i := range changes {
		n, ok := changes[i].Value.(*policy.Node)
		if !ok || n == nil || n.Ready() {
			continue
		}
		before := l.Node(n.Name)
		if before == nil || !before.Ready() {
			continue
		}
		_, from := turned(before)
		_, until := turned(n)
		if !from.IsZero() && until.Sub(from) >= healthyReset && !until.After(now) {
			w[n.Name] = until
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
