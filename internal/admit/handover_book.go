package admit

import (
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/fenced/fenced/internal/escalate"
	"github.com/fenced/fenced/internal/policy"
)

// handoverBook is the part of a Book about what other remediators were asked.
type handoverBook struct{ *Book }

// begin replaces the records by those in the store when a leadership begins. From then on the Book
// is newer than the store. It returns whether that changes anything. // I19
func (b handoverBook) begin(all []escalate.Record) (changed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.leads = true
	return b.set(all)
}

// update replaces the records by those in the store, outside of a leadership. It returns whether that
// changes anything.
func (b handoverBook) update(all []escalate.Record) (changed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.leads && b.set(all)
}

// reread replaces the records by those in the store in a leadership, after a write of which it is not
// known whether it was made.
func (b handoverBook) reread(all []escalate.Record) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.leads {
		b.set(all)
	}
}

// set replaces the records, and returns whether they differ from those before. b.mu is held.
func (b handoverBook) set(all []escalate.Record) (changed bool) {
	mine := map[string]escalate.Record{}
	for _, r := range all {
		if r.Target.Cluster == b.opt.Name {
			mine[r.ID] = r
		}
	}
	if reflect.DeepEqual(mine, b.runs.asked) {
		return false
	}
	b.runs.asked, b.runsChanged = mine, true
	return true
}

// put adds or replaces a record, and drop removes one.
func (b handoverBook) put(r escalate.Record) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.runs.asked[r.ID], b.runsChanged = r, true
}

func (b handoverBook) drop(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.runs.asked, id)
	b.runsChanged = true
}

// get returns the record as it is now.
func (b handoverBook) get(id string) (escalate.Record, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r, known := b.runs.asked[id]
	return r, known
}

// records lists the records by ID.
func (b handoverBook) records() (list []escalate.Record) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(b.runs.asked)) {
		list = append(list, b.runs.asked[id])
	}
	return list
}

// target says what is known now about the target of a record. ok is false before the view is
// complete.
func (b handoverBook) target(r *escalate.Record, now time.Time) (t policy.AskedTarget, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.complete {
		return t, false
	}
	b.applyOpenRuns(now)
	return b.ledger.AskedTarget(policy.Asked{
		Check: r.Check, Node: r.Target.Node, MachineAPI: r.Target.MachineAPI, Namespace: r.Target.Namespace, Machine: r.Target.Machine, MachineUID: r.Target.MachineUID,
	}, now), true
}

// makers lists the checks by which fenced asks other remediators.
func (b handoverBook) makers() (list []policy.Check) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.ledger.Counters() {
		if check := b.ledger.Check(r.ID()); check != nil && check.AsksOthers() && r.State != policy.StatePaused && r.State != policy.StateInvalid {
			list = append(list, *check)
		}
	}
	return list
}

// setDisabled tells the ledger why nobody carries out the requests of checks.
func (b handoverBook) setDisabled(why map[string]string, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ledger.SetDisabled(now, why)
}
