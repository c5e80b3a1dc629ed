package cluster

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
)

// runs holds the runs of one cluster, including ended ones, and what other remediators were asked.
// The lock of the Model protects it. A run in it never changes: another one takes its place. So a
// pointer to it may be kept, and thousands of runs are passed over without a copy of each.
type runs struct {
	byID map[string]*remediate.Run
	// repairs are what other remediators were asked, by ID.
	repairs map[string]Repair
	// resuming are the Waiting runs for which a retry is being ordered. Those in reserved have
	// passed the limits, count as in flight, and take their slot themselves: also repairs.
	resuming, reserved map[string]bool
	// seenEnd are those that have ended since this instance began to lead.
	seenEnd map[string]bool
}

func newRuns() runs {
	return runs{byID: map[string]*remediate.Run{}, repairs: map[string]Repair{}, resuming: map[string]bool{}, reserved: map[string]bool{}, seenEnd: map[string]bool{}}
}

// open lists the open runs by ID.
func (rs runs) open() []remediate.Run {
	var open []remediate.Run
	for _, r := range rs.byID {
		if r.Open() {
			open = append(open, *r)
		}
	}
	slices.SortFunc(open, func(a, b remediate.Run) int { return strings.Compare(a.ID, b.ID) })
	return open
}

func (rs runs) anyOpen() bool {
	for _, r := range rs.byID {
		if r.Open() {
			return true
		}
	}
	return false
}

// openOn returns the open run on a Node, or on the Machine "namespace/name".
func (rs runs) openOn(node string) (remediate.Run, bool) {
	for _, r := range rs.byID {
		if r.Open() && IsOn(r, node) {
			return *r, true
		}
	}
	return remediate.Run{}, false
}

// IsUnsaved says whether a run is only reserved: its start may fail yet.
func IsUnsaved(r remediate.Run) bool { return r.Version == 0 }

// openOnHost says whether a run is open on the host of a target.
func (rs runs) openOnHost(t remediate.Target) bool {
	for _, r := range rs.byID {
		if r.Open() && sameHost(r.Target, t) {
			return true
		}
	}
	return false
}

// openTargets lists all targets on which something is open, for the ledger: no check asks for anything
// else there. The ledger never gets only a part of them: a budget would forget the others. // I11, I22
func (rs runs) openTargets() []policy.OpenRun {
	var list []policy.OpenRun
	for _, r := range rs.byID {
		if o := openTarget(r); o.ID != "" {
			list = append(list, o)
		}
	}
	slices.SortFunc(list, func(a, b policy.OpenRun) int { return strings.Compare(a.ID, b.ID) })
	for _, id := range slices.Sorted(maps.Keys(rs.repairs)) {
		if p := rs.repairs[id]; p.By != "" {
			list = append(list, p.openTarget())
		}
	}
	return list
}

// openTarget is what the ledger knows about a run; zero if the run has ended, or is nil.
func openTarget(r *remediate.Run) policy.OpenRun {
	if r == nil || !r.Open() {
		return policy.OpenRun{}
	}
	node := r.Target.Node
	if r.Strategy == remediate.DeleteMachine && !r.ControlPlane {
		node = nodeThatWas(r.Target, r.NodeLabels)
	}
	return policy.OpenRun{ID: r.ID, Node: node, Machine: r.Target.MachineKey(), MachineAPI: r.Target.MachineAPI, ControlPlane: r.ControlPlane,
		TakesNoTurn: r.TakesNoTurn, NodeLabels: r.NodeLabels, NodeNames: policy.NodeNames(r.NodeNames)}
}

// nodeThatWas is the Node of a target whose Machine alone is acted on; "" if only the Machine says that there was one. It
// took part in no count before the run, and whoever writes Machines could make up as many as close the limits of others. // I11
func nodeThatWas(t remediate.Target, labels map[string]string) string {
	if t.Machine != "" && t.NodeUID == "" && labels == nil {
		return ""
	}
	return t.Node
}

// ended lists the runs on the host of a target that have ended, the newest first.
func (rs runs) ended(t remediate.Target) (list []remediate.Run) {
	for _, r := range rs.byID {
		if !r.Open() && sameHost(r.Target, t) {
			list = append(list, *r)
		}
	}
	slices.SortFunc(list, func(a, b remediate.Run) int { return b.Ended.Compare(a.Ended) })
	return list
}

// sameHost says whether two targets share a Machine, a Node or a host: also one that has registered
// under another name. // I6, I22
func sameHost(a, b remediate.Target) bool {
	return a.Overlaps(b) || bmc.UUIDsMatch(a.SystemUUID, b.SystemUUID)
}

// knownNode returns the labels of a target's Node, and how it names its Machines, for the record of a new run. If there
// is no Node, they are those in the newest record of the same Node or Machine; nil: nobody knows them. // I11
func (rs runs) knownNode(t remediate.Target, n *policy.Node) (map[string]string, remediate.NodeNames) {
	if n != nil {
		return remediate.KnownLabels(n.Labels), remediate.KnownNames(remediate.NodeNames(n.Names()))
	}
	var newest time.Time
	var labels map[string]string
	var names remediate.NodeNames
	take := func(of remediate.Target, l map[string]string, n remediate.NodeNames, at time.Time) {
		sameNode := t.Node != "" && of.Node == t.Node
		sameMachine := t.Machine != "" && of.MachineKey() == t.MachineKey() && of.MachineUID == t.MachineUID
		if l != nil && (sameNode || sameMachine) && (labels == nil || at.After(newest)) {
			labels, names, newest = l, n, at
		}
	}
	for _, r := range rs.byID {
		take(r.Target, r.NodeLabels, r.NodeNames, r.Started)
	}
	for _, p := range rs.repairs {
		if len(p.Tries) > 0 {
			take(p.Target, p.NodeLabels, p.NodeNames, p.Tries[len(p.Tries)-1].Started)
		}
	}
	return labels, names
}
