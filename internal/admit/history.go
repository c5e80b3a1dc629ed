package admit

import (
	"slices"
	"time"

	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/times"
)

// healthyReset: once a Node was Ready for this time after a run, that run and earlier ones
// no longer count in the back-off. // I15
const healthyReset = time.Hour

// history lists the power cycles that acted on one host.
type history struct {
	powerCycles []remediate.Run
	// releasedAt is when a person released the host. Runs that started before do not count.
	releasedAt time.Time
	// stableUntil is when the Node's last period of at least healthyReset of Ready ended. // I15
	stableUntil time.Time
}

// history collects the power cycles of a target, the newest first.
func (rs runs) history(t remediate.Target, stableUntil, releasedAt time.Time) history {
	h := history{releasedAt: releasedAt, stableUntil: stableUntil}
	for _, r := range rs.each() {
		if r.Strategy == remediate.PowerCycle && r.TouchedHost() && r.Target.Overlaps(t) {
			h.powerCycles = append(h.powerCycles, *r)
		}
	}
	slices.SortFunc(h.powerCycles, func(a, b remediate.Run) int { return b.Started.Compare(a.Started) })
	return h
}

// lastEnded is the latest end of a power cycle; zero: none has ended.
func (h history) lastEnded() (last time.Time) {
	for _, r := range h.powerCycles {
		last = times.Later(last, r.Ended)
	}
	return last
}

// startedWithin counts the power cycles that started within the last d, and after the last
// release by a person. A run that waited and began again counts for each start that acted on the
// host. // I15
func (h history) startedWithin(now time.Time, d time.Duration) (n int) {
	for _, r := range h.powerCycles {
		for _, s := range r.Starts() {
			if s.Acted && now.Sub(s.At) < d && !s.At.Before(h.releasedAt) {
				n++
			}
		}
	}
	return n
}

// failedInARow counts the newest power cycles in a row that did not end Done, since the last
// release and since the Node was last Ready for healthyReset. // I15
func (h history) failedInARow() (n int) {
	for _, r := range h.powerCycles {
		switch {
		case r.Open():
			continue
		case r.Step == remediate.Done, r.Started.Before(h.releasedAt), !r.Ended.After(h.stableUntil.Add(-healthyReset)):
			return n
		}
		n++
	}
	return n
}

// stableUntil is, by Node, when the last period of at least healthyReset of Ready ended. The
// lock of the Book protects it.
type stableUntil map[string]time.Time

// recordTransitions records the Nodes that become not Ready after such a period. Call it
// before the ledger applies the changes.
func (s stableUntil) recordTransitions(l *policy.Ledger, now time.Time, changes []policy.Change) {
	for i := range changes {
		n, ok := changes[i].Value.(*policy.Node)
		if !ok || n == nil || n.Ready() {
			continue
		}
		before := l.Node(n.Name)
		if before == nil || !before.Ready() {
			continue
		}
		_, from := readyCondition(before)
		_, until := readyCondition(n)
		if !from.IsZero() && until.Sub(from) >= healthyReset && !until.After(now) {
			s[n.Name] = until
		}
	}
}

// readyCondition returns the status of a Node's Ready condition, and since when it has that
// status; zero: unknown.
func readyCondition(n *policy.Node) (status string, at time.Time) {
	for _, c := range n.Conditions {
		if c.Type == "Ready" {
			return c.Status, c.LastTransition
		}
	}
	return "", time.Time{}
}
