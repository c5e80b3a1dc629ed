package sim

import (
	"slices"
	"time"

	"github.com/fenced/fenced/internal/remediate"
)

// seenWithin is how soon an update must affect the decisions of a fenced.
const seenWithin = 3 * time.Second

// auditAddress checks which machine a new run leads to. w.mu is held.
func (w *World) auditAddress(c *incarnation, r remediate.Run, now time.Time) {
	node := r.Target.Node
	h := w.hostOf(node)
	if why, since := c.duplicateReason(h, r.Target.SystemUUID); why != "" && now.Sub(since) > seenWithin {
		w.violate("I9", node, "run %s was begun although %s, as was told %s ago", r.ID, why, now.Sub(since))
	}
	fixed := w.devices(r.Target.Devices)
	w.ledger.fixed[r.ID] = fixed
	if len(fixed) == 0 {
		return
	}
	to := fixed[0].h
	switch {
	case fixed[0].outlet != nil || to == nil:
		w.violate("I10", node, "run %s was begun with %s first", r.ID, names(fixed))
	case h.listed && to != c.knows.ways[node].bmc:
		w.violate("I10", node, "run %s was begun with %s, and hosts.d says the BMC of %s", r.ID, names(fixed), c.knows.ways[node].bmc.Name)
	case !h.listed && h.pinned && to != h:
		w.violate("I10", node, "run %s was begun with %s, and was enrolled with its own", r.ID, names(fixed))
	case !h.listed && !slices.ContainsFunc(c.knows.metal[node], func(t toldMetal) bool { return t.to == to }):
		w.violate("I10", node, "run %s was begun with %s, where no BareMetalHost led", r.ID, names(fixed))
	}
}

// commander finds the run for which a fenced sends a command to a device: one
// whose record contains the command, preferably one that started with that
// device. w.mu is held.
func (w *World) commander(l *link, a remediate.Action) (r remediate.Run, found bool) {
	for _, each := range w.ledger.runs {
		if !each.Open() || each.Intent.Action != a || w.ledger.writer[each.ID] != l.inc {
			continue
		}
		if slices.Contains(w.ledger.fixed[each.ID], logKey{l.h, l.outlet}) {
			return each, true
		}
		if !found || each.Target.Node == l.h.Name {
			r, found = each, true
		}
	}
	if !found { // a run of another fenced, or none // I19
		return w.open(l.h.Name)
	}
	return r, true
}

// auditReach checks that a command reaches no machine other than those that its
// run started with. w.mu is held. // I10
func (w *World) auditReach(l *link, r remediate.Run, a remediate.Action) {
	fixed := w.ledger.fixed[r.ID]
	switch to := (logKey{l.h, l.outlet}); {
	case slices.Contains(fixed, to):
		if c := l.inc; c.hostMoved(r, time.Now()) {
			w.outcome.Cases["I10 commands of runs whose host is said to be elsewhere"]++
		}
	case len(fixed) == 0: // it started with a manual confirmation, without an address
		w.ledger.fixed[r.ID] = []logKey{to}
	default:
		w.violate("I10", r.Target.Node, "%s of run %s reaches %s, and it began with %s", a, r.ID, names([]logKey{to}), names(fixed))
	}
}

// hostMoved reports whether this fenced knew that a run's host has another
// address than at the start of the run.
func (c *incarnation) hostMoved(r remediate.Run, now time.Time) bool {
	fixed := c.i.w.ledger.fixed[r.ID]
	if len(fixed) == 0 {
		return false
	}
	if leads, listed := c.knows.ways[r.Target.Node]; listed {
		return leads.bmc != fixed[0].h || len(fixed) > 1 && leads.outlets != fixed[1].h
	}
	list := c.knows.metal[r.Target.Node]
	return len(list) > 0 && list[len(list)-1].to != fixed[0].h && now.Sub(list[len(list)-1].at) > seenWithin
}
