package sim

import (
	"strings"
	"time"

	"github.com/fenced/fenced/internal/remediate"
)

// tried is one start of a run by itself, or one time that it began again.
type tried struct {
	run string
	at  time.Time
	off bool // it has switched its host off
}

// auditRemoved checks that a check which selects Nodes starts nothing beyond its limit: Nodes that
// fenced itself has removed count until their runs end, whoever began these. Who has no limit, a
// person or a policy, starts what the check would not. w.mu is held. // I11
func (w *World) auditRemoved(r remediate.Run) {
	if w.plan.Limit == 0 || r.Manual != nil || !strings.HasPrefix(r.CheckID, w.check.Kind) {
		return
	}
	gone := 0
	for _, o := range w.ledger.runs {
		if o.ID != r.ID && o.Open() && !o.Isolated.IsZero() && w.api.Nodes[o.Target.Node] == nil && time.Since(w.ledger.isolated[o.ID]) > seenWithin {
			gone++
		}
	}
	if gone > 0 {
		w.outcome.Cases["I11 starts beside Nodes that fenced has removed"]++
	}
	if gone+1 > w.plan.Limit {
		w.violate("I11", "", "run %s on %s begins (attempt %d) although fenced has removed %d Nodes, and the check allows %d", r.ID, r.Target.Node, r.Attempt, gone, w.plan.Limit)
	}
}

// auditRate checks, at the first Off of each start, how many starts within an hour have come so far:
// also those of a run that began again by itself. w.mu is held. // I11
func (w *World) auditRate(r remediate.Run) {
	list, g := w.ledger.starts, w.plan.guards()
	i := len(list) - 1
	for i >= 0 && list[i].run != r.ID {
		i--
	}
	if i < 0 || list[i].off {
		return
	}
	list[i].off = true
	lately := 0
	for _, s := range list[:i+1] {
		if s.off && !w.ledger.misdated[s.run] && list[i].at.Sub(s.at) < time.Hour-w.plan.apart() {
			lately++
		}
	}
	if lately > g.StartsPerHour+g.MaxInFlight {
		w.violate("I11", "", "start number %d within an hour, of at most %d and %d at once: run %s on %s, attempt %d", lately, g.StartsPerHour, g.MaxInFlight, r.ID, r.Target.Node, r.Attempt)
	}
}

// recordStart records a start. w.mu is held.
func (w *World) recordStart(r remediate.Run) {
	if r.Manual == nil {
		w.ledger.starts = append(w.ledger.starts, tried{run: r.ID, at: time.Now()})
	}
}
