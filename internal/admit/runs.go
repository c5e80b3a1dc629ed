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
	byID   map[string]*remediate.Run
	labels map[string]map[string]string // the Node's labels when an open run started, by run ID
	// resuming are the Waiting runs for which a retry is being ordered. Those in reserved have
	// passed the limits, count as in flight, and take their slot themselves: also records of other
	// remediators.
	resuming, reserved map[string]bool
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
	return runs{byID: map[string]*remediate.Run{}, labels: map[string]map[string]string{}, resuming: map[string]bool{}, reserved: map[string]bool{}}
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
		if o := openTarget(r); o != (policy.OpenRun{}) {
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
	o := policy.OpenRun{ID: r.ID, Node: r.Target.Node, ControlPlane: r.ControlPlane}
	if r.Target.Machine != "" {
		o.Machine = r.Target.Namespace + "/" + r.Target.Machine
	}
	return o
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
// cycle the other. Power cycles that were aborted before they acted on the host do not
// count. // I11
func (rs runs) nextStart(bucket guard.Bucket, deletion bool, now time.Time) (at time.Time, lastHour int) {
	if bucket.PerHour <= 0 {
		return time.Time{}, 0
	}
	var starts []time.Time
	for _, r := range rs.each() {
		if deletesOnly(r) != deletion || r.Step == remediate.Aborted && !deletion && !r.TouchedHost() {
			continue
		}
		starts = append(starts, r.Started)
		if now.Sub(r.Started) < time.Hour {
			lastHour++
		}
	}
	return bucket.Next(starts, now), lastHour
}

// deletesOnly says whether a run deletes its Machine and switches no power.
func deletesOnly(r *remediate.Run) bool { return r.Strategy == remediate.DeleteMachine }

// inFlight says whether a run counts against the limits of power cycles in flight: from its
// start until its Node has registered, or it is Waiting or Held or has ended. A Waiting run
// counts again from the moment when it was admitted. // I11
func (rs runs) inFlight(r *remediate.Run) bool {
	admitted := rs.reserved[r.ID] || r.Step == remediate.Waiting && r.Retry != nil
	return r.Open() && !deletesOnly(r) && (!r.Step.Idle() || admitted) && r.Step != remediate.RestoreNode
}

// countsInZone says whether a run counts against the limit of its zone: until its host is
// known to be on.
func (rs runs) countsInZone(r *remediate.Run) bool {
	return rs.inFlight(r) && r.Step != remediate.AwaitNode
}

// mayBeInZone says whether a run's host may be in a zone. A Node that a kubelet or a GitOps
// tool created again may lack the zone label until step 5, and a later attempt takes such a
// Node for its target. Then the labels of the Node at the start of the run count. If this
// daemon does not know them, the host counts in every zone. // I11
func (rs runs) mayBeInZone(l *policy.Ledger, zone, key string, r *remediate.Run) bool {
	if n := l.Node(r.Target.Node); n != nil && (n.Labels[key] != "" || r.Attempt <= 1 && n.UID == r.Target.NodeUID) {
		return n.Labels[key] == zone
	}
	labels, known := rs.labels[r.ID]
	return !known || labels[key] == zone
}
