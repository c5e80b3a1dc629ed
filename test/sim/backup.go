package sim

import (
	"maps"
	"slices"
	"time"

	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/test/fake"
)

// backup is a copy of the store, and what the audits knew of it.
type backup struct {
	at      time.Time
	records map[string]state.Record
	ledger  ledger
	stored  stop
}

// Backups are made so often, and so many are kept.
const (
	backupEvery = 20 * time.Second
	backupsKept = 60
)

// backUp makes a backup when one is due. w.mu is held.
func (w *World) backUp(now time.Time) {
	if w.plan.Restores == 0 || w.calm || len(w.backups) > 0 && now.Sub(w.backups[len(w.backups)-1].at) < backupEvery {
		return
	}
	w.backups = append(w.backups, backup{now, w.store.copy(), w.ledger.durable(), w.crowd.stored})
	if n := len(w.backups); n > backupsKept { // the first one stays: a store without any run
		w.backups = slices.Delete(w.backups, 1, n-backupsKept)
	}
}

// mayRestore lets people stop every fenced and put a backup back, at random. w.mu is held.
func (w *World) mayRestore(now time.Time) {
	if len(w.backups) == 0 || w.luck.Float64() >= w.plan.Restores/3600 {
		return
	}
	b := w.backups[w.luck.IntN(len(w.backups))]
	for _, i := range w.instances {
		if i.cur != nil && !i.cur.dead {
			i.cur.kill()
		}
		i.again = now.Add(between(w.luck, 20*time.Second, time.Minute))
	}
	w.backups = nil
	w.fault("backup-restored", "", "of %s", b.at.Sub(w.began).Round(time.Second))
	w.after(10*time.Second, func() { w.do(func() { w.restore(b) }) })
}

// restore puts a backup back while no fenced runs. A run that had ended by then is open again; one
// that began since is unknown, and people bring its host back. w.mu is held.
func (w *World) restore(b backup) {
	now, before := time.Now(), w.ledger.runs
	w.store.replace(b.records)
	w.crowd.stored = b.stored
	old := w.ledger.durable()
	w.ledger.rollBack(b.ledger)
	for id, known := range w.ledger.runs { // also one that an older backup had lost meanwhile: its request was answered without it
		if r, is := before[id]; known.Open() && (!is || !r.Open()) {
			w.ledger.old[id] = now
		}
	}
	for id, r := range before {
		if at := old.isolated[id]; at.After(b.at) && r.Open() { // what was saved of its Node is lost
			w.hostOf(r.Target.Node).Owned = fake.Owned{}
		}
	}
	for _, h := range w.hosts { // so is what a health check had found
		if h.spare.refuted.After(b.at) {
			h.spare.refuted = time.Time{}
		}
	}
	w.ledger.lost = now
	w.owners.holder, w.owners.freed = nil, now
	w.note("", "the store is that of %s", b.at.Sub(w.began).Round(time.Second))
	w.after(between(w.luck, 2*time.Minute, 8*time.Minute), func() { w.do(w.bringLostBack) })
}

// bringLostBack is what docs/state.md tells people to look for after the loss of runs, and what they
// do where they have made a Machine anew, or where fenced says that it does not know a run: hosts that
// are off, power locks, and the taint, without a run. w.mu is held.
func (w *World) bringLostBack() {
	for _, h := range w.hosts {
		if _, open := w.open(h.Name); open || h.Gone || w.ledger.lost.IsZero() && !h.unknown && !w.heldByNobody(h) {
			continue
		}
		if m := w.api.Metal[h.Name]; m != nil && fake.Held(m) {
			w.api.ChangeMetal(h.Name, func(m *policy.Host) { m.Annotations = nil })
		}
		if n := w.api.Nodes[h.Name]; n != nil && n.OutOfService() {
			w.api.ChangeNode(h.Name, func(n *fake.Node) { n.Taints = slices.Clone(h.Owned.Taints) })
		}
		if h.offByFenced() {
			w.note(h.Name, "people find it off, without a run")
			for _, o := range h.Outlets { // a run that is lost may have switched them off, too
				o.On = true
			}
			h.Power(true, "foreign hand")
		}
		if q := w.api.Asked["m-"+h.Name]; q != nil && q.Deleting { // as fenced says of such a request
			w.api.ReleaseRequest(remediate.Request{Name: q.Name, UID: q.UID}, q.Power.HeldBy)
		}
	}
}

// forgotten says whether the run that switched a host off may have been lost with the store: no fenced knows it.
// w.mu is held.
func (w *World) forgotten(h *host) bool {
	_, open := w.open(h.Name)
	return !open && h.OnSince.Before(w.ledger.lost)
}

// heldByNobody says whether the finalizer of a host's request is that of a run which was never stored,
// because fenced was killed just before, or which has touched nothing as far as the store shows, so that
// fenced takes the store for an older one; and fenced has said so. w.mu is held.
func (w *World) heldByNobody(h *host) bool {
	q := w.api.Asked["m-"+h.Name]
	if q == nil || !q.Power.HasFinalizer || !w.asks.lost[q.UID] {
		return false
	}
	return !w.ledger.runs[q.Power.HeldFor].TouchedHost()
}

// durable is the part of a ledger about what is in the store.
func (l *ledger) durable() ledger {
	return ledger{runs: maps.Clone(l.runs), writer: maps.Clone(l.writer), begun: maps.Clone(l.begun), isolated: maps.Clone(l.isolated),
		frozen: maps.Clone(l.frozen), cycles: maps.Clone(l.cycles), forgiven: maps.Clone(l.forgiven), boots: maps.Clone(l.boots),
		on: maps.Clone(l.on), held: maps.Clone(l.held), backups: maps.Clone(l.backups), fixed: maps.Clone(l.fixed),
		answered: maps.Clone(l.answered), readBack: maps.Clone(l.readBack), old: maps.Clone(l.old), starts: slices.Clone(l.starts)}
}

// rollBack makes that part what it was.
func (l *ledger) rollBack(to ledger) {
	l.runs, l.writer, l.begun, l.isolated, l.frozen, l.cycles = to.runs, to.writer, to.begun, to.isolated, to.frozen, to.cycles
	l.forgiven, l.boots, l.on, l.held, l.backups, l.fixed = to.forgiven, to.boots, to.on, to.held, to.backups, to.fixed
	l.answered, l.old, l.starts, l.readBack = to.answered, to.old, to.starts, to.readBack
}

// auditOld checks what is done for a run that had ended when an old backup made it open again: while
// its host is as healthy as it was then, its power stays as it is. w.mu is held. // I4
func (w *World) auditOld(c *incarnation, h *host, r remediate.Run, what string) {
	at, old := w.ledger.old[r.ID]
	if n := w.api.Nodes[h.Name]; old && h.On && h.OnSince.Before(at) && n != nil && n.Ready == "True" && n.Since.Before(at) {
		w.violate("I4", h.Name, "%s does %s for run %s of an old backup (%s), and its host has been healthy all along", c, what, r.ID, r.Step)
	}
}

// finishOld requires that such a run has ended, if its host was healthy all along. w.mu is held. // L1
func (w *World) finishOld(r remediate.Run) {
	at, old := w.ledger.old[r.ID]
	h, n := w.hostOf(r.Target.Node), w.api.Nodes[r.Target.Node]
	if old && r.Open() && h.On && h.OnSince.Before(at) && n != nil && n.Ready == "True" && n.Since.Before(at) {
		w.violate("L1", h.Name, "run %s of an old backup is open since %s (%s: %s), and its host has been healthy all along", r.ID, time.Since(at), r.Step, r.Reason)
	}
}
