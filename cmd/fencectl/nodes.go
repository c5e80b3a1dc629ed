package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fenced/fenced/internal/wire"
)

func newNodesCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "nodes",
		Short: "list every node: its state, the checks that cover it, its BMC, and whether it could be fenced",
		Long: `List every Node: its state, which checks cover it, which BMC switches its power, and
whether fenced could fence it now. Machines without a Node are listed if a check covers
them or if they have a host. So is a Node that fenced has deleted, until its run ends.

STATE is the most urgent of: Held (its run needs a person), Remediating, Waiting (its run
waits), Blocked (a check wants it remediated, and something forbids it), Unseen (fenced
does not see its cluster now: "fencectl status" says why), Unhealthy, OnHold (a person or
a quarantine keeps it from being fenced), Unfenceable, Healthy, Uncovered (no check covers
it). -o wide adds its zone and its rack, from the labels
that guards.zoneKey and guards.rackKey name.

FENCEABLE is yes, no, unknown (its BMC was not checked since the daemon started), or
"not asked" (its checks do not ask for a power cycle).

The exit status is 2 if a check covers a node that could not be fenced, if no check
covers any node of a cluster, or if fenced has not seen a cluster since it started.`,
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error { return c.nodes(cmd.Context()) },
	}
}

func (c *cli) nodes(ctx context.Context) error {
	rep, err := c.client().Nodes(ctx, c.cluster)
	if err != nil {
		return requestError("list the nodes", err)
	}
	list := rep.Value.Nodes
	covered := map[string]bool{} // clusters
	var names []string
	for i := range list {
		names = append(names, list[i].Name())
		covered[list[i].Cluster] = covered[list[i].Cluster] || len(list[i].Checks) > 0
	}
	degraded := len(rep.Value.Unseen) > 0 || slices.ContainsFunc(list, func(n wire.Node) bool { return n.IsGap() || !covered[n.Cluster] })
	return c.printDegraded(degraded, rep.Body, func() error {
		for _, cluster := range rep.Value.Unseen {
			fmt.Fprintf(c.out, "%s cluster %s: fencectl status says why\n", c.painter(c.out).paint(yellow, "not seen:"), escapeControl(cluster))
		}
		return c.nodeTable(list)
	}, names...)
}

func (c *cli) nodeTable(list []wire.Node) error {
	t := newTable("CLUSTER", "NODE", "STATE", "FENCEABLE", "CHECKS", "BMCS", "REASON")
	if c.output == "wide" {
		t.head = append(t.head, "ZONE", "RACK", "NEXT")
	}
	for i := range list {
		n := &list[i]
		t.add(n.Cluster, n.Name(), stateOf(n), fenceable(n), orDash(strings.Join(n.Checks, ", ")), orDash(strings.Join(n.BMCs, ", ")), whyNot(n),
			orDash(n.Zone), orDash(n.Rack), orDash(n.Next))
	}
	return t.write(c.out, c.painter(c.out), "")
}

// stateOf is how the Node is; "-" from a daemon that does not tell.
func stateOf(n *wire.Node) cell {
	c := cell{text: orDash(n.State)}
	switch n.State {
	case wire.NodeHeld, wire.NodeBlocked, wire.NodeUnfenceable:
		c.color = red
	case wire.NodeRemediating, wire.NodeWaiting, wire.NodeUnseen, wire.NodeUnhealthy, wire.NodeOnHold, wire.NodeUncovered:
		c.color = yellow
	}
	return c
}

func fenceable(n *wire.Node) cell {
	switch {
	case n.IsGap():
		return cell{text: n.Fenceable, color: red}
	case n.Fenceable == wire.FenceableUnknown || len(n.Checks) == 0:
		return cell{text: n.Fenceable, color: yellow}
	}
	return cell{text: n.Fenceable}
}

// whyNot is why the Node could not be fenced, the reason code first.
func whyNot(n *wire.Node) string {
	if n.Fenceable != wire.FenceableNo {
		return "-"
	}
	return n.Reason + ": " + n.Message
}
