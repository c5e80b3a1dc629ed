package main

import (
	"cmp"
	"context"
	"slices"

	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/wire"
)

// Nodes implements api.Daemon.
func (c control) Nodes(ctx context.Context, cluster string) (wire.Nodes, error) {
	devices, err := c.BMCs(ctx, cluster)
	if err != nil {
		return wire.Nodes{}, err
	}
	var all wire.Nodes
	for _, name := range c.clusterNames(cluster) {
		found, err := c.engine.Report(name)
		if err != nil {
			return wire.Nodes{}, apiError(wire.Order{Cluster: name}, err)
		}
		nodes, _ := c.engine.Names(name, "")
		all.Nodes = append(all.Nodes, nodesOf(name, nodes, found, devices.BMCs)...)
	}
	return all, nil
}

// nodesOf lists the Nodes of one cluster by name, then its Machines without one. found is what its
// checks find, and devices are those of all clusters.
func nodesOf(cluster string, nodes []string, found policy.Report, devices []wire.BMC) []wire.Node {
	all := map[string]*nodeFacts{}
	of := func(node, machine string) *nodeFacts {
		if node != "" {
			machine = ""
		}
		name := cmp.Or(node, machine)
		if all[name] == nil {
			all[name] = &nodeFacts{Node: wire.Node{Cluster: cluster, Node: node, Machine: machine}}
		}
		return all[name]
	}
	for _, name := range nodes {
		of(name, "")
	}
	for i := range found.Checks {
		check := &found.Checks[i]
		if !check.Protects() {
			continue
		}
		for j := range check.Targets {
			t := &check.Targets[j]
			if t.Verdict == policy.Skipped {
				continue
			}
			n := of(t.Node, t.Machine)
			n.Checks = append(n.Checks, checkName(check.ID()))
			n.needsHost = n.needsHost || check.NeedsHosts
		}
	}
	unread := false
	for i := range devices {
		switch d := &devices[i]; {
		case d.Cluster != cluster:
		case d.IsUnreadCluster():
			unread = true
		case cmp.Or(d.Node, d.Machine) != "":
			n := of(d.Node, d.Machine)
			n.devices = append(n.devices, d)
		}
	}
	list := make([]wire.Node, 0, len(all))
	for _, n := range all {
		n.judge(unread)
		list = append(list, n.Node)
	}
	slices.SortFunc(list, func(a, b wire.Node) int {
		return cmp.Or(cmp.Compare(a.Machine, b.Machine), cmp.Compare(a.Node, b.Node))
	})
	return list
}

// nodeFacts is a Node, and what decides whether it could be fenced.
type nodeFacts struct {
	wire.Node
	needsHost bool        // a check has its power switched
	devices   []*wire.BMC // by power level
}

// judge decides whether the Node could be fenced. One power level whose devices all can be relied on
// is enough: fenced goes on to the next level if one fails. unread: the hosts of its cluster are not known yet.
func (n *nodeFacts) judge(unread bool) {
	levels := map[int][]*wire.BMC{}
	for _, d := range n.devices {
		levels[d.Level] = append(levels[d.Level], d)
		if d.Device != "" {
			n.BMCs = append(n.BMCs, d.Device)
		}
	}
	if len(n.devices) == 0 {
		switch {
		case !n.needsHost:
			n.Fenceable = wire.FenceableNotAsked
		case unread:
			n.Fenceable = wire.FenceableUnknown
		default:
			n.Fenceable, n.Reason, n.Message = wire.FenceableNo, string(reason.NoHost), "neither hosts.d nor a BareMetalHost names its BMC"
			n.Next = n.hint()
		}
		return
	}
	n.Fenceable = wire.FenceableNo
	for _, level := range levels {
		switch {
		case slices.ContainsFunc(level, isUseless):
		case !slices.ContainsFunc(level, (*wire.BMC).NotChecked):
			n.Fenceable = wire.FenceableYes
			return
		default:
			n.Fenceable = wire.FenceableUnknown
		}
	}
	if n.Fenceable == wire.FenceableNo {
		n.because(n.devices[slices.IndexFunc(n.devices, isUseless)])
	}
}

// isUseless reports whether a fence could not rely on a device, or fenced refuses its host.
func isUseless(d *wire.BMC) bool { return !d.Dependable || len(d.Refused) > 0 }

// because tells what is wrong with the first device that cannot be used, and what to do next.
func (n *nodeFacts) because(d *wire.BMC) {
	n.Reason, n.Message = d.Reason, cmp.Or(d.Problem, "its BMC is not dependable")
	if len(d.Refused) > 0 {
		n.Reason, n.Message = d.Refused[0].Code, d.Refused[0].Message
	}
	n.Next = n.hint()
	if len(d.Refused) == 0 && refusesAccount(d) {
		n.Next = nextOfAccount(d)
	}
}

// hint is what to do about the reason for which the Node could not be fenced.
func (n *nodeFacts) hint() string {
	return refusalHint(wire.Order{Cluster: n.Cluster, Node: n.Node.Node, Machine: n.Machine}, reason.Code(n.Reason))
}
