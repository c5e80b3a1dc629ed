package engine

import (
	"context"
	"fmt"
	"strings"

	"github.com/fenced/fenced/internal/cluster"
	"github.com/fenced/fenced/internal/order"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/stop"
	"github.com/fenced/fenced/internal/wire"
)

// orderGroup gives an order about all Nodes that have some labels in the view now. An old view is better than none: what it
// may lack, the answer says.
func (c *clusterParts) orderGroup(ctx context.Context, o wire.Order, give func(stop.Group, context.Context) (order.Outcome, error)) (order.Outcome, error) {
	labels, err := o.Group.Labels(c.model.Options.Rules.ZoneKey, c.opt.RackKey)
	if err != nil {
		return order.Outcome{}, err
	}
	if !c.model.Objects.Seen() {
		return order.Outcome{}, cluster.ErrNotSeen()
	}
	found := c.model.WithLabels(labels)
	g := stop.Group{Stop: c.e.stop, Order: o, Selector: wire.SelectorOf(labels), Nodes: found.Nodes}
	if len(found.Nodes) == 0 && o.Verb != wire.Release { // a hold outlives the labels
		return order.Outcome{}, noSuchNodes(o.Group, g.Selector, found.Values)
	}
	out, err := give(g, ctx)
	if err != nil {
		return out, err
	}
	for i := range out.Nodes {
		out.Nodes[i].Run = found.Runs[out.Nodes[i].Node]
	}
	out.Selector = g.Selector
	_, out.OldView = c.view.Problem()
	if o.Verb == wire.Hold { // a release leaves them as they are in any case
		out.Unlabelled = found.Unlabelled[:min(len(found.Unlabelled), stop.MaxTogether)]
	}
	return out, nil
}

// noSuchNodes refuses labels that no Node has.
func noSuchNodes(g wire.Group, selector string, values []string) error {
	r := &reason.Refusal{Reason: reason.NoSuchNode, Message: "no Node has " + selector}
	key, _, _ := strings.Cut(selector, "=")
	switch {
	case len(values) > 0:
		r.Message += fmt.Sprintf("; the values of %s are %s", key, strings.Join(values, ", "))
	case g.Rack != "":
		r.Message += "; guards.rackKey of fenced.yaml names the label of racks"
	case g.Zone != "":
		r.Message += "; guards.zoneKey of fenced.yaml names the label of zones"
	}
	return r
}

// Places says of Nodes of a cluster where they stand, by the labels guards.zoneKey and guards.rackKey.
func (e *Engine) Places(name string, nodes []string) []cluster.Place {
	if c := e.clusters.Get(name); c != nil {
		return c.model.Places(c.opt.RackKey, nodes)
	}
	return make([]cluster.Place, len(nodes))
}
