package sim

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/escalate"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/test/fake"
)

// requests lists the requests for other remediators, by UID. w.mu is held.
func (w *World) requests() []*policy.Request {
	return slices.SortedFunc(maps.Values(w.api.Others), func(a, b *policy.Request) int { return strings.Compare(a.UID, b.UID) })
}

// collectGarbage deletes the requests whose owner is gone, as the API server's garbage collector
// does. w.mu is held.
func (w *World) collectGarbage() {
	for _, q := range w.requests() {
		for _, o := range q.Owners {
			m := w.api.Machines[w.nodeOf(q)]
			if gone := o.Kind == "Machine" && (m == nil || m.UID != o.UID) || o.Kind != "Machine" && w.checkGone; gone && !q.Deleting {
				w.takeAway(q, "the garbage collector")
			}
		}
	}
}

// meddle lets people and controllers do what they like with the requests, in the storm. In the calm
// they take back what waits for them. w.mu is held.
func (w *World) meddle(now time.Time) {
	o := &w.others
	if now.After(o.missingTo) {
		w.api.TemplateMissing = ""
	}
	if w.calm {
		w.api.TemplateMissing, o.aliveTo = "", time.Time{}
		w.takeBack(now)
		return
	}
	if o.rng.Float64() >= w.plan.Meddles/3600 {
		return
	}
	h := w.hosts[o.rng.IntN(len(w.hosts))]
	list := slices.DeleteFunc(w.requests(), func(q *policy.Request) bool { return q.Deleting })
	for range 4 { // mostly there is something
		if w.needsHelp(h, now) {
			break
		}
		h = w.hosts[o.rng.IntN(len(w.hosts))]
	}
	what := o.rng.IntN(7)
	switch {
	case what == 0:
		o.missingTo = now.Add(between(o.rng, 10*time.Second, 4*time.Minute))
		w.api.TemplateMissing = "it was deleted"
		w.fault("template-missing", "", "until %s", o.missingTo.Sub(w.began).Round(time.Second))
	case what == 1 && w.plan.Escalates:
		if now.After(o.aliveTo) {
			o.aliveAt = now
		}
		o.aliveTo = now.Add(between(o.rng, 20*time.Second, 4*time.Minute))
		w.fault("controller-alive", "", "until %s", o.aliveTo.Sub(w.began).Round(time.Second))
	case what < 4:
		w.strangerAsks(h)
	case len(list) > 0:
		w.meddleWith(list[o.rng.IntN(len(list))], what)
	}
}

// strangerAsks lets somebody else ask for a host. w.mu is held.
func (w *World) strangerAsks(h *host) {
	t := w.check.Templates()[w.others.rng.IntN(len(w.check.Templates()))]
	object := escalate.Object{APIVersion: t.APIVersion, Kind: strings.TrimSuffix(t.Kind, "Template"), Namespace: fake.Namespace, Name: "m-" + h.Name}
	if t.IsOwn() {
		return
	}
	if w.plan.Escalates {
		object.Name = h.Name
	}
	if w.api.Others[otherID(object)] != nil || h.Gone {
		return
	}
	q := w.newOther(object, h.Name)
	if w.plan.Escalates {
		q.NodeName = h.Name
	}
	w.fault("stranger-asks", h.Name, "%s", q.UID)
	w.api.PutOther(q)
}

// meddleWith changes one request. w.mu is held.
func (w *World) meddleWith(q *policy.Request, what int) {
	c := *q
	switch what {
	case 4:
		w.fault("request-deleted", w.nodeOf(q), "%s", q.UID)
		w.takeAway(q, "a person")
	case 5:
		w.fault("mark-removed", w.nodeOf(q), "%s", q.UID)
		c.MadeBy = ""
		w.api.PutOther(&c)
	default: // deleted with its finalizer, and created again from a backup
		if m := w.others.remediators[q.UID]; m != nil {
			m.taken = true
		}
		w.api.DropOther(q)
		n := w.newOther(escalate.Object{APIVersion: c.APIVersion, Kind: c.Kind, Namespace: c.Namespace, Name: c.Name, Template: c.TemplateName}, w.nodeOf(q))
		n.NodeName, n.Owners, n.Check, n.MadeBy = c.NodeName, c.Owners, c.Check, c.MadeBy
		if r, known := w.recordOf(c.MadeBy); known && r.Newest().UID == "" {
			w.others.copies[n.UID] = w.others.made[q.UID] // nothing but its mark tells fenced which one it made
		}
		w.fault("request-restored", w.nodeOf(q), "%s instead of %s", n.UID, q.UID)
		w.api.PutOther(n)
	}
}

// takeBack deletes, in the calm, the requests that fenced leaves alone: it did not make them, or they
// have lost its mark. w.mu is held.
func (w *World) takeBack(now time.Time) {
	for _, q := range w.requests() {
		m, of := w.others.remediators[q.UID], w.others.made[q.UID]
		if of.mark != "" && of.mark == q.MadeBy || q.Deleting || m == nil || m.working || now.Sub(q.Created) < 3*time.Minute {
			continue
		}
		if m.begun || m.kind == never {
			w.takeAway(q, "its owner")
		}
	}
}
