package sim

import (
	"time"

	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/test/fake"
)

// lookWithin is how soon a run is looked at again whose own devices and whose cluster
// answer: the longest wait between two looks, a command, and what is lost at random. // L3
const lookWithin = 40 * time.Second

// hampered says whether something else than a BMC keeps a fenced from its work.
func (c *incarnation) hampered(now time.Time) bool {
	return !c.reaches() || now.Before(c.i.storeCut)
}

// auditDelay looks at the runs that a fenced has, beside others whose BMCs hang. since is
// when it took them over. w.mu is held.
func (w *World) auditDelay(c *incarnation, since, now time.Time) {
	if c.hampered(now) {
		c.hamperedAt = now
	}
	for _, r := range w.ledger.runs {
		h := w.hostOf(r.Target.Node)
		if !r.Open() || r.Step == remediate.Held || r.Level > 0 || !w.hungBeside(h) { // a PDU is asked by one at a time
			continue
		}
		w.outcome.Cases["L3 seconds of a run beside a hung BMC"]++
		from := latest(latest(since, r.Started), latest(c.hamperedAt, h.BMC.IllAt))
		if from = latest(from, c.active[h.Name]); now.Sub(from) > lookWithin {
			w.violate("L3", h.Name, "%s has not looked at run %s since %s, beside a BMC that hangs", c, r.ID, now.Sub(c.active[h.Name]))
		}
	}
}

// hungBeside says whether the BMC of another host hangs that is asked: a run is open on
// it, or would be.
func (w *World) hungBeside(h *host) bool {
	for _, o := range w.hosts {
		if o == h || o.BMC.Fault != fake.Hangs {
			continue
		}
		if _, open := w.open(o.Name); open || w.api.Nodes[o.Name] != nil && w.api.Nodes[o.Name].Ready == "Unknown" {
			return true
		}
	}
	return false
}
