package sim

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/request"
	"github.com/fenced/fenced/test/fake"
)

// others are the requests for other remediators, and those remediators. Guarded by the world's mutex.
type others struct {
	rng         *rand.Rand
	uids        int
	remediators map[string]*remediator // by the UID of the request
	made        map[string]made        // by UID: the requests that fenced made
	copies      map[string]made        // and the copies of those whose UID no record knew when they were replaced
	// aliveTo is until when the check's own controller is alive, aliveAt since when.
	aliveTo, aliveAt time.Time
	missingTo        time.Time // and until when the templates are missing
}

// made is one request that fenced made.
type made struct {
	by         *incarnation
	node, mark string
	at         time.Time
}

func newOthers(seed uint64) others {
	return others{rng: rand.New(rand.NewPCG(seed, 6)), remediators: map[string]*remediator{}, made: map[string]made{}, copies: map[string]made{}}
}

// kinds of remediators.
const (
	works   = "works"   // reboots the host and says so
	fails   = "fails"   // says that it failed, and did nothing
	silent  = "silent"  // keeps the request and reboots the host, but never says anything
	never   = "never"   // is not installed
	deletes = "deletes" // deletes the Node, too
)

// remediator is what carries out one request.
type remediator struct {
	kind  string
	uid   string
	node  string
	ours  bool // fenced has asked for it; others do nothing to the host
	keeps bool // with a finalizer
	taken bool // somebody other than fenced has deleted its request
	late  bool // it may begin after the request has gone, unless it has been gone for long

	begins, ends time.Time
	stops        time.Duration // how long it needs to stop when it is told to
	begun        bool
	working      bool
	cycled       bool
	stopAt       time.Time
	toldAt       time.Time // when it was told to stop
	goneAt       time.Time // when the request was gone
	rests        time.Time // since when it does nothing any more
}

// newRemediator draws one. w.mu is held.
func (w *World) newRemediator(uid, node string) *remediator {
	r, now := w.others.rng, time.Now()
	m := &remediator{uid: uid, node: node, kind: []string{works, works, works, fails, silent, never, deletes}[r.IntN(7)],
		keeps: r.IntN(3) > 0, late: r.IntN(3) == 0, stops: between(r, time.Second, 40*time.Second), begins: now.Add(between(r, time.Second, 20*time.Second))}
	if r.IntN(4) == 0 { // it is slow
		m.begins, m.stops = now.Add(between(r, 20*time.Second, 3*time.Minute)), between(r, time.Second, 4*time.Minute)
	}
	m.ends = m.begins.Add(between(r, 10*time.Second, 6*time.Minute))
	return m
}

// nodeOf is the Node that a request is for. w.mu is held.
func (w *World) nodeOf(q *policy.Request) string {
	if q.NodeName != "" {
		return q.NodeName
	}
	return strings.TrimPrefix(q.Name, "m-")
}

func (w *World) request(uid string) *policy.Request {
	for _, q := range w.api.Others {
		if q.UID == uid {
			return q
		}
	}
	return nil
}

// tickOthers simulates one second of the remediators, and of all who meddle with their requests.
// w.mu is held.
func (w *World) tickOthers(now time.Time) {
	if !w.plan.Others {
		return
	}
	for _, uid := range slices.Sorted(maps.Keys(w.others.remediators)) {
		m := w.others.remediators[uid]
		_, m.ours = w.others.made[uid]
		w.tickRemediator(m, w.request(uid), now)
	}
	w.collectGarbage()
	w.meddle(now)
	w.auditOthers()
}

// tickRemediator simulates one second. q is its request, nil if that is gone. w.mu is held.
func (w *World) tickRemediator(m *remediator, q *policy.Request, now time.Time) {
	if q == nil && m.goneAt.IsZero() {
		m.goneAt = now
	}
	if told := q == nil || q.Deleting || !q.TimedOut.IsZero(); told && m.toldAt.IsZero() {
		m.toldAt = now
		if m.stopAt = now.Add(m.stops); q == nil {
			m.stopAt = now.Add(min(m.stops, 5*time.Second)) // it sees that at once
		}
		if m.late && !m.begun && m.kind != never { // it begins just then
			m.begins = now.Add(between(w.others.rng, 0, forgotten))
			if q != nil {
				m.begins = now.Add(between(w.others.rng, 0, noticed))
			}
		}
	}
	switch {
	case !m.begun && m.mayBegin(q, now, w.calm):
		w.begin(m, q, now)
	case m.working && !m.cycled && m.ours && m.kind != fails && now.After(m.begins.Add(5*time.Second)):
		w.cycle(m)
	case m.working && (now.After(m.ends) || !m.stopAt.IsZero() && now.After(m.stopAt)):
		w.rest(m, q, now)
	case q != nil && m.begun && !m.working && m.kind == silent && w.calm && len(q.Conditions) == 0:
		w.say(q, condition("Processing", "False"))
	case q != nil && q.Deleting && !m.working && (m.kind != silent || w.calm):
		w.note(m.node, "%s is let go", q.UID)
		w.api.DropOther(q)
	case q != nil && w.calm && m.kind == fails && !m.rests.IsZero() && now.Sub(m.rests) > 5*time.Minute:
		m.rests = now
		w.repair(m.node)
	case q == nil && !m.working && now.Sub(m.goneAt) > 2*time.Minute:
		delete(w.others.remediators, m.uid)
	}
}

// How long after a request was given up, or has gone, a remediator whose watch is late may not
// know that.
const noticed, forgotten = 7 * time.Second, 40 * time.Second

// mayBegin says whether the remediator begins now.
func (m *remediator) mayBegin(q *policy.Request, now time.Time, calm bool) bool {
	switch {
	case now.Before(m.begins), m.kind == never && !calm:
		return false
	case q == nil:
		return m.late && now.Sub(m.goneAt) < forgotten
	case !m.toldAt.IsZero():
		return m.late && now.Sub(m.toldAt) < noticed
	}
	return true
}

func condition(kind, status string) []policy.Condition {
	return []policy.Condition{{Type: kind, Status: status}}
}

// begin lets a remediator begin. w.mu is held.
func (w *World) begin(m *remediator, q *policy.Request, now time.Time) {
	m.begun, m.working, m.begins = true, true, now
	if m.ends.Before(now) {
		m.ends = now.Add(30 * time.Second)
	}
	w.note(m.node, "the remediator of %s, which %s, begins", m.uid, m.kind)
	w.outcome.Actions["remediator "+m.kind]++
	w.auditBegins(m)
	if q == nil {
		m.stopAt = now.Add(min(m.stops, 5*time.Second))
		w.fault("remediator-late", m.node, "%s is gone", m.uid)
		return
	}
	list := condition("Processing", "True")
	if m.kind == deletes {
		list = append(list, condition("PermanentNodeDeletionExpected", "True")...)
	}
	if m.kind == silent {
		list, m.keeps = nil, true
	}
	w.say(q, list)
}

// say writes conditions on a request. w.mu is held.
func (w *World) say(q *policy.Request, list []policy.Condition) {
	c := *q
	c.Begun, c.Conditions = true, list
	w.api.PutOther(&c)
}

// cycle is what a remediator does to the host first. w.mu is held.
func (w *World) cycle(m *remediator) {
	h := w.hostOf(m.node)
	if m.cycled = true; h.Gone {
		return
	}
	h.Power(false, "foreign hand")
	if m.kind == deletes && w.api.Nodes[m.node] != nil {
		w.note(m.node, "the remediator of %s deletes the Node", m.uid)
		w.api.RemoveNode(m.node)
		h.Owned = fake.Owned{} // nobody has saved it
	}
}

// repair is what people do, in the calm, about a host whose remediator has failed. w.mu is held.
func (w *World) repair(node string) {
	h, n := w.hostOf(node), w.api.Nodes[node]
	if h.Gone || !h.On || n != nil && n.Ready == "True" {
		return
	}
	w.note(node, "people reboot it")
	h.Boot()
}

// rest ends the work of a remediator. w.mu is held.
func (w *World) rest(m *remediator, q *policy.Request, now time.Time) {
	m.working, m.rests = false, now
	h, complete := w.hostOf(m.node), !now.Before(m.ends)
	if m.cycled && !h.Gone {
		h.Power(true, "foreign hand")
	}
	w.note(m.node, "the remediator of %s rests, complete: %t", m.uid, complete)
	if q == nil || m.kind == silent && !w.calm {
		return
	}
	success := "False"
	if complete && m.kind != fails {
		success = "True"
	}
	list := condition("Processing", "False")
	if complete || w.others.rng.IntN(2) == 0 {
		list = append(list, condition("Succeeded", success)...)
	}
	w.say(q, list)
}

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
	object := request.Object{APIVersion: t.APIVersion, Kind: strings.TrimSuffix(t.Kind, "Template"), Namespace: fake.Namespace, Name: "m-" + h.Name}
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
		n := w.newOther(request.Object{APIVersion: c.APIVersion, Kind: c.Kind, Namespace: c.Namespace, Name: c.Name, Template: c.TemplateName}, w.nodeOf(q))
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
