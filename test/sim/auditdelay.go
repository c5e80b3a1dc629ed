package sim

import (
	"time"

	"github.com/fenced/fenced/test/fake"
)

// lookWithin is the longest time between two Looks of a run whose own devices and
// cluster answer: the longest wait, a command, and random losses. // L3
const lookWithin = 40 * time.Second

// isDisturbed reports whether something other than a BMC keeps a fenced from its
// work.
func (c *incarnation) isDisturbed(now time.Time) bool {
	return !c.reaches() || now.Before(c.i.storeCut)
}

// auditDelay checks that runs are not delayed by others whose BMCs hang. since is
// when this fenced took them over. w.mu is held.
func (w *World) auditDelay(c *incarnation, since, now time.Time) {
	if c.isDisturbed(now) {
		c.disturbedAt = now
	}
	for _, r := range w.ledger.runs {
		h := w.hostOf(r.Target.Node)
		if !r.Open() || r.Step.Idle() || r.Level > 0 || !w.otherBMCHangs(h) { // a PDU handles one request at a time
			continue
		}
		w.outcome.Cases["L3 seconds of a run beside a hung BMC"]++
		from := latest(latest(since, r.Started), latest(c.disturbedAt, h.BMC.IllAt))
		if from = latest(from, c.active[h.Name]); now.Sub(from) > lookWithin {
			w.violate("L3", h.Name, "%s has not looked at run %s since %s, beside a BMC that hangs", c, r.ID, now.Sub(c.active[h.Name]))
		}
	}
}

// otherBMCHangs reports whether the BMC of another host hangs that has, or would
// have, an open run.
func (w *World) otherBMCHangs(h *host) bool {
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
