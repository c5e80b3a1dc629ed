package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/escalate"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/request"
)

// askedRecord is a record of what another remediator was asked, as it is stored.
type askedRecord struct {
	escalate.Record
	writer *incarnation
}

// askedPrefix begins the keys of these records: "asked CLUSTER ID ...".
const askedPrefix = "asked "

func askedID(key string) string {
	if fields := strings.Split(key, " "); len(fields) > 2 {
		return fields[2]
	}
	return ""
}

// storedAsked is called when such a record has become durable. // I19
func (w *World) storedAsked(d *storeClient, key string, skew time.Duration) {
	list, err := escalate.Load(w.ctx, correctedStore{w.store, skew})
	w.do(func() {
		if err != nil {
			w.violate("I19", "", "a record of another remediator was stored that cannot be read: %v", err)
		}
		for _, r := range list {
			old, known := w.ledger.asked[r.ID]
			if r.ID != askedID(key) || known && old.Version >= r.Version {
				continue
			}
			w.ledger.asked[r.ID] = askedRecord{Record: r, writer: d.inc}
			if w.plan.Instances > 1 && !w.owners.valid(d.inc, d.epoch) {
				w.violate("I19", hostNode(r.Target), "%s stored record %s without owning the cluster", d.inc, r.ID)
			}
			if len(r.Objects) > len(old.Objects) {
				w.auditReserved(d.inc, r, known)
			}
		}
	})
}

// droppedAsked is called when such a record was deleted. w.mu is held.
func (w *World) droppedAsked(key string) {
	id := askedID(key)
	if r, known := w.ledger.asked[id]; known && len(r.Objects) == 1 { // its object was not made, so it counts for nothing
		w.ledger.cycles[hostNode(r.Target)] = without(w.ledger.cycles[hostNode(r.Target)], id)
	}
	delete(w.ledger.asked, id)
}

func without(list []cycle, id string) (kept []cycle) {
	for _, c := range list {
		if c.run != id {
			kept = append(kept, c)
		}
	}
	return kept
}

// auditReserved checks a target for which another remediator is about to be asked, as the start of
// a run. goesOn: it is the next step of an escalation. w.mu is held.
func (w *World) auditReserved(c *incarnation, r escalate.Record, goesOn bool) {
	node, now, g := hostNode(r.Target), time.Now(), w.plan.guards()
	asRun := remediate.Run{ID: r.ID, Target: r.Target, CheckID: r.Check, ControlPlane: r.ControlPlane, Started: now}
	asRun.Target.Node = node
	w.outcome.Actions["reserved"]++
	inFlight, zone := w.auditBeside(w.hostOf(node), asRun)
	if inFlight >= g.MaxInFlight || zone >= g.MaxInFlightPerZone && c.zoneOf(node) != "" {
		w.violate("I11", "", "another remediator is asked for %s beside %d in flight, %d of them in its zone", node, inFlight, zone)
	}
	w.auditAsked(c, asRun, now)
	if !goesOn {
		before := w.ledger.cycles[node]
		if n := len(before) - w.ledger.forgiven[node]; n >= g.MaxFencesPerDay {
			w.violate("I15", node, "another remediator is asked as number %d of this day", n+1)
		}
		w.ledger.cycles[node] = append(before, cycle{run: r.ID, at: now, asked: true})
	}
	w.auditView(c, node, "record "+r.ID)
}

// auditAsking checks the creation of a request for another remediator when it is sent. w.mu is held.
func (w *World) auditAsking(c *incarnation, node string, o request.Object) {
	now := time.Now()
	r, known := w.recordOf(o.Mark)
	w.auditStopped(c, node, "the request "+o.String())
	switch last := w.ledger.looks[lookKey{c, node}]; {
	case !known || r.Newest().Mark != o.Mark || r.Newest().Kind != o.Kind || !r.Newest().Gone.IsZero():
		w.violate("I19", node, "%s makes %s, of which no record knows", c, o)
	case r.writer != c:
		w.violate("I19", node, "%s makes %s, and %s wrote its record last", c, o, r.writer)
	case w.ledger.told[recordedKey{c, node}].Before(r.Newest().Made):
		w.violate("I24", node, "%s makes %s, which is not in the audit log", c, o)
	case now.Sub(last.began) > confirmedWithin:
		w.violate("I4", node, "%s makes %s on a look that is %s old", c, o, now.Sub(last.began))
	case last.fresh.Observation.Node.Ready == remediate.Yes:
		w.violate("I4", node, "%s makes %s although the Node is Ready", c, o)
	case last.fresh.Observation.Contested != remediate.No:
		w.violate("I22", node, "%s makes %s although %q is at work", c, o, last.fresh.Observation.Contender)
	}
	if l := w.api.NodeLocks[node]; w.plan.Medik8s && r.Target.Node != "" && (l.Holder != w.api.LocksAs || l.Expired()) {
		w.violate("I22", node, "%s makes %s, and %q holds medik8s' Lease on the Node since %s", c, o, l.Holder, now.Sub(l.Renewed))
	}
	if h := w.hostOf(node); h.ControlPlane && !w.ledger.looks[lookKey{c, node}].quorum {
		w.violate("I12", node, "%s makes %s although etcd would lose its quorum", c, o)
	}
	if h := w.hostOf(node); h.own && c.i.n == 0 || h.protected {
		w.violate("I13", node, "%s makes %s for its own host, or a protected one", c, o)
	}
	if w.plan.Escalates && now.Before(w.others.aliveTo) && now.Sub(w.others.aliveAt) > confirmedWithin {
		w.violate("I22", node, "%s makes %s beside the check's own controller, which is alive since %s", c, o, now.Sub(w.others.aliveAt))
	}
}

// confirmedWithin is how old what was read may be when a request is made: ten seconds, one read and one record.
const confirmedWithin = 20 * time.Second

// auditStopped checks a write to a request of another remediator when it is sent. w.mu is held.
func (w *World) auditStopped(c *incarnation, node, what string) {
	now := time.Now()
	if at := w.stopped(c, node, now); !at.IsZero() && now.Sub(at) > time.Second {
		w.violate("I23", node, "%s: %s, %s after the pause or hold", c, what, now.Sub(at))
	}
	if l := w.api.Fenced; l.By != c {
		w.violate("I22", node, "%s: %s, and the Lease fenced is %s's", c, what, l.Held.Instance)
	}
	if w.plan.Instances > 1 && !(w.owners.holder == c && now.Before(w.owners.expires)) {
		w.violate("I19", node, "%s: %s, after its claim has ended", c, what)
	}
}

// auditMade checks a request for another remediator when it is made, however long after it was
// sent: nobody else works on its target. w.mu is held. // I22
func (w *World) auditMade(c *incarnation, node string, q *policy.Request) {
	if r, known := w.recordOf(q.MadeBy); !known || !r.Blocking() || r.Newest().Mark != q.MadeBy || r.Newest().Kind != q.Kind {
		w.violate("I22", node, "%s is made for %s, and no record says that it may exist", q.Kind, c)
	}
	w.auditAlone(node, q.UID, fmt.Sprintf("%s is made for %s", q.UID, c))
}

// auditBegins checks a remediator that begins. w.mu is held. // I22
func (w *World) auditBegins(m *remediator) {
	if m.ours {
		w.auditAlone(m.node, m.uid, "the remediator of "+m.uid+" begins")
	}
}

// auditAlone checks that nobody else works on a target: no run, no other request that fenced made,
// and no remediator of one. w.mu is held. // I22
func (w *World) auditAlone(node, uid, what string) {
	if r, open := w.open(node); open && r.ID != uid {
		w.violate("I22", node, "%s beside run %s, which is in step %s", what, r.ID, r.Step)
	}
	for _, q := range w.api.Others {
		if of, ours := w.others.made[q.UID]; ours && of.node == node && q.UID != uid {
			w.violate("I22", node, "%s beside %s, which exists", what, q.UID)
		}
	}
	for _, m := range w.others.remediators {
		if m.ours && m.working && m.node == node && m.uid != uid && !m.taken {
			w.violate("I22", node, "%s beside the remediator of %s, which works", what, m.uid)
		}
	}
}

// auditTouched checks a change of a request. w.mu is held. // I2, I22
func (w *World) auditTouched(c *incarnation, q *policy.Request, what string) {
	w.outcome.Actions[what+" a request"]++
	of, ours := w.others.made[q.UID]
	if !ours {
		of, ours = w.others.copies[q.UID]
	}
	switch r, known := w.recordOf(of.mark); {
	case !ours || q.MadeBy != of.mark:
		w.violate("I22", w.nodeOf(q), "%s: %s %s, which fenced did not make, or which has lost its mark", c, what, q.UID)
	case !known || r.Newest().UID != q.UID:
		w.violate("I22", w.nodeOf(q), "%s: %s %s, of which no record knows", c, what, q.UID)
	}
}

// auditDeleted checks that a request is deleted only when its remediator does nothing, or when its
// Node is well. w.mu is held. // I22
func (w *World) auditDeleted(c *incarnation, q *policy.Request) {
	const seen = 10 * time.Second
	m, n, h := w.others.remediators[q.UID], w.api.Nodes[w.nodeOf(q)], w.hostOf(w.nodeOf(q))
	if m == nil || !m.working || n != nil && (n.Ready == "True" || h.absurd || time.Since(n.Since) < seen) {
		return
	}
	if told := lastOf(c.knows.nodes[h.Name]); n == nil && len(told) > 0 && (told[0].ready == "True" || told[0].gone && time.Since(told[0].at) < seen) {
		return // it was well, and has just been deleted
	}
	w.violate("I22", h.Name, "%s deletes %s, and its remediator works", c, q.UID)
}

// recordOf finds the record with the mark of an object. w.mu is held.
func (w *World) recordOf(mark string) (askedRecord, bool) {
	id := mark[strings.LastIndex(mark, "/")+1:]
	r, known := w.ledger.asked[id]
	return r, known && id != ""
}

// auditOthers checks, each second, that a record stands for each request that fenced made. w.mu is
// held. // I22
func (w *World) auditOthers() {
	for _, q := range w.requests() {
		of, ours := w.others.made[q.UID]
		if !ours {
			continue
		}
		if r, known := w.recordOf(of.mark); !known || !r.Blocking() || r.Newest().Mark != of.mark {
			w.violate("I22", of.node, "%s exists, which fenced made, and no record says so", q.UID)
		}
	}
}

// asked says whether a request that fenced made exists for a Node. w.mu is held.
func (w *World) asked(node string) bool {
	return slices.ContainsFunc(w.requests(), func(q *policy.Request) bool { return w.others.made[q.UID].node == node })
}

// finishOthers requires that fenced has deleted what it made for targets that are well, and that no
// record waits for what does not exist. w.mu is held. // L1
func (w *World) finishOthers() {
	for _, q := range w.requests() {
		of, n := w.others.made[q.UID], w.api.Nodes[w.nodeOf(q)]
		if of.mark != "" && q.MadeBy == of.mark && !q.Deleting && n != nil && n.Ready == "True" && time.Since(n.Since) > 5*time.Minute {
			w.violate("L1", of.node, "%s is not deleted although its Node is well since %s", q.UID, time.Since(n.Since))
		}
	}
	for _, q := range w.requests() {
		r, known := w.recordOf(q.MadeBy)
		l := w.api.NodeLocks[r.Target.Node]
		if w.plan.Medik8s && known && r.Blocking() && r.Target.Node != "" && r.Newest().UID == q.UID && time.Since(r.Newest().Made) > 10*time.Minute && (l.Holder != w.api.LocksAs || l.Expired()) {
			w.violate("L1", r.Target.Node, "%s exists, and %q holds medik8s' Lease on the Node since %s", q.UID, l.Holder, time.Since(l.Renewed))
		}
	}
	for _, r := range w.ledger.asked {
		if o := r.Newest(); r.Blocking() && w.api.Others[otherID(o)] == nil && time.Since(o.Made) > 5*time.Minute && !w.lately(o.UID) {
			w.violate("L1", hostNode(r.Target), "record %s blocks for %s, which does not exist", r.ID, o)
		}
	}
}

// lately says whether a request was gone only a moment ago. w.mu is held.
func (w *World) lately(uid string) bool {
	m := w.others.remediators[uid]
	return m != nil && time.Since(m.goneAt) < 2*time.Minute
}
