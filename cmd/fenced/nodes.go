package main

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/fenced/fenced/internal/admit"
	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/cluster"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/wire"
)

// Nodes implements api.Daemon.
func (c control) Nodes(ctx context.Context, f wire.NodesFilter) (wire.Nodes, error) {
	if err := c.checkCluster(f.Cluster); err != nil {
		return wire.Nodes{}, err
	}
	bmcs, err := c.surveyBMCs(ctx)
	if err != nil {
		return wire.Nodes{}, err
	}
	var all wire.Nodes
	for _, name := range c.clusterNames(f.Cluster) {
		list, err := c.nodesIn(name, bmcs.devices[name])
		if r, refused := errors.AsType[*reason.Refusal](err); refused && r.Reason == reason.NotSynced && f.Cluster == "" {
			all.Unseen = append(all.Unseen, name) // it hides no other
			continue
		}
		if err != nil {
			return wire.Nodes{}, apiError(wire.Order{Cluster: name}, err)
		}
		all.Nodes = append(all.Nodes, list...)
	}
	cut := all.Cut(f)
	for list := cut.Nodes; len(list) > 0; {
		end := slices.IndexFunc(list, func(n wire.Node) bool { return n.Cluster != list[0].Cluster })
		if end < 0 {
			end = len(list)
		}
		addPlaces(list[:end], c.engine.Places)
		list = list[end:]
	}
	return cut, nil
}

// addPlaces says of Nodes of one cluster where they stand.
func addPlaces(list []wire.Node, places func(cluster string, nodes []string) []cluster.Place) {
	names := make([]string, len(list))
	for i := range list {
		names[i] = list[i].Node
	}
	for i, at := range places(list[0].Cluster, names) {
		list[i].Zone, list[i].Rack = bmc.Printable(at.Zone, maxLabel), bmc.Printable(at.Rack, maxLabel)
	}
}

// nodesIn lists the Nodes of one cluster, which has these devices.
func (c control) nodesIn(name string, devices []device) ([]wire.Node, error) {
	found, err := c.engine.Overview(name)
	if err != nil {
		return nil, err
	}
	nodes, _ := c.engine.Names(name, "")
	look, holds, heldOn := engine.NewLookup(c.engine), c.engine.Holds(name), map[string]string{}
	for i := range holds {
		if machine := holdStatus(holds[i]).Machine; machine != "" {
			t, _ := look.Target(name, "", machine)
			heldOn[machine] = t.Node
		}
	}
	cs, _ := look.Status(name)
	return fleet{
		cluster: name, names: nodes, found: found, unseen: isUnseen(&cs), devices: devices,
		runs: cs.Runs, refused: cs.Refused, holds: holds, heldOn: heldOn,
	}.nodes(), nil
}

// isUnseen says whether the view of a cluster is too old to tell how its Nodes are now.
func isUnseen(cs *engine.ClusterStatus) bool {
	return !cs.View.Synced || cs.ViewReason == reason.NotSynced || cs.ViewReason == reason.ViewStale
}

// fleet is what says of each Node of one cluster what covers it, and how it is.
type fleet struct {
	cluster string
	names   []string        // of the Nodes that exist
	found   policy.Overview // by its checks
	unseen  bool            // found is of some time ago
	devices []device
	runs    []remediate.Run // open ones
	refused []admit.Refused
	holds   []state.Hold
	heldOn  map[string]string // the Nodes of Machines that are held

	all  map[string]*nodeFacts // by Node, or by the "namespace/name" of a Machine without one
	list []*nodeFacts          // the same, those with devices first, in their order: that of their names, mostly
	room []nodeFacts           // for those that come next: one allocation for thousands
	// nodeOf is the Node of the run that is open on a Machine: the Machine has none once the run has deleted it. Or that of a held Machine.
	nodeOf map[string]string
}

// nodes lists the Nodes by name, then the Machines without one.
func (f fleet) nodes() []wire.Node {
	unread := f.gather()
	slices.SortFunc(f.list, func(a, b *nodeFacts) int {
		return cmp.Or(cmp.Compare(a.machine, b.machine), cmp.Compare(a.node, b.node))
	})
	list := make([]wire.Node, 0, len(f.list))
	for _, n := range f.list {
		x := f.judge(n, unread)
		x.State, x.Run = n.state(&x, f.unseen), n.run
		for _, d := range n.devices {
			if d.address != "" {
				x.BMCs = append(x.BMCs, d.address)
			}
		}
		list = append(list, x)
	}
	return list
}

// cover counts the Nodes that checks cover.
func (f fleet) cover() (c wire.NodeCover) {
	unread := f.gather()
	for _, n := range f.list {
		x := f.judge(n, unread)
		c.Add(&x)
	}
	slices.SortFunc(c.Gaps, func(a, b wire.NodeGap) int { return cmp.Compare(a.Node, b.Node) })
	return c
}

// gather puts together what is known of each Node. unread: the hosts of the cluster are not known yet.
func (f *fleet) gather() (unread bool) {
	size := max(len(f.names), len(f.devices))
	f.all, f.list, f.room, f.nodeOf = make(map[string]*nodeFacts, size), make([]*nodeFacts, 0, size), make([]nodeFacts, size), map[string]string{}
	maps.Copy(f.nodeOf, f.heldOn)
	for i := range f.runs {
		if t := &f.runs[i].Target; t.Node != "" && t.Machine != "" {
			f.nodeOf[t.MachineKey()] = t.Node
		}
	}
	unread = f.addDevices()
	for _, name := range f.names {
		f.of(name, "")
	}
	f.addChecks()
	f.addRuns()
	f.addStops()
	return unread
}

// maxLabel is how long the value of a label can be in Kubernetes, in bytes.
const maxLabel = 63

// of finds a Node or, without one, a Machine, and adds it if it is new.
func (f *fleet) of(node, machine string) *nodeFacts {
	if node = cmp.Or(node, f.nodeOf[machine]); node != "" {
		machine = ""
	}
	name := cmp.Or(node, machine)
	n := f.all[name]
	if n == nil {
		if len(f.room) == 0 {
			f.room = make([]nodeFacts, 1)
		}
		n, f.room = &f.room[0], f.room[1:]
		n.node, n.machine, n.devices = node, machine, n.first[:0]
		f.all[name], f.list = n, append(f.list, n)
	}
	return n
}

// known finds a Node or a Machine; nil if it is not listed.
func (f *fleet) known(node, machine string) *nodeFacts {
	return f.all[cmp.Or(node, f.nodeOf[machine], machine)]
}

// addChecks adds what the checks find. A check that protects nothing now, for example because it is paused, only tells which
// Nodes deviate.
func (f *fleet) addChecks() {
	for i := range f.found.Protected {
		p := &f.found.Protected[i]
		name := []string{checkName(p.Check)}
		cover := func(n *nodeFacts) {
			if n.needsHost = n.needsHost || p.NeedsHosts; len(n.checks) == 0 {
				n.checks = name // shared by most Nodes
			} else {
				n.checks = append(slices.Clip(n.checks), name...)
			}
		}
		for _, node := range p.Nodes {
			cover(f.of(node, ""))
		}
		for _, machine := range p.Machines {
			cover(f.of("", machine))
		}
	}
	for i := range f.found.Checks {
		for j := range f.found.Checks[i].Targets {
			t := &f.found.Checks[i].Targets[j]
			if t.Verdict == policy.Skipped || t.Verdict == policy.Healthy {
				continue
			}
			if n := f.known(t.Node, t.Machine); n != nil {
				n.deviates = true
			}
		}
	}
}

// addRuns adds the open runs. Their Nodes may be deleted.
func (f *fleet) addRuns() {
	for i := range f.runs {
		r := &f.runs[i]
		n := f.of(r.Target.Node, r.Target.MachineKey())
		n.run, n.runState = r.ID, wire.NodeRemediating
		switch r.Step {
		case remediate.Held:
			n.runState = wire.NodeHeld
		case remediate.Waiting:
			n.runState = wire.NodeWaiting
		}
	}
}

// addStops adds what keeps runs from beginning.
func (f *fleet) addStops() {
	for i := range f.refused {
		r := &f.refused[i]
		if n := f.known(r.Node, r.Machine); n != nil && r.Run == "" {
			n.blocked = true
		}
	}
	for i := range f.holds { // each of a Node, or of a Machine
		if n := f.known("", f.holds[i].Node); n != nil {
			n.onHold = true
		}
	}
}

// addDevices adds the BMCs. unread: the hosts of the cluster are not known yet.
func (f *fleet) addDevices() (unread bool) {
	for i := range f.devices {
		switch d := &f.devices[i]; {
		case d.unread:
			unread = true
		case cmp.Or(d.node, d.machine) != "":
			n := f.of(d.node, d.machine)
			n.devices = append(n.devices, d)
		}
	}
	return unread
}

// device is what of a BMC decides whether its host could be fenced.
type device struct {
	node, machine, host string
	level               int
	address             string
	useless             bool      // a fence could not rely on it, or fenced refuses its host
	unchecked           bool      // nobody knows its state
	unread              bool      // it stands for the hosts of a cluster that are not known yet
	told                *wire.BMC // if there is something to tell
}

func deviceOf(b *wire.BMC) device {
	d := device{node: b.Node, machine: b.Machine, host: b.Host, level: b.Level, address: b.Device,
		useless: !b.Dependable || len(b.Refused) > 0, unchecked: b.NotChecked(), unread: b.IsUnreadCluster()}
	if d.useless || refusesAccount(b) {
		told := *b
		d.told = &told
	}
	return d
}

// nodeFacts is what decides whether a Node could be fenced, and how it is. There may be a hundred thousand, for the time of an answer.
type nodeFacts struct {
	node, machine string // of a Machine without a Node: its "namespace/name"
	checks        []string
	run, runState string // the open one, and the state of the Node in it; "" without one
	blocked       bool   // a check wants it remediated, and something forbids it
	deviates      bool   // a check finds it other than healthy
	onHold        bool
	needsHost     bool // a check has its power switched
	devices       []*device
	first         [1]*device // most have one
}

// state is the first of the states of the Node, the most urgent first. unseen: what the checks find is of some time ago.
func (n *nodeFacts) state(x *wire.Node, unseen bool) string {
	switch {
	case n.runState != "":
		return n.runState
	case n.blocked:
		return wire.NodeBlocked
	case unseen:
		return wire.NodeUnseen
	case n.deviates:
		return wire.NodeUnhealthy
	case n.onHold:
		return wire.NodeOnHold
	case x.IsGap():
		return wire.NodeUnfenceable
	case len(n.checks) == 0:
		return wire.NodeUncovered
	}
	return wire.NodeHealthy
}

// judge decides whether a Node could be fenced. One power level whose devices all can be relied on
// is enough: fenced goes on to the next level if one fails. unread: the hosts of its cluster are not known yet.
func (f *fleet) judge(n *nodeFacts, unread bool) wire.Node {
	x := wire.Node{Cluster: f.cluster, Node: n.node, Machine: n.machine, Checks: n.checks, Fenceable: wire.FenceableNo}
	slices.SortStableFunc(n.devices, func(a, b *device) int { return cmp.Or(cmp.Compare(a.host, b.host), cmp.Compare(a.level, b.level)) })
	if len(n.devices) == 0 {
		switch {
		case !n.needsHost:
			x.Fenceable = wire.FenceableNotAsked
		case unread:
			x.Fenceable = wire.FenceableUnknown
		default:
			x.Reason, x.Message = string(reason.NoHost), "neither hosts.d nor a BareMetalHost names its BMC"
			x.Next = hint(&x)
		}
		return x
	}
	for _, d := range n.devices {
		onLevel := func(is func(*device) bool) bool {
			return slices.ContainsFunc(n.devices, func(o *device) bool { return o.level == d.level && is(o) })
		}
		switch {
		case onLevel(isUseless):
		case !onLevel(func(o *device) bool { return o.unchecked }):
			x.Fenceable = wire.FenceableYes
			return x
		default:
			x.Fenceable = wire.FenceableUnknown
		}
	}
	if x.Fenceable == wire.FenceableNo {
		because(&x, n.devices[slices.IndexFunc(n.devices, isUseless)].told)
	}
	return x
}

func isUseless(d *device) bool { return d.useless }

// because tells what is wrong with the first device of a Node that cannot be used, and what to do next.
func because(x *wire.Node, d *wire.BMC) {
	x.Reason, x.Message = d.Reason, cmp.Or(d.Problem, "its BMC is not dependable")
	if len(d.Refused) > 0 {
		x.Reason, x.Message = d.Refused[0].Code, d.Refused[0].Message
	}
	x.Next = hint(x)
	if len(d.Refused) == 0 && refusesAccount(d) {
		x.Next = nextOfAccount(d)
	}
}

// hint is what to do about the reason for which a Node could not be fenced.
func hint(x *wire.Node) string {
	return refusalHint(wire.Order{Cluster: x.Cluster, Node: x.Node, Machine: x.Machine}, reason.Code(x.Reason))
}
