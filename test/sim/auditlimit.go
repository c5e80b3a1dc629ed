package sim

import (
	"time"

	"github.com/fenced/fenced/internal/remediate"
)

// tried is one start of a run, or one time that it began again by itself, which switched its host off.
type tried struct {
	run string
	at  time.Time
}

// auditRemoved checks that a check which selects Nodes starts nothing beyond its limit: Nodes that
// fenced itself has removed count until their runs end. w.mu is held. // I11
func (w *World) auditRemoved(r remediate.Run) {
	if w.plan.Limit == 0 || r.Manual != nil {
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

// auditRate counts the first Off of each start, also of a run that begins again by itself, and checks
// how many there were within an hour. Between a start and its Off others may start. w.mu is held. // I11
func (w *World) auditRate(r remediate.Run) {
	if r.Manual != nil || w.ledger.counted[r.ID] {
		return
	}
	w.ledger.counted[r.ID] = true
	g, now, lately := w.plan.guards(), time.Now(), 0
	w.ledger.starts = append(w.ledger.starts, tried{r.ID, now})
	for _, s := range w.ledger.starts {
		if now.Sub(s.at) < time.Hour {
			lately++
		}
	}
	if most := g.StartsPerHour + 2*g.MaxInFlight; lately > most {
		w.violate("I11", "", "start number %d within an hour, of at most %d: run %s on %s, attempt %d", lately, most, r.ID, r.Target.Node, r.Attempt)
	}
}
