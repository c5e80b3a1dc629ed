package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/internal/cluster"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/wire"
)

// resolver finds what a name means now: a Node, a Machine or a run. A name never means another host than
// the one that it names: where it could mean two things it is refused.
type resolver struct {
	runs []remediate.Run // on record, of the cluster that was named, or of all
	// seen says in which of these clusters a Node of this name is seen, or a Machine that names it, or the Machine
	// "namespace/name".
	seen func(name string) (clusters []string)
	// nodeOf gives the Node of a Machine that is seen, "" if it has none.
	nodeOf func(machine string) (node string, err error)
}

// OnlyCluster implements api.Daemon.
func (c control) OnlyCluster() string {
	if names := c.clusterNames(""); len(names) == 1 {
		return names[0]
	}
	return ""
}

// Resolve implements api.Daemon.
func (c control) Resolve(want wire.Wanted, n wire.Named) (wire.Named, error) {
	look, clusters := engine.NewLookup(c.engine), c.clusterNames(n.Cluster)
	r := resolver{
		runs: c.engine.Runs(n.Cluster),
		seen: func(name string) []string {
			node, machine := name, ""
			if strings.Contains(name, "/") {
				node, machine = "", name
			}
			return slices.DeleteFunc(slices.Clone(clusters), func(cluster string) bool {
				_, seen := look.Target(cluster, node, machine)
				return !seen
			})
		},
		nodeOf: func(machine string) (string, error) {
			if len(clusters) != 1 {
				return "", &reason.Refusal{Reason: reason.ClusterRequired, Message: "several clusters are configured; name one with --cluster"}
			}
			t, _ := look.Target(clusters[0], "", machine)
			return t.Node, nil
		},
	}
	means, err := r.resolve(want, n)
	if err != nil {
		return n, apiError(wire.Order{}.About(n), err)
	}
	return means, nil
}

func (r resolver) resolve(want wire.Wanted, n wire.Named) (wire.Named, error) {
	switch {
	case want == wire.WantRun:
		return r.run(n)
	case n.Node != "":
		return r.host(want, n)
	case want == wire.WantNode && n.Machine != "":
		return r.node(n)
	}
	return n, nil
}

// those are some of the runs.
func (r resolver) those(wanted func(*remediate.Run) bool) []remediate.Run {
	return slices.DeleteFunc(slices.Clone(r.runs), func(run remediate.Run) bool { return !wanted(&run) })
}

// run finds the run that an order is about: the one of this name, or the open one on the Node or the
// Machine of this name. What it does not know stays as it is: it may be the record of another remediator.
func (r resolver) run(n wire.Named) (wire.Named, error) {
	name := cmp.Or(n.Run, n.Machine)
	found := r.those(func(run *remediate.Run) bool { return run.ID == name || run.Open() && cluster.IsOn(run, name) })
	switch others := r.elsewhere(name, found); {
	case len(found)+len(others) > 1:
		return n, ambiguous(name, slices.Concat(namesOf(found), others))
	case len(found) == 1:
		return wire.Named{Cluster: found[0].Target.Cluster, Run: found[0].ID}, nil
	case n.Machine != "" || len(r.seen(name)) > 0 || slices.ContainsFunc(r.runs, func(run remediate.Run) bool { return cluster.IsOn(&run, name) }):
		return n, &reason.Refusal{Reason: reason.NoRun, Message: "no run is open on " + name}
	}
	return n, nil
}

// elsewhere lists the hosts of other clusters that have the name of the host of a run: without the name of a cluster, they
// may be meant. The ID of a run is that run.
func (r resolver) elsewhere(name string, found []remediate.Run) (list []string) {
	if len(found) != 1 || found[0].ID == name {
		return nil
	}
	for _, in := range r.seen(name) {
		if in != found[0].Target.Cluster {
			list = append(list, name+" in "+in)
		}
	}
	return list
}

// host finds the Node or the Machine of a run. The name of a Node means that Node, whether it is seen or
// fenced has deleted it.
func (r resolver) host(want wire.Wanted, n wire.Named) (wire.Named, error) {
	i := slices.IndexFunc(r.runs, func(run remediate.Run) bool { return run.ID == n.Node })
	if i < 0 {
		return n, nil
	}
	run := &r.runs[i]
	var nodes []string
	for _, name := range r.seen(n.Node) {
		nodes = append(nodes, "Node "+n.Node+" in "+name)
	}
	on := r.those(func(other *remediate.Run) bool { return other.Target.Node == n.Node })
	if len(nodes) > 0 || len(on) > 0 {
		return n, ambiguous(n.Node, slices.Concat(namesOf(r.runs[i:i+1]), nodes, namesOf(on)))
	}
	target := cmp.Or(run.Target.Node, run.Target.MachineKey())
	switch {
	case want == wire.WantAny:
		return wire.Named{Cluster: run.Target.Cluster, Run: run.ID}, nil
	case !run.Open(): // its Node may be another host by now
		return n, &reason.Refusal{Reason: reason.NoRun, Message: fmt.Sprintf("run %s on %s has ended: %s; to act on %[2]s, give its name", run.ID, target, run.Step)}
	case want == wire.WantNode && run.Target.Node == "":
		return n, noNode(target)
	}
	return wire.Named{Cluster: run.Target.Cluster, Node: run.Target.Node, Machine: run.Target.WithoutNode()}, nil
}

// node finds the Node of a Machine: that of the open run on it, which is proven, or the one that is seen.
func (r resolver) node(n wire.Named) (wire.Named, error) {
	found := r.those(func(run *remediate.Run) bool { return run.Open() && run.Target.MachineKey() == n.Machine })
	means, others := wire.Named{Cluster: n.Cluster}, r.elsewhere(n.Machine, found)
	switch len(found) + len(others) {
	case 0:
		node, err := r.nodeOf(n.Machine)
		if err != nil {
			return n, err
		}
		means.Node = node
	case 1:
		means.Cluster, means.Node = found[0].Target.Cluster, found[0].Target.Node
	default:
		return n, ambiguous(n.Machine, slices.Concat(namesOf(found), others))
	}
	if means.Node == "" {
		return n, noNode(n.Machine)
	}
	return means, nil
}

func noNode(machine string) error {
	return &reason.Refusal{Reason: reason.NoSuchNode, Message: "fenced knows no Node of the Machine " + machine}
}

// namesOf are runs as candidates for a name.
func namesOf(runs []remediate.Run) (list []string) {
	for i := range runs {
		r := &runs[i]
		list = append(list, fmt.Sprintf("run %s on %s in %s", r.ID, cmp.Or(r.Target.Node, r.Target.MachineKey()), r.Target.Cluster))
	}
	return list
}

// maxCandidates bounds how many meanings of a name are listed.
const maxCandidates = 5

func ambiguous(name string, candidates []string) error {
	slices.Sort(candidates)
	candidates = slices.Compact(candidates)
	more := ""
	if n := len(candidates) - maxCandidates; n > 0 {
		candidates, more = candidates[:maxCandidates], fmt.Sprintf(" and %d more", n)
	}
	return &reason.Refusal{Reason: reason.AmbiguousName, Message: fmt.Sprintf("%s means more than one thing: %s%s", name, strings.Join(candidates, "; "), more)}
}

// openOn finds the open run on the Node or the Machine that an order is about; nil if there is none, or
// if several clusters have one.
func (c control) openOn(o wire.Order) (found *remediate.Run) {
	runs := c.engine.Runs(o.Cluster)
	for i := range runs {
		if r := &runs[i]; r.Open() && cluster.IsOn(r, o.Of()) {
			if found != nil {
				return nil
			}
			found = r
		}
	}
	return found
}

// refusal is apiError, but where an open run is why, it says where that stands: the run has deleted the Node, or no other one
// may begin beside it. It names the last run of a Node that is gone.
func (c control) refusal(o wire.Order, err error) error {
	absent := isAbsent(err)
	if !absent && !isReason(err, reason.UnderRemediation) {
		return apiError(o, err)
	}
	if r := c.openOn(o); r != nil {
		message, next := standing(r)
		return api.Conflict(string(reason.UnderRemediation), message, next)
	}
	if err = apiError(o, err); !absent {
		return err
	}
	known := slices.ContainsFunc(c.engine.Runs(o.Cluster), func(r remediate.Run) bool { return cluster.IsOn(&r, o.Of()) })
	if e, ok := errors.AsType[*api.Error](err); ok && known {
		e.Hint = o.Command("timeline") + " shows its last run; " + e.Hint
	}
	return err
}

// isAbsent says whether an order is refused because its Node or its Machine is not there.
func isAbsent(err error) bool {
	return isReason(err, reason.NoSuchNode) || isReason(err, reason.NoSuchMachine)
}

// isReason says whether an order is refused for that reason.
func isReason(err error, code reason.Code) bool {
	r, ok := errors.AsType[*reason.Refusal](err)
	return ok && r.Reason == code
}

// standing says where an open run stands with its target, and which command brings the host back.
func standing(r *remediate.Run) (message, next string) {
	o := wire.Order{Cluster: r.Target.Cluster, Node: r.Target.Node, Machine: r.Target.WithoutNode()}
	isolated := !r.Isolated.IsZero()
	switch {
	case isolated && r.Isolation == remediate.IsolateDelete && r.NewNodeUID == "":
		message = o.Of() + " was deleted by run " + r.ID
	case isolated:
		message = o.Of() + " was isolated by run " + r.ID
	default:
		message = "run " + r.ID + " is open on " + o.Of()
	}
	since := r.StepStarted.UTC().Format(time.RFC3339)
	if n := len(r.Steps); n > 0 && r.Steps[n-1].Step == r.Step { // StepStarted moves when a step begins its time anew
		since = r.Steps[n-1].Started.UTC().Format(time.RFC3339)
	}
	if r.Step.Idle() {
		message += fmt.Sprintf(", %s: %s since %s", r.Step, r.Reason, since)
		next = withReason(o.Command("unfence"))
	} else {
		message += fmt.Sprintf(", step %d/6 %s since %s", wire.StepNumber(string(r.Step)), r.Step, since)
		next = o.Command("timeline")
	}
	if r.Note != "" {
		message += ": " + r.Note
	}
	return message, next
}
