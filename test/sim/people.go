package sim

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/order"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/times"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/fake"
)

// peopleState is what people have ordered. Guarded by the world's mutex.
type peopleState struct {
	stops   map[stopKey]stop   // acknowledged by that process of a fenced
	files   map[*instance]stop // the existing pause files
	stored  stop               // the pause in the store
	held    map[string]bool    // Nodes that were ever held
	helped  map[string]int     // how often a Held run was helped, by ID
	visited time.Time
}

// stopKey is one process of a fenced and one Node; no Node means a pause of
// everything.
type stopKey struct {
	by   *incarnation
	node string
}

// stop is a pause or a hold.
type stop struct{ at, until time.Time }

// orderTime is how long a person waits for an answer.
const orderTime = 30 * time.Second

// people give orders in the storm, and resolve what waits for them in the calm.
// w.mu is held.
func (w *World) people(now time.Time) {
	if w.calm && now.Sub(w.crowd.visited) > time.Minute {
		w.crowd.visited = now
		w.help()
	}
	if w.calm || !w.chance(w.plan.People) {
		return
	}
	c := w.orderTarget()
	if w.rng.IntN(4) == 0 { // any instance, owner or not
		c = w.instances[w.rng.IntN(len(w.instances))].cur
	}
	if c == nil || c.dead || c.engine == nil {
		return
	}
	h := w.hosts[w.rng.IntN(len(w.hosts))]
	for range 3 { // people mostly choose a host with a run
		if _, open := w.open(h.Name); open {
			break
		}
		h = w.hosts[w.rng.IntN(len(w.hosts))]
	}
	w.order(c, h, w.rng.IntN(15))
}

// order gives one order. w.mu is held.
func (w *World) order(c *incarnation, h *host, what int) {
	e := c.engine
	r, _ := w.open(h.Name)
	w.decides(r)
	o := wire.Order{Cluster: cluster, Node: h.Name, Run: r.ID, Actor: "uid 1000", Reason: "at random", For: wire.Span(between(w.rng, 20*time.Second, 5*time.Minute))}
	plain := func(f func(context.Context, wire.Order) (order.Outcome, error)) func(context.Context) error {
		return func(ctx context.Context) error { _, err := f(ctx, o); return err }
	}
	switch {
	case w.defect.PeopleLie:
		w.ask("confirm-off", h.Name, c, plain(e.ConfirmOff))
	case what < 2:
		w.ask("pause", "", c, func(ctx context.Context) error { return w.pause(ctx, c, e, o) })
	case what < 3:
		w.touch(c, time.Duration(o.For))
	case what < 5:
		of := o
		if w.api.Machines[h.Name] != nil && w.luck.IntN(2) == 0 { // its other name
			of = byMachine(o)
		}
		w.ask("hold", h.Name, c, func(ctx context.Context) error { return w.hold(ctx, c, e, h.Name, of) })
	case what < 7:
		w.ask("fence", h.Name, c, plain(e.Fence))
	case what < 8:
		o.OffOnly = true
		w.ask("fence-off-only", h.Name, c, plain(e.Fence))
	case what < 10:
		w.ask("unfence", h.Name, c, plain(e.Unfence))
	case what < 11:
		w.ask("abort", h.Name, c, plain(e.Abort))
	case what < 12:
		w.ask("retry", h.Name, c, plain(e.Retry))
	case what < 13 && !h.On && !h.Retired && !w.plan.Metal: // people confirm only what is true
		w.ask("confirm-off", h.Name, c, plain(e.ConfirmOff))
	case what < 14:
		w.ask("explain", h.Name, c, func(ctx context.Context) error { return w.explain(ctx, e, h.Name) })
	default:
		w.ask("release-freeze", h.Name, c, func(ctx context.Context) error { return w.releaseHost(ctx, e, o) })
	}
}

// decides notes that a person decides about a run from now on. w.mu is held.
func (w *World) decides(r remediate.Run) {
	delete(w.ledger.old, r.ID)
	if r.Request != nil {
		delete(w.ledger.said, r.Request.UID)
	}
}

// ask lets a person wait for an answer. w.mu is held.
func (w *World) ask(verb, node string, c *incarnation, f func(context.Context) error) {
	w.outcome.Orders[verb]++
	w.note(node, "a person at %s: %s", c, verb)
	w.workers.Go(func() {
		ctx, cancel := context.WithTimeout(c.ctx, orderTime)
		defer cancel()
		err := f(ctx)
		w.do(func() {
			w.search("the answer to "+verb, node, fmt.Sprint(err))
			w.note(node, "answer of %s to %s: %v", c, verb, err)
		})
	})
}

// pause pauses everything for a while. It is effective from its answer on.
func (w *World) pause(ctx context.Context, c *incarnation, e *engine.Engine, o wire.Order) error {
	o.Cluster, o.Node = "", ""
	begun := time.Now()
	if !w.defect.ForgetsStops {
		if _, err := e.Pause(ctx, o); err != nil {
			return err
		}
	}
	w.do(func() { w.crowd.stops[stopKey{c, ""}] = stop{time.Now(), begun.Add(time.Duration(o.For))} })
	return nil
}

// byMachine is the same order, which names the Machine of the Node.
func byMachine(o wire.Order) wire.Order {
	o.Node, o.Machine = "", fake.Namespace+"/m-"+o.Node
	return o
}

// hold holds one Node for a while, under its name or that of its Machine.
func (w *World) hold(ctx context.Context, c *incarnation, e *engine.Engine, node string, o wire.Order) error {
	begun := time.Now()
	if !w.defect.ForgetsStops {
		if _, err := e.Hold(ctx, o); err != nil {
			return err
		}
	}
	w.do(func() {
		w.crowd.stops[stopKey{c, node}], w.crowd.held[node] = stop{time.Now(), begun.Add(time.Duration(o.For))}, true
	})
	return nil
}

// touch creates the pause file of an instance, which needs no answer. w.mu is
// held.
func (w *World) touch(c *incarnation, d time.Duration) {
	w.outcome.Orders["pause-file"]++
	w.note("", "a person makes the pause file of %s", c.i.name)
	if err := os.WriteFile(c.i.pauseFile, []byte("at random"), 0o600); err != nil {
		w.violate("sim", "", "write the pause file: %v", err)
	}
	now, last := time.Now(), w.crowd.files[c.i]
	if !now.Before(last.until) {
		last.at = now
	}
	w.crowd.files[c.i] = stop{last.at, times.Later(last.until, now.Add(d))}
	w.after(d, func() {
		w.do(func() {
			if !time.Now().Before(w.crowd.files[c.i].until) { // nobody has prolonged it
				_ = os.Remove(c.i.pauseFile)
			}
		})
	})
}

// releaseHost releases a host that is frozen, held or in quarantine.
func (w *World) releaseHost(ctx context.Context, e *engine.Engine, o wire.Order) error {
	w.do(func() { // from now on it may act
		delete(w.ledger.frozen, o.Node)
		w.ledger.forgiven[o.Node] = len(w.ledger.cycles[o.Node])
		for k := range w.crowd.stops {
			if k.node == o.Node {
				delete(w.crowd.stops, k)
			}
		}
	})
	for _, of := range []wire.Order{o, byMachine(o)} { // whichever name the hold has
		_, _ = e.ReleaseHold(ctx, of) // most are not held
	}
	_, err := e.Unfreeze(ctx, o)
	return err
}

// stopped returns since when a fenced must know not to act on a Node; zero if it
// may act. A stop may end early by as much as two clocks differ. w.mu is held.
func (w *World) stopped(c *incarnation, node string, now time.Time) (since time.Time) {
	now = now.Add(w.plan.apart())
	for _, k := range []stopKey{{c, ""}, {c, node}} {
		if s, ok := w.crowd.stops[k]; ok && now.Before(s.until) {
			return s.at
		}
	}
	if s := w.crowd.files[c.i]; now.Before(s.until) {
		return times.Later(s.at, c.since)
	}
	if s := w.crowd.stored; now.Before(s.until) && !c.i.storeCut.After(s.at) && c.since.Before(s.at) {
		return s.at.Add(2 * time.Second) // time to learn of it
	}
	return time.Time{}
}

// orderTarget is a fenced that takes orders, the owner if there is one. w.mu is
// held.
func (w *World) orderTarget() *incarnation {
	if o := w.owners.holder; o != nil && !o.dead && o.engine != nil {
		return o
	}
	for _, i := range w.instances {
		if i.cur != nil && !i.cur.dead && i.cur.engine != nil {
			return i.cur
		}
	}
	return nil
}

// help resumes what is Held, as often as that may help, and ends every pause.
// w.mu is held.
func (w *World) help() {
	c := w.orderTarget()
	if c == nil {
		return
	}
	e := c.engine
	w.bringLostBack()
	if w.crowd.helped[""] < 3 {
		w.crowd.helped[""]++
		clear(w.crowd.stops)
		clear(w.crowd.files)
		w.crowd.stored = stop{}
		for _, i := range w.instances {
			_ = os.Remove(i.pauseFile)
		}
		w.ask("resume", "", c, func(ctx context.Context) error {
			_, err := e.Resume(ctx, wire.Order{Actor: "uid 0", Reason: "calm"})
			return err
		})
	}
	for _, h := range w.hosts {
		h.dropStrangersNode()
		if (w.asked(h.Name) || w.crowd.held[h.Name]) && w.crowd.helped[h.Name] < 3 { // a wrong clock may have held it for hours
			w.crowd.helped[h.Name]++
			o := wire.Order{Cluster: cluster, Node: h.Name, Actor: "uid 0", Reason: "calm"}
			w.ask("release-hold", h.Name, c, func(ctx context.Context) error { return w.releaseHost(ctx, e, o) })
		}
		r, open := w.open(h.Name)
		asIs := r.Step.Idle() && (r.Target.ClusterUID != w.home || w.waitsForOldMachine(h, r))
		if !open || r.Step != remediate.Held && !asIs || w.crowd.helped[r.ID] >= 3 {
			continue
		}
		w.crowd.helped[r.ID]++
		w.decides(r)
		o := wire.Order{Cluster: cluster, Node: h.Name, Run: r.ID, Actor: "uid 0", Reason: "calm", AsIs: asIs}
		if asIs { // its cluster was a copy, or its Machine was made anew: nobody brings that back
			h.unknown, h.Owned = true, fake.Owned{}
			w.ask("abort-as-is", h.Name, c, func(ctx context.Context) error { _, err := e.Abort(ctx, o); return err })
			continue
		}
		w.ask("unfence", h.Name, c, func(ctx context.Context) error {
			_ = w.releaseHost(ctx, e, o) // most are not frozen
			_, err := e.Unfence(ctx, o)
			return err
		})
	}
}

// waitsForOldMachine says whether a run waits for a Machine that is another one by now, with its taint on the
// Node, or after the isolation for a BareMetalHost that is, or for a spare machine that has left, whose name another
// one has: docs/six-steps.md tells people to close it. Otherwise it ends by itself. w.mu is held.
func (w *World) waitsForOldMachine(h *host, r remediate.Run) bool {
	m, b, n := w.api.Machines[h.Name], w.api.Metal[h.Name], w.api.Nodes[h.Name]
	tainted := m != nil && m.UID != r.Target.MachineUID && n != nil && n.OutOfService()
	late := r.Attempt > 1 || !r.Isolated.IsZero()
	repointed := late && b != nil && r.Target.BareMetalHostUID != "" && b.UID != r.Target.BareMetalHostUID
	left := late && !h.Retired && n != nil && otherUUID(r.Target.SystemUUID, n.SystemUUID)
	return r.Reason == reason.TargetChanged && (tainted || repointed || left)
}

// explain lets a person ask why a Node is, or is not, fenced.
func (w *World) explain(ctx context.Context, e *engine.Engine, node string) error {
	x, err := e.Explain(ctx, cluster, node)
	w.do(func() { w.search("an explanation", node, fmt.Sprintf("%+v %+v", x, x.Run)) })
	return err
}

// confirmLostHost lets a host fail together with its BMC, at random. Somebody
// goes there, disconnects its power and confirms that it is off; sometimes it was
// another host that nobody noticed. w.mu is held. // I26
func (w *World) confirmLostHost(now time.Time) {
	if w.plan.Metal || w.pen.Float64() >= w.plan.Words/3600 { // otherwise its owner powers it on again
		return
	}
	h, _ := w.pickHosts()
	if _, open := w.open(h.Name); open || !h.On || h.Gone {
		return
	}
	if w.pen.IntN(2) == 0 {
		h.Hang(time.Time{})
	} else {
		h.Cut = now.Add(between(w.pen, 2*time.Minute, 10*time.Minute))
	}
	h.BMC.Fault, h.until = fake.Hangs, now.Add(between(w.pen, 2*time.Minute, 10*time.Minute))
	w.fault("host-and-bmc-lost", h.Name, "the BMC until %s", h.until.Sub(w.began).Round(time.Second))
	pulled := w.pen.IntN(4) > 0
	again := between(w.pen, 30*time.Second, 3*time.Minute)
	w.after(between(w.pen, 50*time.Second, 3*time.Minute), func() {
		w.do(func() {
			if pulled && !w.calm {
				h.Power(false, "foreign hand")
			}
			w.confirmOff(h)
		})
		if sleep(w.ctx, again) == nil {
			w.do(func() { w.confirmOff(h) })
		}
	})
}

// confirmOff is a person's confirmation that a host is off. w.mu is held.
func (w *World) confirmOff(h *host) {
	c := w.orderTarget()
	if c == nil || w.calm {
		return
	}
	e, o := c.engine, wire.Order{Cluster: cluster, Node: h.Name, Actor: "uid 1000", Reason: "its plug is pulled"}
	w.ask("confirm-off", h.Name, c, func(ctx context.Context) error { _, err := e.ConfirmOff(ctx, o); return err })
}
