package cluster

import (
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/fenced/fenced/internal/escalate"
	"github.com/fenced/fenced/internal/policy"
)

// Records is the part of a Model about what other remediators were asked.
type Records struct{ *Model }

// Begin replaces the records by those in the store when a leadership begins. From then on the Model
// is newer than the store. It returns whether that changes anything. // I19
func (c Records) Begin(all []escalate.Record) (changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leads = true
	return c.set(all)
}

// Update replaces the records by those in the store, outside of a leadership. It returns whether that
// changes anything.
func (c Records) Update(all []escalate.Record) (changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.leads && c.set(all)
}

// Reread replaces the records by those in the store in a leadership, after a write of which it is not
// known whether it was made.
func (c Records) Reread(all []escalate.Record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leads {
		c.set(all)
	}
}

// set replaces the records, and returns whether they differ from those before. b.mu is held.
func (c Records) set(all []escalate.Record) (changed bool) {
	mine := map[string]escalate.Record{}
	for _, r := range all {
		if r.Target.Cluster == c.Options.Name {
			mine[r.ID] = r
		}
	}
	if reflect.DeepEqual(mine, c.runs.asked) {
		return false
	}
	c.runs.asked, c.runsChanged = mine, true
	return true
}

// Put adds or replaces a record, and drop removes one.
func (c Records) Put(r escalate.Record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.runs.asked[r.ID], c.runsChanged = r, true
}

func (c Records) Drop(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.runs.asked, id)
	c.runsChanged = true
}

// Get returns the record as it is now.
func (c Records) Get(id string) (escalate.Record, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r, known := c.runs.asked[id]
	return r, known
}

// Records lists the records by ID.
func (c Records) Records() (list []escalate.Record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(c.runs.asked)) {
		list = append(list, c.runs.asked[id])
	}
	return list
}

// Target says what is known now about the target of a record. ok is false before the view is
// complete.
func (c Records) Target(r *escalate.Record, now time.Time) (t policy.AskedTarget, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.complete {
		return t, false
	}
	c.applyOpenRuns(now)
	return c.ledger.AskedTarget(policy.Asked{
		Check: r.Check, Node: r.Target.Node, MachineAPI: r.Target.MachineAPI, Namespace: r.Target.Namespace, Machine: r.Target.Machine, MachineUID: r.Target.MachineUID,
	}, now), true
}

// Makers lists the checks by which fenced asks other remediators.
func (c Records) Makers() (list []policy.Check) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.ledger.Counters() {
		if check := c.ledger.Check(r.ID()); check != nil && check.AsksOthers() && r.State != policy.StatePaused && r.State != policy.StateInvalid {
			list = append(list, *check)
		}
	}
	return list
}

// SetDisabled tells the ledger why nobody carries out the requests of checks.
func (c Records) SetDisabled(why map[string]string, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ledger.SetDisabled(now, why)
}
