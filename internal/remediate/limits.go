package remediate

import (
	"maps"
	"slices"
	"time"

	"github.com/fenced/fenced/internal/times"
)

// What the limits of package admit count of a run is derived from its record alone, so that a
// restart, or another instance, counts the same. // I11

// Start is one beginning of a run: of step 1, or of step 6 where the run only deletes a Machine.
type Start struct {
	At time.Time
	// Acted: the host may have been switched since, so the start counts as a run of the day. // I15
	Acted bool
}

// Starts lists when the run began, and when it began again at step 1 after a pause, by itself or
// by the order of a person, the oldest first. The next attempt of a run that did not pause is no
// start. The journal shows them; Tries has those that the journal does not hold any more. No start is
// later than Started: a clock that was ahead has written it, and alignClock corrects Started alone.
func (r Run) Starts() []Start {
	at := slices.Clone(r.Tries)
	for i, v := range r.Steps {
		if i == 0 || v.Step == PowerOff && r.Steps[i-1].Step.Idle() {
			at = append(at, v.Started)
		}
	}
	if len(r.Steps) == 0 {
		at = append(at, r.Started)
	}
	slices.SortFunc(at, time.Time.Compare)
	at = slices.CompactFunc(at, time.Time.Equal)
	list := make([]Start, len(at))
	for i := range at {
		tried := slices.ContainsFunc(r.Tries, at[i].Equal)
		list[i] = Start{At: times.Earlier(at[i], r.Started), Acted: tried || i == len(at)-1 && r.TouchedHost()}
	}
	return list
}

// maxLabels bounds the labels of a Node in a record, in bytes: a record must fit into the store.
const maxLabels = 16 << 10

// KnownLabels are the labels of a Node for a record. Nil says that they are not known, also where
// they are too large: then the Node counts in every zone, and, once it is gone, for every selector.
// A Node that exists and has no labels has an empty map. // I11
func KnownLabels(labels map[string]string) map[string]string {
	size := 0
	for name, value := range labels {
		size += len(name) + len(value)
	}
	switch {
	case size > maxLabels:
		return nil
	case labels == nil:
		return map[string]string{}
	}
	return maps.Clone(labels)
}

// NodeNames is how a Node named its Machines and its BareMetalHost; empty: it named none, or nobody knows it.
type NodeNames struct {
	OpenShiftMachine string `json:"openShiftMachine,omitempty"`
	ClusterMachine   string `json:"clusterMachine,omitempty"`
	ProviderID       string `json:"providerID,omitempty"`
}

// maxName bounds each of the names in a record, in bytes. What exists has a shorter one.
const maxName = 1 << 10

// KnownNames are the names for a record, without those that are too long. // I11
func KnownNames(n NodeNames) NodeNames {
	for _, name := range []*string{&n.OpenShiftMachine, &n.ClusterMachine, &n.ProviderID} {
		if len(*name) > maxName {
			*name = ""
		}
	}
	return n
}

// leavesNodeGone says whether a run that ends so may leave its Node deleted. The next run of the
// same Machine then has its labels and names from the record.
func leavesNodeGone(r Run, end Step) bool {
	return end != Done && r.Isolation == IsolateDelete && (r.Attempt > 1 || !r.Isolated.IsZero())
}
