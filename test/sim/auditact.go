package sim

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/times"
	"github.com/fenced/fenced/test/fake"
)

// freshFor is the maximum age of a Look that justifies a first command. // I4
const freshFor = 2 * time.Second

// auditCommand checks a command when it is sent to a device. w.mu is held.
func (w *World) auditCommand(l *link, c bmc.Command) {
	now := time.Now()
	w.outcome.Actions[c.String()]++
	if c != bmc.CommandOff && c != bmc.CommandOn {
		w.violate("I3", l.h.Name, "command %d", c)
		return
	}
	want := remediate.SendOff
	if c == bmc.CommandOn {
		want = remediate.SendOn
	}
	r, open := w.commander(l, want)
	if !open {
		w.violate("I19", l.h.Name, "%s gives %s and no run is open", l.inc, c)
		return
	}
	h := w.hostOf(r.Target.Node)
	w.auditIntent(l.inc, r, want)
	// On to what cannot be read changes nothing, and outlets that were sent an Off are sent an On even if
	// they read On: they may switch off late. // I20
	last, late := l.inc.log(h, nil).last, l.outlet != nil && r.OffLevel > 0
	if c == bmc.CommandOff || last.State == bmc.On && now.Sub(last.At) < proofMaxAge && !late {
		w.auditOld(l.inc, h, r, c.String())
	}
	w.auditSaid(l.inc, r, c.String())
	w.auditReach(l, r, want)
	if c == bmc.CommandOn {
		w.auditOn(l.inc, h, r)
		return
	}
	w.auditDestructive(l.inc, r, want)
	if who := l.inc.log(l.h, nil).last.Identity.UUID; l.outlet == nil && who != h.UUID {
		w.violate("I8", h.Name, "%s switches off what calls itself %q", l.inc, who)
	}
	w.auditDuplicate(l.inc, h, r, now)
	w.auditFirst(l.inc, h, r, now)
	w.auditRate(r)
}

// auditIntent checks that the command is in the durable record, and that its
// sender owns the cluster. // I19
func (w *World) auditIntent(c *incarnation, r remediate.Run, a remediate.Action) {
	node := r.Target.Node
	switch {
	case r.Intent.Action != a:
		w.violate("I19", node, "%s does %s, and the record says %q", c, a, r.Intent.Action)
	case w.ledger.writer[r.ID] != c:
		w.violate("I19", node, "%s does %s, and %s wrote the record last", c, a, w.ledger.writer[r.ID])
	case w.plan.Instances > 1 && !(w.owners.holder == c && time.Now().Before(w.owners.expires)):
		w.violate("I19", node, "%s does %s after its claim has ended", c, a)
	}
}

// auditDestructive checks destructive actions. w.mu is held.
func (w *World) auditDestructive(c *incarnation, r remediate.Run, a remediate.Action) {
	node := r.Target.Node
	h := w.hostOf(node)
	now := time.Now()
	w.auditTarget(c, h, r, a)
	if at := w.stopped(c, node, now); !at.IsZero() && now.Sub(at) > time.Second {
		w.violate("I23", node, "%s does %s %s after the pause or hold", c, a, now.Sub(at))
	}
	if l := w.api.Fenced; l.By != c || now.Sub(l.Renewed) > fake.LeaseDuration {
		w.violate("I22", node, "%s does %s, and the Lease fenced is %s's since %s", c, a, l.Held.Instance, now.Sub(l.Renewed))
	}
	if l := w.api.NodeLocks[node]; w.plan.Medik8s && !(a == remediate.SendOff && !h.On) && (l.Holder != w.api.LocksAs || l.Expired()) {
		w.violate("I22", node, "%s does %s, and %q holds medik8s' Lease on the Node since %s", c, a, l.Holder, now.Sub(l.Renewed))
	}
	if skew := c.i.clock.skew.Abs(); skew > w.plan.guards().ClockSkewMax && now.Sub(c.i.clock.since) > 2*time.Second {
		w.violate("I16", node, "%s does %s by a clock that is %s off since %s", c, a, skew, now.Sub(c.i.clock.since))
	}
	if run := w.ledger.frozen[node]; run != "" && a != remediate.DeleteTargetMachine {
		w.violate("I5", node, "%s does %s although run %s found a false Off out", c, a, run)
	}
	if h.own && c.i.n == 0 || h.protected && r.Manual == nil {
		w.violate("I13", node, "%s does %s to its own host, or a protected one", c, a)
	}
	if last := w.ledger.recorded[recordedKey{c, r.ID}]; last.action != a || last.at.Before(w.ledger.runs[r.ID].Intent.At) {
		w.violate("I24", node, "%s does %s, and the last record is of %q at %s", c, a, last.action, last.at.Sub(w.began))
	}
}

// auditDuplicate checks that no duplicate host is switched off. In a later
// attempt a host counts if it came back. w.mu is held.
func (w *World) auditDuplicate(c *incarnation, h *host, r remediate.Run, now time.Time) {
	if why, since := c.duplicateReason(h, r.Target.SystemUUID); r.Attempt == 1 && why != "" && now.Sub(since) > seenWithin {
		w.violate("I9", h.Name, "%s switches it off although %s, as was told %s ago (the run: %s ago)", c, why, now.Sub(since), now.Sub(r.Started))
	}
}

// auditFirst checks the first command of a run to its host. w.mu is held.
func (w *World) auditFirst(c *incarnation, h *host, r remediate.Run, now time.Time) {
	for _, each := range w.ledger.cycles[h.Name] {
		if each.run == r.ID {
			return
		}
	}
	last := w.ledger.looks[lookKey{c, h.Name}]
	seen := last.fresh.Observation
	off := !h.On && c.log(h, nil).last.State == bmc.Off // then the command is not destructive, and the isolation is checked again
	switch age := r.Intent.At.Sub(last.began); {
	case !off && (age > freshFor || seen.API != remediate.APIReachable):
		w.violate("I4", h.Name, "%s begins on a look that is %s old", c, age)
	case seen.Contested != remediate.No:
		w.violate("I22", h.Name, "%s begins although %s is at work", c, seen.Contender)
	case r.Manual == nil && r.Attempt == 1 && !off && r.Request != nil && isOver(last.fresh.Request):
		w.violate("I4", h.Name, "%s begins for request %s, and it was answered that this is over", c, r.Request.UID)
	case r.Manual == nil && seen.Node.Ready == remediate.Yes:
		w.violate("I4", h.Name, "%s begins although the Node is Ready", c)
	case r.Manual == nil && seen.Node.Exists == remediate.Yes && seen.Node.UID != r.Target.NodeUID:
		w.violate("I4", h.Name, "%s begins although the Node is another one", c)
	}
	if _, old := w.ledger.old[r.ID]; r.Attempt == 1 && !old { // auditAnother is about a later one: another request may ask for it
		w.auditRequestHeld(c, h, r)
	}
	if r.Manual == nil {
		w.auditStill(c, r, last, now)
	}
	if h.ControlPlane && !last.quorum {
		w.violate("I12", h.Name, "%s begins although etcd would lose its quorum", c)
	}
	all := w.ledger.cycles[h.Name]
	before := all[w.ledger.forgiven[h.Name]:]
	if g := w.plan.guards(); r.Manual == nil && len(before) >= g.MaxFencesPerDay {
		w.violate("I15", h.Name, "%s begins run number %d of this day", c, len(before)+1)
	} else if n := len(before); n > 0 && r.Manual == nil && !before[n-1].asked && now.Sub(before[n-1].at) < g.MinPowerInterval {
		w.violate("I15", h.Name, "%s begins %s after the run before", c, now.Sub(before[n-1].at))
	}
	w.ledger.cycles[h.Name] = append(all, cycle{run: r.ID, at: now})
}

// auditOn checks commands that may bring a host back. w.mu is held.
func (w *World) auditOn(c *incarnation, h *host, r remediate.Run) {
	if r.Isolated.IsZero() || r.Abandon != "" {
		return
	}
	at, known := w.ledger.isolated[r.ID] // the record's time is wrong if the clock was wrong
	if !known {
		at = r.Isolated
	}
	n := w.api.Nodes[h.Name]
	anew := n != nil && n.BootID != "" && n.BootID != r.Target.BootID                                       // a foreign hand was quicker: the pods are the new Node's
	if since := time.Since(at); w.api.Pods[h.Name] > 0 && !anew && since < podsGoneTimeout-w.plan.apart() { // I7
		w.violate("I7", h.Name, "%s switches on %s after the isolation, with %d pods bound", c, since, w.api.Pods[h.Name])
	}
	k := attemptKey{r.ID, r.Attempt}
	// Without a Node one renewal may be that of another machine, which registers in the next moment. Another boot of the
	// isolated Node may be that of somebody who has switched the host on: nobody can tell when it began.
	seen := w.ledger.looks[lookKey{c, h.Name}].fresh.Observation
	another := seen.Node.UID == r.Target.NodeUID && seen.Node.BootID != "" && seen.Node.BootID != r.Target.BootID
	if !w.ledger.on[k] && seen.Node.Exists != remediate.No && !another && c.moved(h, r, seen.Lease) {
		w.violate("I5", h.Name, "%s switches on although the Lease moved while the host was believed off", c)
	}
	w.ledger.on[k] = true // from now on the Lease may be renewed
}

// auditAction checks a write to the cluster when it is requested. w.mu is held.
func (w *World) auditAction(c *incarnation, r remediate.Run, a remediate.Action, b remediate.Backup) {
	node, now := r.Target.Node, time.Now()
	h := w.hostOf(node)
	w.outcome.Actions[string(a)]++
	w.auditIntent(c, w.ledger.runs[r.ID], a)
	if a == remediate.SetPowerLock {
		w.auditOld(c, h, r, string(a))
	}
	switch a {
	case remediate.ReleasePowerLock:
		w.auditOn(c, h, w.ledger.runs[r.ID])
	case remediate.SetPowerLock:
		if c.hostMoved(r, now) {
			w.violate("I10", node, "%s holds a BareMetalHost that leads elsewhere than when run %s began", c, r.ID)
		}
		w.auditDestructive(c, r, a)
		w.auditDuplicate(c, h, r, now)
		w.auditFirst(c, h, r, now)
	case remediate.IsolateNode:
		w.auditDestructive(c, r, a)
		w.auditIsolate(c, h, r, b, now)
	case remediate.ReleasePods:
		w.auditDestructive(c, r, a)
		w.auditRelease(c, h, r, now)
	case remediate.DeleteTargetMachine:
		w.auditDestructive(c, r, a)
		if r.ControlPlane || h.ControlPlane || !w.plan.Reprovision || r.Attempt < r.Limits.MaxAttempts && r.Reason != "PowerOnFailed" {
			w.violate("I14", node, "%s deletes the Machine in attempt %d (%s)", c, r.Attempt, r.Reason)
		}
	}
}

// auditRelease checks that the pods of a Node are deleted only after its isolation, and
// while its host is proven off. w.mu is held.
func (w *World) auditRelease(c *incarnation, h *host, r remediate.Run, now time.Time) {
	w.outcome.Cases["I7 pods released"]++
	if saved := w.ledger.runs[r.ID]; saved.Isolated.IsZero() || saved.Abandon != "" {
		w.violate("I7", h.Name, "%s deletes pods before the isolation is on the record", c)
	}
	if why := c.notProvenReason(h, now); why != "" {
		w.violate("I1", h.Name, "%s deletes pods without a proof: %s", c, why)
	}
}

// auditWrite checks a destructive write when it is carried out, however long
// after it was sent. w.mu is held.
func (w *World) auditWrite(c *incarnation, r remediate.Run, a remediate.Action, b remediate.Backup) {
	if !a.Destructive() {
		return
	}
	w.auditIntent(c, w.ledger.runs[r.ID], a)
	if h := w.hostOf(r.Target.Node); a == remediate.IsolateNode {
		w.auditIsolate(c, h, r, b, time.Now())
	}
}

// auditIsolate checks the one write that cannot be undone. w.mu is held.
func (w *World) auditIsolate(c *incarnation, h *host, r remediate.Run, b remediate.Backup, now time.Time) {
	if r.IsolatesOnConfirmation() {
		w.outcome.Cases["I26 isolations on a word"]++
		for k, l := range c.logs {
			if k.h == h && l.last.State == bmc.On && now.Sub(l.last.At) < proofMaxAge {
				w.violate("I26", h.Name, "%s isolates on a person's word although %s reads On", c, names([]logKey{k}))
			}
		}
	} else if why := c.notProvenReason(h, now); why != "" {
		w.violate("I1", h.Name, "%s isolates without a proof: %s", c, why)
	}
	if why := c.leaseNotStable(h, now); why != "" && !r.IsolatesOnConfirmation() {
		w.violate("I5", h.Name, "%s isolates %s", c, why)
	}
	seen := w.ledger.looks[lookKey{c, h.Name}].fresh.Observation
	if c.moved(h, r, seen.Lease) {
		w.violate("I5", h.Name, "%s isolates although the Lease moved after the first Off", c)
	}
	if seen.Contested != remediate.No {
		w.violate("I22", h.Name, "%s isolates although %q is at work", c, seen.Contender)
	}
	saved, err := state.Backups(w.ctx, w.store, r.ID)
	if n := len(saved); err != nil || n == 0 || saved[n-1].NodeUID != b.UID || saved[n-1].ResourceVersion != b.ResourceVersion {
		w.violate("I21", h.Name, "%s isolates %s at %s and the last of %d backups is another one (%v)", c, b.UID, b.ResourceVersion, n, err)
	}
}

// auditIsolated checks the Node that is being isolated, and its host. w.mu is
// held.
func (w *World) auditIsolated(n *fake.Node, r remediate.Run, b remediate.Backup) {
	w.ledger.isolated[r.ID] = time.Now()
	h := w.hostOf(n.Name)
	w.note(n.Name, "Node %s is isolated; the host is on: %t", n.UID, h.On)
	w.auditIsolatedMachine(h, n, r)
	if n.UID != r.Target.NodeUID || fmt.Sprint(n.ResourceVersion) != b.ResourceVersion {
		w.violate("I2", n.Name, "isolated was %s at %d, decided on was %s at %s", n.UID, n.ResourceVersion, r.Target.NodeUID, b.ResourceVersion)
	}
	saved, _ := state.Backups(w.ctx, w.store, r.ID)
	if k := len(saved); k > 0 && !bytes.Equal(saved[k-1].Node, n.JSON()) && fmt.Sprint(n.ResourceVersion) == saved[k-1].ResourceVersion {
		w.violate("I21", n.Name, "the backup is not the Node")
	}
	w.ledger.boots[r.ID] = booted{h.Boots, n.BootID, h.On}
	if !h.On || h.Retired {
		return
	}
	lied := h.BMC.Fault == fake.Liar || h.BMC.Fault == fake.Stale
	for _, i := range w.instances {
		if i.cur != nil && len(i.cur.log(h, nil).offs) > 0 && !i.cur.log(h, nil).honest {
			lied = true
		}
	}
	switch {
	case r.IsolatesOnConfirmation():
		w.outcome.Misled++
	case lied:
		w.outcome.Lied++
		w.note(n.Name, "the BMC has lied all along")
	case time.Since(h.OnSince) <= proofMaxAge+requestTimeout:
		w.outcome.Raced++
	default:
		w.violate("I1", n.Name, "the host is on, since %s", time.Since(h.OnSince))
	}
}

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

// otherUUID says whether two UUIDs are known and are of two machines.
func otherUUID(a, b string) bool { return a != "" && b != "" && !bmc.UUIDsMatch(a, b) }

// machineOf is the machine whose kubelet has registered a Node; nil if none has. w.mu is held.
func (w *World) machineOf(n *fake.Node) *fake.Host {
	chassis, _, _ := strings.Cut(n.BootID, "-boot-")
	return w.chassis[chassis]
}

// changed is what a look shows of the objects that a run was decided on, where these are others by
// now; "" where they are not.
func changed(t remediate.Target, o remediate.Observation) string {
	switch {
	case o.Node.Exists == remediate.Yes && otherUUID(t.SystemUUID, o.Node.SystemUUID):
		return "the Node is on machine " + o.Node.SystemUUID
	case o.Machine.Exists == remediate.Yes && t.MachineUID != "" && o.Machine.UID != t.MachineUID:
		return "the Machine is another one, " + o.Machine.UID
	case o.BareMetalHostUID != "" && t.BareMetalHostUID != "" && o.BareMetalHostUID != t.BareMetalHostUID:
		return "the BareMetalHost is another one, " + o.BareMetalHostUID
	case o.ClusterUID != "" && t.ClusterUID != "" && o.ClusterUID != t.ClusterUID:
		return "the cluster is another one, " + o.ClusterUID
	}
	return ""
}

// auditTarget checks that what a run takes away is still that of its record, by what this fenced has
// been shown, and that no Off goes to a host that is another machine than its Node's. w.mu is
// held. // I8, I27
func (w *World) auditTarget(c *incarnation, h *host, r remediate.Run, a remediate.Action) {
	last := w.ledger.looks[lookKey{c, h.Name}]
	// Which cluster answers does not matter to an Off for what is off: it changes nothing.
	repeated := a == remediate.SendOff && !h.On && last.fresh.Observation.ClusterUID != r.Target.ClusterUID
	if !last.changed.IsZero() && time.Since(last.changed) > seenWithin && !repeated {
		w.violate("I27", h.Name, "%s does %s for run %s (%s, attempt %d), and sees since %s that %s", c, a, r.ID, r.Step, r.Attempt,
			time.Since(last.changed), changed(r.Target, last.fresh.Observation))
	}
	if a != remediate.SendOff && a != remediate.SetPowerLock {
		return
	}
	if at := h.spare.refuted; h.On && !at.IsZero() && r.Began().After(at.Add(seenWithin+w.plan.apart())) && !otherUUID(r.Target.SystemUUID, h.UUID) {
		w.violate("I8", h.Name, "%s does %s to a host that a health check found to be another machine's than the Node's, %s before run %s",
			c, a, r.Began().Sub(at), r.ID)
	}
}

// auditIsolatedMachine checks which machine a Node that is being isolated is on. A person's word is
// about the Node, whatever machine that is on. w.mu is held. // I27
func (w *World) auditIsolatedMachine(h *host, n *fake.Node, r remediate.Run) {
	m := w.machineOf(n)
	if otherUUID(r.Target.SystemUUID, n.SystemUUID) {
		w.violate("I27", h.Name, "run %s of machine %s isolates the Node of %s", r.ID, r.Target.SystemUUID, n.SystemUUID)
	}
	if m != nil && m != h.Host && !r.IsolatesOnConfirmation() {
		w.violate("I27", h.Name, "run %s isolates the Node of %s, of which nobody has read Off; it is on: %t", r.ID, m.Chassis, m.On)
	}
}

// auditFalseOff checks that a false Off was one: a device has read Off while its host was on. A host
// that somebody switched on, one that nobody can read, and one whose Node tells another UUID were
// off. w.mu is held. // I5
func (w *World) auditFalseOff(r remediate.Run) {
	// A fenced whose clock is right takes the times of one that was ahead for now. // I16
	since, h := times.Earlier(r.Began(), w.ledger.begun[r.ID]).Add(-w.plan.apart()), w.hostOf(r.Target.Node)
	if at, old := w.ledger.old[r.ID]; old {
		since = at
	}
	for _, d := range append(w.ledger.fixed[r.ID], logKey{h: h}) {
		if d.h != h || w.ledger.lies[h.Name].After(since) { // another host's device says nothing about this one
			return
		}
	}
	w.violate("I5", h.Name, "run %s is Held for FalseOff, and no reading of Off was false: %s", r.ID, r.Note)
}
