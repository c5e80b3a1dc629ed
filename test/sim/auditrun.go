package sim

import (
	"slices"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/times"
	"github.com/fenced/fenced/test/fake"
)

// auditRun checks a run when it is stored. w.mu is held.
func (w *World) auditRun(d *storeClient, old remediate.Run, known bool, r remediate.Run) {
	node := r.Target.Node
	if w.plan.Instances > 1 && !w.owners.valid(d.inc, d.epoch) { // I19
		w.violate("I19", node, "%s stored run %s without owning the cluster", d.inc, r.ID)
	}
	if known && (!old.Open() || w.plan.Clocks == 0 && r.Started.Before(old.Started)) {
		w.violate("I19", node, "%s wrote over run %s, which had ended (%s)", d.inc, r.ID, old.Step)
	}
	if !known {
		w.auditStart(d.inc, r)
	}
	for key, uid := range r.Restored {
		w.ledger.readBack[readBackKey{r.ID, uid, key}] = true
	}
	asked := old.Attempt == r.Attempt && (old.Intent.Action == remediate.SendOn || old.Intent.Action == remediate.ReleasePowerLock)
	if asked || r.Step == remediate.AwaitNode || r.Step == remediate.RestoreNode {
		w.ledger.on[attemptKey{r.ID, r.Attempt}] = true // it was commanded on, or found on: the Lease may be renewed
	}
	if old.Step != r.Step {
		w.note(node, "stored by %s: run %s %s -> %s %s %s", d.inc, r.ID, old.Step, r.Step, r.Reason, r.Note)
	}
	switch {
	case r.Step == remediate.Held && r.Reason == "FalseOff" && (old.Step != remediate.Held || old.Reason != r.Reason):
		w.ledger.frozen[node] = r.ID
		w.auditFalseOff(r)
		w.auditSign(r)
	case r.Step.Ended() && old.Step != r.Step:
		w.outcome.Ends[string(r.Step)+reasonText(r)]++
		if r.Request != nil && r.Step != remediate.Aborted {
			w.ledger.answered[r.Request.UID] = time.Now()
		}
		w.auditEnd(r)
	}
	if r.Step.Idle() && old.Step != r.Step {
		w.outcome.Ends[string(r.Step)+reasonText(r)]++
		w.auditStop(r)
	}
	if known && old.Step.Idle() && r.Step == remediate.PowerOn && byPerson(r) {
		w.ledger.broughtBack[r.ID] = time.Now()
	}
	switch {
	case !known || r.Step != remediate.PowerOff:
	case old.Step == remediate.Waiting:
		w.auditAgain(d.inc, r)
	case r.Attempt > old.Attempt && !byPerson(r):
		w.auditAnother(d.inc, r)
	}
}

// auditStop checks a run that has stopped: it is Held only for a person. w.mu is held.
func (w *World) auditStop(r remediate.Run) {
	if r.Step == remediate.Held {
		w.ledger.held[r.ID] = true
	}
	class := reason.ClassOf(r.Reason)
	if w.plan.Waits && r.Step == remediate.Held && r.Confirmed == nil && !r.NoMoreAttempts && (class == reason.Transient || class == reason.Mended) {
		w.violate("L5", r.Target.Node, "run %s is Held for %s", r.ID, r.Reason)
	}
}

// auditAgain checks a run that begins step 1 again after a pause, without a person. w.mu is held.
func (w *World) auditAgain(c *incarnation, r remediate.Run) {
	if last := r.Steps[len(r.Steps)-2].Note; !strings.Contains(last, "retried by "+remediate.SelfActor) {
		return
	}
	w.auditAnother(c, r)
	w.outcome.Actions["begins again"]++
	w.auditRemoved(r)
	w.recordStart(r)
	g, node, now := w.plan.guards(), r.Target.Node, time.Now()
	inFlight, zone := w.auditBeside(w.hostOf(node), r)
	if r.Manual == nil && (inFlight >= g.MaxInFlight || zone >= g.MaxInFlightPerZone && w.hostOf(node).Zone != "") {
		w.violate("I11", "", "run %s on %s begins again beside %d in flight, %d of them in its zone", r.ID, node, inFlight, zone)
	}
	if at := w.stopped(c, node, now); !at.IsZero() && now.Sub(at) > time.Second {
		w.violate("I23", node, "run %s begins again %s after the pause or hold", r.ID, now.Sub(at))
	}
}

// byPerson says whether a person has ordered the step that a run has just entered. What a Waiting run does by itself is no order.
func byPerson(r remediate.Run) bool {
	last := r.Steps[len(r.Steps)-2].Note
	return strings.HasPrefix(last, "unfenced by ") || strings.HasPrefix(last, "aborted by ") ||
		strings.Contains(last, "retried by ") && !strings.Contains(last, "retried by "+remediate.SelfActor)
}

// auditSign checks that a sign of life is one of a kubelet. w.mu is held.
func (w *World) auditSign(r remediate.Run) {
	n, node := w.api.Nodes[r.Target.Node], r.Target.Node
	if n != nil && n.BootID == "" && !strings.Contains(r.Note, "Lease") {
		w.violate("I5", node, "run %s takes Node %s, which no kubelet has made, for a sign of life: %s", r.ID, n.UID, r.Note)
	}
}

func reasonText(r remediate.Run) string {
	if r.Reason == "" {
		return ""
	}
	return "/" + string(r.Reason)
}

// auditStart checks a run that is started. w.mu is held.
func (w *World) auditStart(c *incarnation, r remediate.Run) {
	g, node := w.plan.guards(), r.Target.Node
	h := w.hostOf(node)
	inFlight, zone := w.auditBeside(h, r)
	w.outcome.Actions["starts"]++
	now := time.Now()
	w.recordStart(r)
	w.auditAddress(c, r, now)
	w.auditAlone(node, r.ID, "run "+r.ID+" was begun")
	within := time.Second
	if r.Request != nil { // its finalizer is set first; the run then looks before it does anything
		within += requestTimeout
	}
	if at := w.stopped(c, node, now); !at.IsZero() && now.Sub(at) > within {
		w.violate("I23", node, "run %s was begun %s after the pause or hold", r.ID, now.Sub(at))
	}
	if r.Manual != nil { // a person is responsible for the rates
		return
	}
	if w.plan.Requests {
		w.auditRequested(c, r, now)
	} else {
		w.auditAsked(c, r, now)
	}
	w.auditRemoved(r)
	if inFlight >= g.MaxInFlight || zone >= g.MaxInFlightPerZone && h.Zone != "" {
		w.violate("I11", "", "run %s on %s was begun beside %d in flight, %d of them in its zone", r.ID, node, inFlight, zone)
	}
	lately := 0
	for _, o := range w.ledger.runs {
		if o.Manual == nil && !w.ledger.misdated[o.ID] && now.Sub(w.ledger.begun[o.ID]) < time.Hour && (o.Step != remediate.Aborted || o.Intervened) { // otherwise it did nothing to the host
			lately++
		}
	}
	if lately > g.MaxInFlight+g.StartsPerHour {
		w.violate("I11", node, "run %s is number %d within an hour", r.ID, lately)
	}
	if h.protected {
		w.violate("I13", node, "run %s was begun on a protected host", r.ID)
	}
	w.auditView(c, node, "run "+r.ID)
}

// auditView checks that something new is begun only on a view that can be trusted. w.mu is held. // I16
func (w *World) auditView(c *incarnation, node, what string) {
	const slack = 2 * time.Second // from the decision to the record
	g := w.plan.guards()
	switch v := c.view; {
	case !v.synced, time.Since(v.proven) > g.ViewMaxAge+slack, c.i.clock.skew.Abs() > g.ClockSkewMax && time.Since(c.i.clock.since) > slack:
		w.violate("I16", node, "%s was begun on a view that is %s old, with clocks %s apart", what, time.Since(v.proven), c.i.clock.skew)
	case !v.since.IsZero() && time.Since(v.since) < g.QuietPeriod:
		w.violate("I16", node, "%s was begun %s after an outage", what, time.Since(v.since))
	}
}

// auditBeside checks the other open runs, and counts those in flight, and those
// of them in the zone. w.mu is held.
func (w *World) auditBeside(h *host, r remediate.Run) (inFlight, zone int) {
	node := r.Target.Node
	for _, o := range w.ledger.runs {
		if o.ID == r.ID || !o.Open() {
			continue
		}
		if o.Target.Node == node {
			w.violate("I1", node, "%s was begun beside run %s", r.ID, o.ID)
		}
		if o.ControlPlane && !o.TakesNoTurn && r.ControlPlane {
			w.violate("I12", node, "run %s on a control-plane host was begun beside %s", r.ID, o.ID)
		}
		if o.Step.Idle() || o.Step == remediate.RestoreNode {
			continue
		}
		if time.Since(w.ledger.broughtBack[o.ID]) <= time.Second+requestTimeout {
			continue // a person may bring a host back beside any number, also after a run has got its place and before it is stored
		}
		inFlight++
		if o.Step == remediate.AwaitNode { // its host is on: it no longer uses a slot of the zone
			continue
		}
		if p := w.hostOf(o.Target.Node); h != nil && p != nil && h.Zone != "" && p.Zone == h.Zone {
			zone++
		}
	}
	for _, q := range w.api.Others { // of which each at work counts as a run in step 1
		of, ours := w.others.made[q.UID]
		o := w.hostOf(of.node)
		if !ours || of.node == node {
			continue
		}
		if o.ControlPlane && r.ControlPlane {
			w.violate("I12", node, "%s, on a control-plane host, was begun beside %s", r.ID, q.UID)
		}
		if record, known := w.recordOf(of.mark); known && !record.Idle.IsZero() {
			continue // it stands still, and only its target is blocked
		}
		if inFlight++; h != nil && h.Zone != "" && o.Zone == h.Zone {
			zone++
		}
	}
	return inFlight, zone
}

// auditEnd checks a run that has just ended. w.mu is held.
func (w *World) auditEnd(r remediate.Run) {
	node := r.Target.Node
	h, n := w.hostOf(node), w.api.Nodes[node]
	before, isolated := w.ledger.boots[r.ID]
	if r.Step == remediate.Aborted && isolated && n != nil && w.machineOf(n) == h.Host && otherUUID(n.SystemUUID, r.Target.SystemUUID) {
		w.ledger.forged[node] = true
	}
	if r.Step != remediate.Done {
		return
	}
	same := h.Boots <= before.boots
	if before.on { // it may have booted just before, which nobody could know
		same = h.BootID() == before.boot
	}
	if isolated && same && !w.ledger.held[r.ID] { // I6; a person may have confirmed it
		w.violate("I6", node, "run %s is Done and its host has not booted since", r.ID)
	}
	saved, err := state.Backups(w.ctx, w.store, r.ID)
	var raw [][]byte
	for _, b := range saved {
		raw = append(raw, b.Node)
	}
	switch {
	case err != nil || isolated && len(saved) == 0:
		w.violate("I21", node, "run %s is Done and its backup is gone: %v", r.ID, err)
	case n == nil: // it was deleted a moment ago
	case n.UID == r.NewNodeUID && len(missing(n, raw)) > 0:
		w.violate("I21", node, "run %s is Done and the Node lacks %v", r.ID, missing(n, raw))
	case time.Since(h.spare.taken) < seenWithin: // its name was taken a moment ago
	case r.Target.SystemUUID == "" && r.Target.ReportedUUID == "": // nobody ever knew which machine it was about
	case otherUUID(n.SystemUUID, r.Target.SystemUUID), w.machineOf(n) != h.Host && w.machineOf(n) != nil:
		w.violate("I6", node, "run %s of machine %s is Done on another one, which tells %s in boot %s", r.ID, r.Target.SystemUUID, n.SystemUUID, n.BootID)
	}
}

// missing is what a Node lacks of what was saved, but for what its owner takes off.
func missing(n *fake.Node, backups [][]byte) []string {
	return slices.DeleteFunc(n.Missing(remediate.Run{}, backups), func(key string) bool { return key == "taint "+fake.NoNetwork })
}

// auditRestore checks that nothing is put back which its owner has taken off since a stored record says
// that it was read back. w.mu is held. // I21
func (w *World) auditRestore(c *incarnation, r remediate.Run, backups [][]byte) {
	n := w.api.Nodes[r.Target.Node]
	if n == nil || n.UID != r.NewNodeUID || w.ledger.writer[r.ID] != c { // another one may have read it back since
		return
	}
	for _, key := range n.Missing(r, backups) {
		if w.ledger.readBack[readBackKey{r.ID, n.UID, key}] {
			w.violate("I21", n.Name, "%s puts %s back on Node %s for run %s, and its owner took it off", c, key, n.UID, r.ID)
		}
	}
}

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
		from := times.Later(times.Later(since, r.Started), times.Later(c.disturbedAt, h.BMC.IllAt))
		if from = times.Later(from, c.active[h.Name]); now.Sub(from) > lookWithin {
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
