package sim

import (
	"fmt"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
)

// notUnhealthyReason returns why a Node, as fenced knew it, does not justify a
// run yet; "" if it does. The API server's times count, whatever they are. // I17
func (n toldNode) notUnhealthyReason(now time.Time) string {
	need := map[string]time.Duration{"Unknown": unknownFor, "False": falseFor}[n.ready]
	switch {
	case n.gone: // a Machine that lost its Node is unhealthy at once
		return ""
	case need == 0:
		return "it is Ready=" + n.ready
	case n.since.Add(need).Before(now):
		return ""
	}
	return fmt.Sprintf("it is Ready=%s since %s, for %s", n.ready, n.since.UTC().Format(time.RFC3339), now.Sub(n.since))
}

// notRequestedReason returns why the check that a run names could not request the
// run, as far as this fenced knew; "" if it could. w.mu is held. // I18
func (c *incarnation) notRequestedReason(r remediate.Run, now time.Time) string {
	switch check := c.knows.check; {
	case strings.HasPrefix(r.CheckID, policy.NodeHealthCheckKind) && strings.HasSuffix(r.CheckID, " empty"):
		return "its selector is empty"
	case strings.HasPrefix(r.CheckID, c.i.w.check.Kind) && check.hollow && now.Sub(check.at) > seenWithin:
		return fmt.Sprintf("it covers nothing, as was told %s ago", now.Sub(check.at))
	}
	return ""
}

// auditAsked checks a run that a check starts. w.mu is held.
func (w *World) auditAsked(c *incarnation, r remediate.Run, now time.Time) {
	node := r.Target.Node
	if why := c.notRequestedReason(r, now); why != "" {
		w.violate("I18", node, "run %s was begun by %s: %s", r.ID, r.CheckID, why)
	}
	if name := c.newPolicies(now); name != "" {
		w.violate("I18", node, "run %s was begun %s after a start with %s, which was new", r.ID, now.Sub(w.ledger.scopes[name]), name)
	}
	told := c.knows.nodes[node]
	if len(told) == 0 { // its list lacked the Node
		told = []toldNode{{gone: true}}
	}
	why := ""
	for _, n := range told {
		last := told[len(told)-1]
		if n != last && now.Sub(last.at) > seenWithin { // it has changed since
			continue
		}
		if why = n.notUnhealthyReason(now); why == "" {
			w.outcome.Cases["I17 starts"]++
			return
		}
	}
	w.violate("I17", node, "run %s was begun by %s: %s", r.ID, r.CheckID, why)
}

// auditStill checks the first command of a run that a check has started, by the
// Look that justifies it. w.mu is held.
func (w *World) auditStill(c *incarnation, r remediate.Run, seen looked, now time.Time) {
	if why := c.notRequestedReason(r, now.Add(-seenWithin)); why != "" {
		w.violate("I18", r.Target.Node, "%s begins, for %s: %s", c, r.CheckID, why)
	}
	if r.Request != nil && isOver(seen.fresh.Request) {
		w.violate("I4", r.Target.Node, "%s begins for request %s, and it was answered that this is over", c, r.Request.UID)
	}
	n := seen.fresh.Node
	if n == nil || r.Request != nil { // who asks decides when a Node is sick
		return
	}
	if why := (toldNode{ready: n.Conditions[0].Status, since: n.Conditions[0].LastTransition}).notUnhealthyReason(now); why != "" {
		w.violate("I17", r.Target.Node, "%s begins, and of its Node it was answered that %s", c, why)
	}
}

// caseKey is something that a rule has to forbid on a host.
type caseKey struct{ what, node string }

// auditCases counts what would be done if no rule forbade it. w.mu is held.
func (w *World) auditCases(c *incarnation, now time.Time) {
	if w.calm {
		return
	}
	for _, h := range w.hosts {
		sick, why, since := w.sick(c, h, now), "", now
		if sick {
			uuid, _ := c.uuid(h.Name)
			why, since = c.duplicateReason(h, uuid)
		}
		w.countCase("I9 sick hosts with a twin", h, why != "" && now.Sub(since) > seenWithin)
		w.countCase("I18 sick hosts of a check that covers nothing", h, sick && c.knows.check.hollow)
		w.countCase("I18 sick hosts after the scope has grown", h, sick && c.newPolicies(now) != "")
		r, open := w.open(h.Name)
		w.countCase("I17 Nodes that are Unknown since an absurd time", h, !open && h.absurd)
		w.countCase("I10 runs whose host is said to be elsewhere", h, open && c.hostMoved(r, now))
	}
}

// sick reports whether a check would request a run on a host, as far as this
// fenced knew.
func (w *World) sick(c *incarnation, h *host, now time.Time) bool {
	list := c.knows.nodes[h.Name]
	_, open := w.open(h.Name)
	return !open && !h.Gone && len(list) > 0 && list[len(list)-1].notUnhealthyReason(now) == ""
}

// countCase counts a case when it starts.
func (w *World) countCase(what string, h *host, so bool) {
	k := caseKey{what, h.Name}
	if so && !w.ledger.cases[k] {
		w.outcome.Cases[what]++
	}
	w.ledger.cases[k] = so
}
