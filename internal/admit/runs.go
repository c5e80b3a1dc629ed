package admit

import (
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
)

// runs holds the runs of one cluster, including ended ones. The lock of the Book protects it. A run
// in it never changes: another one takes its place. So a pointer to it may be kept, and thousands of
// runs are passed over without a copy of each.
type runs struct {
	byID map[string]*remediate.Run
	// resuming are the Waiting runs for which a retry is being ordered. Those in reserved have
	// passed the limits, count as in flight, and take their slot themselves: also records of other
	// remediators.
	resuming, reserved map[string]bool
	// seenEnd are those that have ended since this instance began to lead.
	seenEnd map[string]bool
	// others are what other remediators were asked, as if it were runs; see allRuns. The Book itself has
	// none here.
	others map[string]*remediate.Run
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

func newRuns() runs {
	return runs{byID: map[string]*remediate.Run{}, resuming: map[string]bool{}, reserved: map[string]bool{}, seenEnd: map[string]bool{}}
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
		if r.Open() && isOn(r, node) {
			return *r, true
		}
	}
	return remediate.Run{}, false
}

// isUnsaved says whether a run is only reserved: its start may fail yet.
func isUnsaved(r remediate.Run) bool { return r.Version == 0 }

// openOnHost says whether a run is open on the host of a target.
func (rs runs) openOnHost(t remediate.Target) bool {
	for _, r := range rs.byID {
		if r.Open() && r.Target.Overlaps(t) {
			return true
		}
	}
	return false
}

// openTargets lists the open runs for the ledger.
func (rs runs) openTargets() []policy.OpenRun {
	var list []policy.OpenRun
	for _, r := range rs.byID {
		if o := openTarget(r); o.ID != "" {
			list = append(list, o)
		}
	}
	slices.SortFunc(list, func(a, b policy.OpenRun) int { return strings.Compare(a.ID, b.ID) })
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
		if !r.Open() && r.Target.Overlaps(t) {
			list = append(list, *r)
		}
	}
	slices.SortFunc(list, func(a, b remediate.Run) int { return b.Ended.Compare(a.Ended) })
	return list
}

// nextStart is when the bucket has a token for another run of a kind, and how many of that
// kind the cluster started in the last hour. A run that deletes a Machine is one kind, a power
// cycle the other. A run that begins again counts at each start. Power cycles that were aborted
// before they acted on the host do not count. // I11
func (rs runs) nextStart(bucket guard.Bucket, deletion bool, now time.Time) (at time.Time, lastHour int) {
	if bucket.PerHour <= 0 {
		return time.Time{}, 0
	}
	var starts []time.Time
	for _, r := range rs.each() {
		if deletesOnly(r) != deletion || r.Step == remediate.Aborted && !deletion && !r.TouchedHost() {
			continue
		}
		for _, at := range rs.startsOf(r, now) {
			starts = append(starts, at)
			if now.Sub(at) < time.Hour {
				lastHour++
			}
		}
	}
	return bucket.Next(starts, now), lastHour
}

// startsOf lists when a run began, and began again. A Waiting run that was admitted begins now: of
// two that are due, the second must know of the first. // I11
func (rs runs) startsOf(r *remediate.Run, now time.Time) (list []time.Time) {
	for _, s := range r.Starts() {
		list = append(list, s.At)
	}
	if rs.isAdmitted(r) {
		list = append(list, now)
	}
	return list
}

// isAdmitted says whether a Waiting run has passed the limits, and is about to begin again.
func (rs runs) isAdmitted(r *remediate.Run) bool {
	return r.Step == remediate.Waiting && (rs.reserved[r.ID] || r.Retry != nil)
}

// deletesOnly says whether a run deletes its Machine and switches no power.
func deletesOnly(r *remediate.Run) bool { return r.Strategy == remediate.DeleteMachine }

// inFlight says whether a run counts against the limits of power cycles in flight: from its
// start until its Node has registered, or it is Waiting or Held or has ended. A Waiting run
// counts again from the moment when it was admitted. // I11
func (rs runs) inFlight(r *remediate.Run) bool {
	return r.Open() && !deletesOnly(r) && (!r.Step.Idle() || rs.isAdmitted(r)) && r.Step != remediate.RestoreNode
}

// countsInZone says whether a run counts against the limit of its zone: until its host is
// known to be on.
func (rs runs) countsInZone(r *remediate.Run) bool {
	return rs.inFlight(r) && r.Step != remediate.AwaitNode
}
