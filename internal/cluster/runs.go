package cluster

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/escalate"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/times"
)

// runs holds the runs of one cluster, including ended ones, and what other remediators were asked.
// The lock of the Model protects it. A run in it never changes: another one takes its place. So a
// pointer to it may be kept, and thousands of runs are passed over without a copy of each.
type runs struct {
	byID map[string]*remediate.Run
	// asked are the records of what other remediators were asked, by ID.
	asked map[string]escalate.Record
	// resuming are the Waiting runs for which a retry is being ordered. Those in reserved have
	// passed the limits, count as in flight, and take their slot themselves: also records of other
	// remediators.
	resuming, reserved map[string]bool
	// seenEnd are those that have ended since this instance began to lead.
	seenEnd map[string]bool
	// others are the records in asked as if they were runs. Only what the method all returns has them.
	others map[string]*remediate.Run
}

func newRuns() runs {
	return runs{byID: map[string]*remediate.Run{}, asked: map[string]escalate.Record{}, resuming: map[string]bool{}, reserved: map[string]bool{}, seenEnd: map[string]bool{}}
}

// each yields the runs, and those of others.
func (rs runs) each() iter.Seq2[string, *remediate.Run] {
	return func(yield func(string, *remediate.Run) bool) {
		for _, part := range []map[string]*remediate.Run{rs.byID, rs.others} {
			for id, r := range part {
				if !yield(id, r) {
					return
				}
			}
		}
	}
}

// find returns a run, or one of others.
func (rs runs) find(id string) (*remediate.Run, bool) {
	if r, known := rs.others[id]; known {
		return r, true
	}
	r, known := rs.byID[id]
	return r, known
}

// all returns the runs, and what other remediators were asked as if it were runs: the limits count
// both. The runs are not copied: that would be thousands for each candidate. // I11, I15
func (rs runs) all() runs {
	if len(rs.asked) == 0 {
		return rs
	}
	rs.others = map[string]*remediate.Run{}
	for id, r := range rs.asked {
		for i := range r.Objects {
			run := asRun(&r, i)
			rs.others[run.ID] = &run
		}
		if r.Unreadable != "" {
			rs.others[id] = &remediate.Run{ID: id, Version: r.Version, Target: r.Target, ControlPlane: r.MayBeControlPlane(), Strategy: remediate.PowerCycle, Step: remediate.Waiting}
		}
	}
	return rs
}

// asRun is an object as if it were a run that acts on the host. Only the newest object of a record may
// still exist; it has the ID of the record. // I15
func asRun(r *escalate.Record, i int) remediate.Run {
	o, newest := r.Objects[i], i == len(r.Objects)-1
	run := remediate.Run{ID: r.ID, Version: r.Version, Target: r.Target, ControlPlane: r.ControlPlane, TakesNoTurn: r.TakesNoTurn, NodeLabels: r.Labels, NodeNames: r.Names,
		Started: o.Made, Strategy: remediate.PowerCycle, Attempt: 1, Intervened: true, Step: remediate.Aborted, Ended: o.Gone}
	switch {
	case !newest:
		run.ID = fmt.Sprintf("%s/%d", r.ID, i)
	case !r.Blocking():
		if run.Ended = times.Later(o.Gone, r.Ended); r.Recovered && o.TimedOut.IsZero() {
			run.Step = remediate.Done
		}
	case r.Idle.IsZero():
		run.Step, run.Ended = remediate.PowerOff, time.Time{}
	default: // it stays open, and has no place in flight
		run.Step, run.Ended = remediate.Waiting, time.Time{}
	}
	return run
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
	return append(list, rs.askedTargets()...)
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
		TakesNoTurn: r.TakesNoTurn, SystemUUID: r.Target.SystemUUID, NodeLabels: r.NodeLabels, NodeNames: policy.NodeNames(r.NodeNames)}
}

// nodeThatWas is the Node of a target whose Machine alone is acted on; "" if only the Machine says that there was one. It
// took part in no count before the run, and whoever writes Machines could make up as many as close the limits of others. // I11
func nodeThatWas(t remediate.Target, labels map[string]string) string {
	if t.Machine != "" && t.NodeUID == "" && labels == nil {
		return ""
	}
	return t.Node
}

// askedTargets lists the targets that other remediators work on.
func (rs runs) askedTargets() (list []policy.OpenRun) {
	for _, id := range slices.Sorted(maps.Keys(rs.asked)) {
		if r := rs.asked[id]; r.Blocking() {
			node := r.Target.Node
			if !r.MayBeControlPlane() {
				node = nodeThatWas(r.Target, r.Labels)
			}
			list = append(list, policy.OpenRun{ID: "of the remediator of " + r.Asks(), Node: node, Machine: r.Target.MachineKey(), MachineAPI: r.Target.MachineAPI,
				ControlPlane: r.MayBeControlPlane(), TakesNoTurn: r.TakesNoTurn, SystemUUID: r.Target.SystemUUID, NodeLabels: r.Labels, NodeNames: policy.NodeNames(r.Names)})
		}
	}
	return list
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

// blocks says why nobody else may act on a target; "" if nobody was asked to repair it. // I22
func (rs runs) blocks(t remediate.Target) string {
	for _, r := range rs.asked {
		if r.Blocking() && sameHost(r.Target, t) {
			return r.Asks() + " may be at work on it; to give that up: fencectl abort " + r.ID + " --as-is --reason WHY"
		}
	}
	return ""
}

// tried lists for the ledger what was tried on each target, by check and by Node and Machine.
func (rs runs) tried() map[string]map[string][]policy.Attempt {
	found := map[string]map[string][]policy.Attempt{}
	for _, r := range rs.asked {
		list := r.Tried()
		if !r.Ended.IsZero() || len(list) == 0 {
			continue
		}
		if found[r.Check] == nil {
			found[r.Check] = map[string][]policy.Attempt{}
		}
		for _, name := range r.Target.Names() {
			found[r.Check][name] = list
		}
	}
	return found
}

// knownNode returns the labels of a target's Node, and how it names its Machines, for the record of a new run. If there
// is no Node, they are those in the newest record of the same Node or Machine; nil: nobody knows them. // I11
func (rs runs) knownNode(t remediate.Target, n *policy.Node) (map[string]string, remediate.NodeNames) {
	if n != nil {
		return remediate.KnownLabels(n.Labels), remediate.KnownNames(remediate.NodeNames(n.Names()))
	}
	newest := &remediate.Run{}
	for _, r := range rs.all().each() {
		sameNode := t.Node != "" && r.Target.Node == t.Node
		sameMachine := t.Machine != "" && r.Target.MachineKey() == t.MachineKey() && r.Target.MachineUID == t.MachineUID
		if r.NodeLabels != nil && (sameNode || sameMachine) && (newest.NodeLabels == nil || r.Started.After(newest.Started)) {
			newest = r
		}
	}
	return newest.NodeLabels, newest.NodeNames
}
