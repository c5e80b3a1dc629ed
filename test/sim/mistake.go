package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
)

// mistake is something that is written down wrongly for a while, by an administrator
// or by whoever may write to the API.
type mistake struct {
	kind  string
	until time.Time
	undo  func()
}

// blunder makes mistakes, by its dice, and puts right what has stood long enough.
// w.mu is held.
func (w *World) blunder(now time.Time) {
	w.mistakes = slices.DeleteFunc(w.mistakes, func(m mistake) bool {
		if now.Before(m.until) {
			return false
		}
		m.undo()
		return true
	})
	w.grow()
	often := w.plan.Mistakes / 3600
	if w.busy() { // what is wrong then is told the most
		often *= 4
	}
	if w.pen.Float64() >= often {
		return
	}
	makes := []struct {
		kind string
		make func() func()
	}{{"hosts.d-wrong", w.mistakeWay}, {"uuid-forged", w.forgeUUID}, {"selector-wrong", w.mistakeSelector}, {"metal-repointed", w.repoint}}
	if !w.plan.Metal {
		makes = makes[:3]
	}
	m := makes[w.pen.IntN(len(makes))]
	if slices.ContainsFunc(w.mistakes, func(o mistake) bool { return o.kind == m.kind }) {
		return
	}
	if undo := m.make(); undo != nil {
		until := now.Add(between(w.pen, 30*time.Second, 6*time.Minute))
		w.mistakes = append(w.mistakes, mistake{m.kind, until, undo})
		w.fault(m.kind, "", "until %s", until.Sub(w.began).Round(time.Second))
	}
}

// busy says whether a run is at work.
func (w *World) busy() bool {
	for _, r := range w.ledger.runs {
		if r.Open() && r.Step != remediate.Held {
			return true
		}
	}
	return false
}

// correct puts everything right. w.mu is held.
func (w *World) correct() {
	for _, m := range w.mistakes {
		m.undo()
	}
	w.mistakes = nil
	for _, h := range w.hosts {
		if n := w.api.nodes[h.name]; n != nil && n.Ready != "True" && h.absurd {
			c := *n
			c.Since, h.absurd = time.Now(), false
			w.api.put(&c)
		}
	}
}

// two are the host about which a mistake is made, mostly one that is worked on, and
// another one.
func (w *World) two() (a, b *host) {
	for range 6 {
		a = w.hosts[w.pen.IntN(len(w.hosts))]
		if _, open := w.open(a.name); open {
			break
		}
		if n := w.api.nodes[a.name]; n != nil && n.Ready != "True" {
			break
		}
	}
	for b = a; b == a; {
		b = w.hosts[w.pen.IntN(len(w.hosts))]
	}
	if w.pen.IntN(3) == 0 {
		return b, a
	}
	return a, b
}

// mistakeWay makes a host's entry of hosts.d lead to another host, or exchanges two.
// Every fenced is restarted to read it, soon.
func (w *World) mistakeWay() (undo func()) {
	a, b := w.two()
	if !a.listed {
		return nil
	}
	if what := w.pen.IntN(4); what < 2 || len(a.outlets) == 0 {
		a.leads.bmc = b
	} else if a.leads.outlets = b; what == 3 {
		a.leads.bmc = b
	}
	if b.listed && w.pen.IntN(3) == 0 {
		b.leads = way{a, a}
	}
	w.note("", "hosts.d: %s leads to %s and the outlets of %s", a.name, a.leads.bmc.name, a.leads.outlets.name)
	w.reconfigure()
	return func() {
		a.leads, b.leads = way{a, a}, way{b, b}
		w.note("", "hosts.d is right again")
		w.reconfigure()
	}
}

// reconfigure restarts every fenced, one after the other, so that it reads its files.
func (w *World) reconfigure() {
	for _, i := range w.instances {
		i.restart = time.Now().Add(between(w.pen, time.Second, 40*time.Second))
	}
}

// repoint makes the BareMetalHost of a host lead to another one, or exchanges two.
func (w *World) repoint() (undo func()) {
	a, b := w.two()
	w.api.point(a, b)
	if w.pen.IntN(3) == 0 {
		w.api.point(b, a)
	}
	return func() { w.api.point(a, a); w.api.point(b, b) }
}

// point writes the address of a BareMetalHost.
func (a *apiServer) point(h, to *host) {
	m := a.metal[h.name]
	if m.leads == to {
		return
	}
	m.leads = to
	a.w.note(h.name, "BareMetalHost leads to %s", to.name)
	a.showMetal(m)
}

// at finds the host whose BMC stands at the address of a BareMetalHost.
func (w *World) at(address string) *host {
	for _, h := range w.hosts {
		if address == "ipmi://"+h.address() {
			return h
		}
	}
	return nil
}

// forgeUUID makes a Node tell the UUID of another host, or makes up a Node that does.
func (w *World) forgeUUID() (undo func()) {
	a, b := w.two()
	if w.pen.IntN(2) == 0 {
		a.tells = b.uuid
		w.api.identify(a)
		return func() { a.tells = a.uuid; w.api.identify(a) }
	}
	w.api.uids++
	ghost := &node{Name: "ghost-of-" + b.name, UID: fmt.Sprintf("uid-%d", w.api.uids), BootID: "ghost", SystemUUID: b.uuid,
		Labels: map[string]string{}, Ready: []string{"True", "Unknown"}[w.pen.IntN(2)], Since: time.Now()}
	w.api.put(ghost)
	return func() { w.api.remove(ghost.Name) }
}

// identify writes the UUID that a host tells into its Node.
func (a *apiServer) identify(h *host) {
	if n := a.nodes[h.name]; n != nil && n.SystemUUID != h.tells {
		c := *n
		c.SystemUUID = h.tells
		a.put(&c)
		a.w.note(h.name, "Node %s tells UUID %s", c.UID, c.SystemUUID)
	}
}

// stamp is the time that stands in a Node's condition when its kubelet is given up; now
// and then an absurd one, for clocks are set wrongly. // I17
func (a *apiServer) stamp(h *host) time.Time {
	w, now := a.w, time.Now()
	if h.absurd = !w.calm && w.pen.Float64() < w.plan.Absurd; !h.absurd {
		return now
	}
	at := []time.Time{{}, time.Unix(0, 0), now.Add(-24 * time.Hour), now.Add(between(w.pen, -time.Minute, 10*time.Minute)),
		now.Add(between(w.pen, time.Second, time.Minute)), time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)}[w.pen.IntN(6)]
	w.fault("absurd-time", h.name, "its Node is Unknown since %s", at.UTC().Format(time.RFC3339))
	return at
}

// mistakeSelector makes the check cover nothing: its selector cannot be read, selects
// what is not there, or it is gone.
func (w *World) mistakeSelector() (undo func()) {
	selectors := []map[string]any{
		{"matchExpressions": []any{map[string]any{"key": "pool", "operator": "Near", "values": []any{"x"}}}},
		{"matchLabels": map[string]any{"pool": "of nobody, and no label's value"}},
		{"matchLabels": map[string]any{"pool": "nobody"}},
		nil,
	}
	var changed *policy.Check
	if s := selectors[w.pen.IntN(len(selectors))]; s != nil {
		changed = newCheck(s)
	}
	w.api.showCheck(changed)
	return func() { w.api.showCheck(w.api.check) }
}
