package policy

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/reason"
)

// HandedOver is one target for which a check makes fenced ask another remediator,
// with the requests that fenced made for it.
type HandedOver struct {
	Check  *Check
	Target TargetReport
	// Requests are those that carry the mark of the check, the oldest first.
	Requests []*Request
	// State is that of the check. Only the targets of an Active one are evaluated.
	State State
	// Recovered: the check finds nothing wrong with the target any more, and no run is
	// open on it.
	Recovered bool
	// NodeGone: the requests name a Node that does not exist. NodeReady: the Node of the
	// target is Ready.
	NodeGone, NodeReady bool
	// Confirmed: a person has confirmed on the Node that it is well.
	Confirmed bool
}

// HandedOver lists the targets for which a check wants a request made by fenced, and
// those with such requests, by check and name.
func (l *Ledger) HandedOver(now time.Time) []HandedOver {
	now = l.evaluateDue(now)
	marks := map[string]*checkEntry{}
	for _, e := range l.checks {
		if e.check.MakesRequests() {
			marks[e.check.Mark()] = e
		}
	}
	if len(marks) == 0 {
		return nil
	}
	found := map[[2]string]*HandedOver{}
	for _, r := range l.Acting(now) {
		for i := range r.Targets {
			if e := l.entry(r.ID()); e != nil && e.check.HandsOver(&r.Targets[i]) {
				t := r.Targets[i]
				found[[2]string{e.check.Mark(), t.Subject()}] = &HandedOver{Check: e.check, Target: t, State: StateActive}
			}
		}
	}
	for _, q := range l.requests {
		if e := marks[q.Check]; e != nil {
			l.addHandedOver(found, e, q, now)
		}
	}
	return sortHandedOver(found)
}

// addHandedOver adds a request to its target.
func (l *Ledger) addHandedOver(found map[[2]string]*HandedOver, e *checkEntry, q *Request, now time.Time) {
	x, _ := requestTables{l.w, l.checks}.requestSubject(q)
	name := [2]string{e.check.Mark(), subjectName(x.nodeName(), x.machineKey())}
	if x.Machine == nil && x.Node == nil {
		name[1] = cmp.Or(q.NodeName, q.Name)
	}
	h := found[name]
	if h == nil {
		h = &HandedOver{Check: e.check, Target: newTarget(e.check, &x), State: e.st.state}
		if x.Machine == nil && x.Node == nil {
			h.Target.Node, h.NodeGone = name[1], l.w.gone(name[1])
		} else if h.State == StateActive {
			h.Target = evaluate(e.check, e.context, &e.st, &x, now)
			h.Recovered = x.Run == "" && e.check.hasRecovered(&h.Target)
		}
		found[name] = h
	}
	if x.Node != nil {
		_, h.Confirmed = x.Node.Annotations[confirmAnnotation]
		h.NodeReady = x.Node.Ready()
	}
	h.Requests = append(h.Requests, q)
}

// hasRecovered reports whether only the requests of the check keep a target from being
// healthy. The Cluster API and OpenShift do not count them.
func (c *Check) hasRecovered(t *TargetReport) bool {
	counts := c.family() == medik8s || c.family() == fenced
	return t.Verdict == Healthy || counts && t.Verdict == Indeterminate && t.Reason == reason.UnderRemediation
}

// SetDisabled tells the ledger why nobody carries out the requests of checks, by their
// mark. Such a check is Disabled.
func (l *Ledger) SetDisabled(now time.Time, why map[string]string) {
	if maps.Equal(l.w.disabled, why) {
		return
	}
	l.w.disabled, l.stale = maps.Clone(why), true
	l.version++
	l.evaluateDue(now)
}

func sortHandedOver(found map[[2]string]*HandedOver) []HandedOver {
	list := make([]HandedOver, 0, len(found))
	for _, h := range found {
		slices.SortFunc(h.Requests, func(a, b *Request) int { return cmp.Or(a.Created.Compare(b.Created), byRequest(a, b)) })
		list = append(list, *h)
	}
	slices.SortFunc(list, func(a, b HandedOver) int {
		return cmp.Or(strings.Compare(a.Check.Mark(), b.Check.Mark()), strings.Compare(a.Target.Subject(), b.Target.Subject()))
	})
	return list
}
