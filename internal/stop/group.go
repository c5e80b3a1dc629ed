package stop

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/order"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/wire"
)

// MaxTogether is how many Nodes one order can hold.
const MaxTogether = 1000

// Group is an order about all Nodes with some labels.
type Group struct {
	Stop  *Stop
	Order wire.Order
	// Selector has the labels, and Nodes are those that have them now, by name.
	Selector string
	Nodes    []string
}

// Hold holds the Nodes, with one end for all. All of them are held before the first is saved. The store takes one record at
// a time: after the first that it refuses, Stop.Run saves the others. // I23
func (g Group) Hold(ctx context.Context) (order.Outcome, error) {
	s, cluster := g.Stop, g.Order.Cluster
	if len(g.Nodes) > MaxTogether {
		return order.Outcome{}, &reason.Refusal{Reason: reason.TooManyHolds, Message: fmt.Sprintf(
			"%d Nodes have %s, and one order holds %d at most: give more labels, or pause the cluster", len(g.Nodes), g.Selector, MaxTogether)}
	}
	ordered := s.clocks.stopBy(g.Order)
	ordered.selector = g.Selector
	before, binds, saved := make([]stop, len(g.Nodes)), make([]stop, len(g.Nodes)), len(g.Nodes)
	for i, node := range g.Nodes {
		k := key{cluster, node}
		before[i] = g.inForce(k)
		if g.Order.DryRun {
			binds[i] = s.longest(k, ordered)
		} else {
			binds[i] = s.bind(k, ordered)
		}
	}
	out := order.Outcome{Until: ordered.until}
	if !g.Order.DryRun {
		s.clusters.wake(cluster)
		g.emit("holds", untilText(ordered.until), g.Nodes)
		var err error
		if saved, err = g.save(ctx, binds); err != nil {
			out.Unsaved = unsavedText(fmt.Sprintf("%d of %d Nodes are held", len(binds)-saved, len(binds)), err)
			s.opt.Emit(event.Event{Type: event.Failed, Cluster: cluster, Message: "hold the Nodes with " + g.Selector + ": " + out.Unsaved})
		}
	}
	for i, node := range g.Nodes {
		n := wire.GroupNode{Node: node, Held: s.Held(cluster, node) != "", Until: binds[i].until}
		earlier := binds[i].earlierThan(ordered)
		if n.Changed = earlier == ""; !n.Changed {
			n.Note = "an earlier hold that ends no earlier stays, by " + earlier
		} else {
			n.Note = noteOf(before[i], ordered, i < saved)
		}
		out.Nodes = append(out.Nodes, n)
	}
	return out, nil
}

// inForce is the hold that binds a Node now; zero if there is none.
func (g Group) inForce(k key) stop {
	end := g.Stop.EndBy(k.cluster)
	for _, v := range []stop{g.Stop.unsaved.get(k), g.Stop.stored(k)} {
		if v.active(end) {
			return v
		}
	}
	return stop{}
}

// noteOf says what is not as somebody may expect of a hold that was ordered. before was in force, and ends earlier.
func noteOf(before, ordered stop, saved bool) (note string) {
	if earlier := before.earlierThan(ordered); before.by != "" && earlier != "" {
		note = "in place of the hold" + untilText(before.until) + " by " + earlier + "; the release of these Nodes ends both"
	}
	if !saved {
		note = strings.TrimPrefix(note+"; not saved yet", "; ")
	}
	return note
}

// save saves what binds the Nodes until the store refuses one, and returns how many it took. These get what is stored then.
func (g Group) save(ctx context.Context, binds []stop) (saved int, err error) {
	for i, node := range g.Nodes {
		if binds[i], err = g.Stop.save(ctx, key{g.Order.Cluster, node}, binds[i]); err != nil {
			return i, err
		}
	}
	return len(g.Nodes), nil
}

// Release ends the holds that orders with these labels began, also on Nodes that no longer have them. It ends no hold of
// another order, and no quarantine: the answer has the Nodes with these labels that stay held, and why. After an error some
// are released, as it says.
func (g Group) Release(ctx context.Context) (order.Outcome, error) {
	var mine, others []string
	for _, h := range g.Stop.Holds(g.Order.Cluster) {
		switch {
		case g.began(holdOf(h)) && !h.Quarantine:
			mine = append(mine, h.Node)
		case slices.Contains(g.Nodes, h.Node) && !slices.Contains(mine, h.Node):
			others = append(others, h.Node)
		}
	}
	others = slices.Compact(others) // a Node can have a hold and a quarantine
	switch {
	case len(mine) > 0:
	case len(others) > 0:
		return order.Outcome{}, &reason.Refusal{Reason: reason.NoHold, Message: fmt.Sprintf(
			"nobody has held the Nodes with %s together; %s is %s; release each by its name: %s", g.Selector, others[0], g.stillHeld(others[0]), someOf(others))}
	default:
		return order.Outcome{}, &reason.Refusal{Reason: reason.NoHold, Message: "nobody holds the Nodes with " + g.Selector}
	}
	if !g.Order.DryRun {
		released, err := g.end(ctx, mine)
		if err != nil {
			return order.Outcome{}, err
		}
		mine, others = released, append(others, without(mine, released)...)
	}
	var out order.Outcome
	for _, name := range slices.Sorted(slices.Values(slices.Concat(mine, others))) {
		n := wire.GroupNode{Node: name, Changed: slices.Contains(mine, name), Held: g.Stop.Held(g.Order.Cluster, name) != ""}
		if !g.Order.DryRun || !n.Changed {
			n.Note = g.stillHeld(name)
		}
		out.Nodes = append(out.Nodes, n)
	}
	return out, nil
}

// began reports whether an order with these labels began a hold.
func (g Group) began(v stop) bool { return v.selector == g.Selector }

// end releases Nodes one after the other, as the store takes them. A hold that somebody has replaced meanwhile is not theirs
// any more.
func (g Group) end(ctx context.Context, names []string) (released []string, err error) {
	s, done := g.Stop, 0
	for done < len(names) && err == nil {
		if err = s.lock(ctx); err != nil {
			break
		}
		var was bool
		was, err = s.release(ctx, g.Order, key{g.Order.Cluster, names[done]}, false, g.began)
		s.saving.Release(1)
		if was {
			released = append(released, names[done])
		}
		if err == nil {
			done++
		}
	}
	s.clusters.wake(g.Order.Cluster)
	if len(released) > 0 {
		g.emit("releases", "", released)
	}
	if err != nil {
		return released, fmt.Errorf("save that the Nodes with %s are released: %d of %d are, and these stay held: %s: %w",
			g.Selector, len(released), len(names), someOf(names[done:]), err)
	}
	return released, nil
}

// without lists the names that are not among others.
func without(names, others []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return slices.Contains(others, name) })
}

// emit reports the order, and then each Node, so that the audit log and the timeline of the Node have it.
func (g Group) emit(verb, until string, names []string) {
	g.Stop.opt.Emit(g.Order.Event(fmt.Sprintf("%s %d Nodes with %s%s", verb, len(names), g.Selector, until)))
	for _, name := range names {
		did := fmt.Sprintf("%s it%s, with %d Nodes that have %s", verb, until, len(names), g.Selector)
		g.Stop.opt.Emit(key{g.Order.Cluster, name}.event(g.Order.Event(did)))
	}
}

// stillHeld says why a Node is not fenced; "" if neither a hold nor a quarantine forbids it.
func (g Group) stillHeld(name string) string {
	still := g.Stop.Held(g.Order.Cluster, name)
	if why, end := g.Stop.Quarantined(g.Order.Cluster, name); why != "" {
		still = strings.TrimPrefix(still+"; in quarantine"+untilText(end)+": "+why, "; ")
	}
	return still
}

// maxNames bounds how many Nodes a message names.
const maxNames = 20

func someOf(names []string) string {
	text := strings.Join(names[:min(len(names), maxNames)], " ")
	if more := len(names) - maxNames; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
