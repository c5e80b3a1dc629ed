package sim

import (
	"slices"
	"time"

	"github.com/fenced/fenced/test/fake"
)

// mistake is a wrong configuration for a while, made by an administrator or by
// whoever may write to the API.
type mistake struct {
	kind  string
	until time.Time
	undo  func()
}

// makeMistakes makes mistakes, at random, and corrects those that have lasted
// long enough. w.mu is held.
func (w *World) makeMistakes(now time.Time) {
	w.mistakes = slices.DeleteFunc(w.mistakes, func(m mistake) bool {
		if now.Before(m.until) {
			return false
		}
		m.undo()
		return true
	})
	w.mayAddPolicy()
	often := w.plan.Mistakes / 3600
	if w.busy() { // a mistake has most effect then
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

// busy reports whether a run is in progress.
func (w *World) busy() bool {
	for _, r := range w.ledger.runs {
		if r.Open() && !r.Step.Idle() {
			return true
		}
	}
	return false
}

// correct corrects every mistake. w.mu is held.
func (w *World) correct() {
	for _, m := range w.mistakes {
		m.undo()
	}
	w.mistakes = nil
	for _, h := range w.hosts {
		if n := w.api.Nodes[h.Name]; n != nil && n.Ready != "True" && h.absurd {
			h.absurd = false
			w.api.ChangeNode(h.Name, func(n *fake.Node) { n.Since = time.Now() })
		}
	}
}

// pickHosts returns the host for a mistake, mostly one with a run, and another
// host.
func (w *World) pickHosts() (a, b *host) {
	for range 6 {
		a = w.hosts[w.pen.IntN(len(w.hosts))]
		if _, open := w.open(a.Name); open {
			break
		}
		if n := w.api.Nodes[a.Name]; n != nil && n.Ready != "True" {
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

// mistakeWay makes a host's entry of hosts.d lead to another host, or exchanges
// two entries. Every fenced is restarted soon, to read it.
func (w *World) mistakeWay() (undo func()) {
	a, b := w.pickHosts()
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
	w.note("", "hosts.d: %s leads to %s and the outlets of %s", a.Name, a.leads.bmc.Name, a.leads.outlets.Name)
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

// repoint makes the BareMetalHost of a host lead to another host, or exchanges
// two.
func (w *World) repoint() (undo func()) {
	a, b := w.pickHosts()
	w.point(a, b)
	if w.pen.IntN(3) == 0 {
		w.point(b, a)
	}
	return func() { w.point(a, a); w.point(b, b) }
}

// at finds the host whose BMC has the address of a BareMetalHost.
func (w *World) at(address string) *host {
	for _, h := range w.hosts {
		if address == "ipmi://"+h.address() {
			return h
		}
	}
	return nil
}

// forgeUUID gives a Node the UUID of another host, or creates a Node that has it.
func (w *World) forgeUUID() (undo func()) {
	a, b := w.pickHosts()
	if w.pen.IntN(2) == 0 {
		a.tell(b.UUID)
		return func() { a.tell(a.UUID) }
	}
	ghost := "ghost-of-" + b.Name
	w.api.PutNode(fake.Node{Name: ghost, BootID: "ghost", SystemUUID: b.UUID, Ready: []string{"True", "Unknown"}[w.pen.IntN(2)], Since: time.Now()})
	return func() { w.api.RemoveNode(ghost) }
}

// stamp is the transition time of a Node that becomes Unknown; sometimes an
// absurd one, as from a wrong clock. // I17
func (w *World) stamp(of *fake.Host) time.Time {
	h, now := w.hostOf(of.Name), time.Now()
	if h.absurd = !w.calm && w.pen.Float64() < w.plan.Absurd; !h.absurd {
		return now
	}
	at := []time.Time{{}, time.Unix(0, 0), now.Add(-24 * time.Hour), now.Add(between(w.pen, -time.Minute, 10*time.Minute)),
		now.Add(between(w.pen, time.Second, time.Minute)), time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)}[w.pen.IntN(6)]
	w.fault("absurd-time", h.Name, "its Node is Unknown since %s", at.UTC().Format(time.RFC3339))
	return at
}

// mistakeSelector makes the check cover nothing: its selector cannot be read,
// selects nothing, or the check is deleted.
func (w *World) mistakeSelector() (undo func()) {
	selectors := []map[string]any{
		{"matchExpressions": []any{map[string]any{"key": "pool", "operator": "Near", "values": []any{"x"}}}},
		{"matchLabels": map[string]any{"pool": "of nobody, and no label's value"}},
		{"matchLabels": map[string]any{"pool": "nobody"}},
		nil,
	}
	if s := selectors[w.pen.IntN(len(selectors))]; s != nil {
		w.api.ShowCheck(w.plan.newCheck(s))
	} else {
		w.checkGone = true
		w.api.DropCheck(w.check)
	}
	return func() { w.checkGone = false; w.api.ShowCheck(w.check) }
}

// mayLeadToACopy lets the kubeconfig lead to another cluster with equal names for some minutes, at
// random, mostly while a run is open: to one that was restored from a backup of this one. All its
// objects have the same UIDs, apart from the Namespace kube-system. w.mu is held. // I27
func (w *World) mayLeadToACopy(now time.Time) {
	often := w.plan.Copies / 3600
	if w.busy() {
		often *= 10
	}
	switch {
	case w.plan.Copies == 0:
	case !w.copyTo.IsZero():
		if now.After(w.copyTo) {
			w.leadHome()
		}
	case w.luck.Float64() < often:
		w.copyTo, w.api.UID = now.Add(between(w.luck, 30*time.Second, 6*time.Minute)), w.home+"-copy"
		w.fault("kubeconfig-of-a-copy", "", "until %s", w.copyTo.Sub(w.began).Round(time.Second))
	}
}

// leadHome ends that. w.mu is held.
func (w *World) leadHome() {
	if !w.copyTo.IsZero() {
		w.note("", "the kubeconfig leads to the cluster again")
	}
	w.copyTo, w.api.UID = time.Time{}, w.home
}
