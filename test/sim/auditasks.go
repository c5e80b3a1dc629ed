package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/request"
	"github.com/fenced/fenced/internal/run"
)

// toldRequest is a request as one fenced knew it.
type toldRequest struct {
	uid  string
	over bool // gone, being deleted, or given up
	at   time.Time
}

// seen is what an update of a request changes.
func (t toldRequest) seen(q *policy.Request, now time.Time) toldRequest {
	switch over := isOver(q); {
	case q == nil:
		return toldRequest{t.uid, true, now}
	case q.UID == t.uid && over == t.over:
		return t
	default:
		return toldRequest{q.UID, over, now}
	}
}

// isOver says whether a request asks for nothing more.
func isOver(q *policy.Request) bool { return q == nil || q.Deleting || !q.TimedOut.IsZero() }

// auditRequested checks the start of a run by itself where only requests may start one. w.mu is
// held. // I4
func (w *World) auditRequested(c *incarnation, r remediate.Run, now time.Time) {
	node := r.Target.Node
	if r.Request == nil {
		w.violate("I4", node, "run %s was begun by %s, and nobody has asked for it", r.ID, r.Check)
		return
	}
	w.outcome.Actions["starts by request"]++
	known := c.knows.requests[r.Request.Name]
	if (known.uid != r.Request.UID || known.over) && now.Sub(known.at) > seenWithin {
		w.violate("I4", node, "run %s was begun for request %s, which is over, as was told %s ago", r.ID, r.Request.UID, now.Sub(known.at))
	}
	if !w.ledger.answered[r.Request.UID].IsZero() && now.Sub(w.ledger.answered[r.Request.UID]) > seenWithin {
		w.violate("I4", node, "run %s was begun for request %s, which was carried out %s ago", r.ID, r.Request.UID, now.Sub(w.ledger.answered[r.Request.UID]))
	}
}

// auditRequestHeld checks, before the first Off of a run, that its request cannot vanish without
// fenced. w.mu is held. // I20
func (w *World) auditRequestHeld(c *incarnation, h *host, r remediate.Run) {
	if r.Request == nil {
		return
	}
	if q := w.api.Asked[r.Request.Name]; q == nil || q.UID != r.Request.UID || !q.Power.HasFinalizer {
		w.violate("I20", h.Name, "%s begins for request %s, which is not held", c, r.Request.UID)
	}
}

// auditReleased checks that a request is let go only when its host is not left off, also by a run
// that this fenced does not know. w.mu is held. // I20
func (w *World) auditReleased(c *incarnation, ref remediate.Request) {
	w.outcome.Actions["releases"]++
	h := w.hostOf(strings.TrimPrefix(ref.Name, "m-"))
	n := w.api.Nodes[h.Name]
	works := n != nil && n.Ready == "True" && w.machineOf(n) == h.Host // as long as nobody has noticed that it is off again
	if _, open := w.open(h.Name); !open && !works && h.offByFenced() && !w.replaced(ref.UID) && !w.givenAway(h) && c.log(h, nil).last.State != bmc.On {
		w.violate("I20", h.Name, "%s releases request %s, its host is off by %s, and no run is known", c, ref.UID, h.OffBy)
	}
	for _, r := range w.ledger.runs {
		if r.Request == nil || r.Request.UID != ref.UID || !r.Open() || !r.TouchedHost() {
			continue
		}
		if h := w.hostOf(r.Target.Node); h != nil && !h.On && h.OffBy != "foreign hand" && c.log(h, nil).last.State != bmc.On {
			w.violate("I20", h.Name, "%s releases request %s, and run %s (%s %s) has its host off", c, ref.UID, r.ID, r.Step, r.Reason)
		}
	}
}

// auditAnother checks that an attempt begins by itself only while somebody asks for it. w.mu is
// held. // I4
func (w *World) auditAnother(c *incarnation, r remediate.Run) {
	if r.Manual != nil {
		return
	}
	w.outcome.Cases["I4 attempts that begin by themselves"]++
	if why := c.notAskedReason(r, time.Now()); why != "" {
		w.violate("I4", r.Target.Node, "run %s begins attempt %d: %s", r.ID, r.Attempt, why)
	}
}

// notAskedReason returns why nobody asks for a run any more, as far as this fenced knew; "" if
// somebody does. w.mu is held.
func (c *incarnation) notAskedReason(r remediate.Run, now time.Time) string {
	if r.Request == nil {
		if check := c.knows.check; strings.HasPrefix(r.CheckID, c.i.w.check.Kind) && check.gone && now.Sub(check.at) > seenWithin {
			return fmt.Sprintf("its check is gone, as was told %s ago", now.Sub(check.at))
		}
		return ""
	}
	last := c.i.w.ledger.looks[lookKey{c, r.Target.Node}]
	if known, listed := c.knows.requests[r.Request.Name]; listed && (!known.over || now.Sub(known.at) <= seenWithin) {
		return "" // it may be another request
	}
	if f := last.fresh; f.RequestRead && isOver(f.Request) && !c.i.w.deletedWithItsNode(r, f) {
		return "request " + r.Request.UID + " is over"
	}
	return ""
}

// deletedWithItsNode says whether the request of a run was deleted only after the run had isolated its Node, which
// is still gone: the controller that asks may have deleted it because of that, and sees nothing. w.mu is held.
func (w *World) deletedWithItsNode(r remediate.Run, f run.Fresh) bool {
	isolated, deleted := w.ledger.isolated[r.ID], w.asks.deleted[r.Request.UID]
	gone := f.Node == nil || f.Node.BootID == ""
	return gone && !isolated.IsZero() && deleted.After(isolated) && (f.Request == nil || f.Request.TimedOut.IsZero())
}

// finishRequests requires that no request which was deleted waits for ever for fenced. w.mu is
// held. // L1
func (w *World) finishRequests() {
	for _, h := range w.hosts {
		q := w.api.Asked["m-"+h.Name]
		if _, open := w.open(h.Name); q != nil && q.Deleting && !open && time.Since(w.asks.deleted[q.UID]) > 5*time.Minute {
			w.violate("L1", h.Name, "request %s is being deleted since %s, and no run is open", q.UID, time.Since(w.asks.deleted[q.UID]))
		}
	}
}

// replaced says whether a run of a request has ended because its Machine is being replaced, with its
// host as that leaves it. w.mu is held.
func (w *World) replaced(uid string) bool {
	for _, r := range w.ledger.runs {
		if r.Request != nil && r.Request.UID == uid && r.Step == remediate.Reprovisioned {
			return true
		}
	}
	return false
}

// givenAway says whether the newest run of a host has left its power to others: a person has closed it, or its
// Machine was replaced, and the host is its next owner's. w.mu is held.
func (w *World) givenAway(h *host) bool {
	newest := remediate.Run{}
	for _, r := range w.ledger.runs {
		if r.Target.Node == h.Name && r.ID > newest.ID {
			newest = r
		}
	}
	return newest.Reason == reason.ClosedAsIs || newest.Step == remediate.Reprovisioned
}

// saidAt is when a request was last told that it is not processed; final: it was answered.
type saidAt struct {
	at    time.Time
	final bool
}

// auditReported checks what is written into the status of a request. Whoever follows the contract
// begins when it says Processing=False: not while the host is off because of fenced. An answer may be
// under way for some seconds. w.mu is held. // I22
func (w *World) auditReported(c *incarnation, ref remediate.Request, told request.Status) {
	delete(w.ledger.said, ref.UID)
	if !slices.ContainsFunc(told.Conditions, func(t request.Condition) bool { return t.Type == request.Processing && t.Status == "False" }) {
		return
	}
	w.ledger.said[ref.UID] = saidAt{time.Now(), told.Phase == request.Succeeded || told.Phase == request.Failed}
	if h := w.hostOf(strings.TrimPrefix(ref.Name, "m-")); h.offByFenced() && time.Since(h.OnSince) > 2*requestTimeout && !w.replaced(ref.UID) && !w.givenAway(h) && !w.forgotten(h) {
		w.violate("I22", h.Name, "%s says Processing=False of request %s (%s), and its host is off by %s since %s", c, ref.UID, told.Phase, h.OffBy, time.Since(h.OnSince))
	}
}

// auditSaid checks that nothing is switched for a request that was answered, unless there is another
// one by now, which says that it is processed. w.mu is held. // I22
func (w *World) auditSaid(c *incarnation, r remediate.Run, what string) {
	if _, old := w.ledger.old[r.ID]; old { // auditOld is about that
		return
	}
	if r.Request == nil || w.api.Asked[r.Request.Name] != nil && w.api.Asked[r.Request.Name].UID != r.Request.UID {
		return
	}
	if s := w.ledger.said[r.Request.UID]; s.final && time.Since(s.at) > seenWithin {
		w.violate("I22", r.Target.Node, "%s does %s for run %s (%s), %s after it told request %s that it is not processed", c, what, r.ID, r.Step, time.Since(s.at), r.Request.UID)
	}
}

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
	n := seen.fresh.Node
	if n == nil || r.Request != nil { // who asks decides when a Node is sick
		return
	}
	ready := n.Conditions[0].Condition()
	if why := (toldNode{ready: ready.Status, since: ready.LastTransition}).notUnhealthyReason(now); why != "" {
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

func (w *World) countCase(what string, h *host, so bool) {
	k := caseKey{what, h.Name}
	if so && !w.ledger.cases[k] {
		w.outcome.Cases[what]++
	}
	w.ledger.cases[k] = so
}
