package escalate

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/fenced/fenced/internal/cluster"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/request"
)

// Records are those of one cluster. The Model of the cluster has what the limits count of each: it is changed under
// the lock of the records, which is always taken first.
type Records struct {
	name  string // of the cluster
	model *cluster.Model

	mu   sync.Mutex
	byID map[string]Record
}

// NewRecords returns no records.
func NewRecords(m *cluster.Model) *Records {
	return &Records{name: m.Options.Name, model: m, byID: map[string]Record{}}
}

// Load replaces the records by those in the store. begins: a leadership begins with them. Otherwise nothing is changed
// in a leadership, because the records here are newer. It returns whether that changes anything. // I19
func (rs *Records) Load(all []Record, begins bool) (changed bool) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return (begins || !rs.model.Runs.Leads()) && rs.set(all)
}

// Reread replaces the records by those in the store in a leadership, after a write of which it is not
// known whether it was made.
func (rs *Records) Reread(all []Record) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rs.model.Runs.Leads() {
		rs.set(all)
	}
}

// set replaces the records, and returns whether they differ from those before. rs.mu is held.
func (rs *Records) set(all []Record) (changed bool) {
	mine, repairs := map[string]Record{}, []cluster.Repair{}
	for _, r := range all {
		if r.Target.Cluster == rs.name {
			mine[r.ID] = r
			repairs = append(repairs, r.repair())
		}
	}
	if reflect.DeepEqual(mine, rs.byID) {
		return false
	}
	rs.byID = mine
	rs.model.Runs.SetRepairs(repairs)
	return true
}

// Put adds or replaces a record.
func (rs *Records) Put(r Record) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.byID[r.ID] = r
	rs.model.Runs.PutRepair(r.repair())
}

// Drop removes a record.
func (rs *Records) Drop(id string) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	delete(rs.byID, id)
	rs.model.Runs.DropRepair(id)
}

// Get returns the record as it is now.
func (rs *Records) Get(id string) (Record, bool) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	r, known := rs.byID[id]
	return r, known
}

// All lists the records by ID.
func (rs *Records) All() (list []Record) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(rs.byID)) {
		list = append(list, rs.byID[id])
	}
	return list
}

// Reserve adds a new object to the record of a target. o.Mark lacks the ID of the record. From then on nobody
// else acts on the target, and the record takes its slot itself until Reserved. An error is a *reason.Refusal. // I22
func (rs *Records) Reserve(a cluster.Candidate, o request.Object, slots int, releasedAt, now time.Time) (r Record, err error) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	r = rs.recordOf(a, now)
	if r.Trim(now); len(r.Objects) >= MaxObjects {
		return r, &reason.Refusal{Reason: reason.FencesPerDay, Message: fmt.Sprintf("%d objects were made for it since %s; give that up with fencectl abort %s --as-is --reason WHY",
			len(r.Objects), r.Started.Format(time.RFC3339), r.ID)}
	}
	o.Mark, o.Made = o.Mark+r.ID, now.UTC()
	r.Objects, r.Idle, r.Labels, r.Names = append(r.Objects, o), time.Time{}, a.Draft.NodeLabels, a.Draft.NodeNames
	if err := rs.model.ReserveRepair(a, r.repair(), slots, releasedAt, now); err != nil {
		return r, err
	}
	rs.byID[r.ID] = r
	return r, nil
}

// recordOf is the record of a target: the one whose escalation goes on, else a new one.
func (rs *Records) recordOf(a cluster.Candidate, now time.Time) Record {
	mark := a.Check.Mark()
	for _, r := range rs.byID {
		if r.Ended.IsZero() && r.Check == mark && r.Target.Overlaps(a.Draft.Target) {
			r.Target, r.ControlPlane, r.TakesNoTurn = a.Draft.Target, a.Draft.ControlPlane, a.Draft.TakesNoTurn
			return r
		}
	}
	return Record{ID: cluster.NewRunID(now), Check: mark, Target: a.Draft.Target, ControlPlane: a.Draft.ControlPlane, TakesNoTurn: a.Draft.TakesNoTurn,
		Started: now.UTC()}
}

// Reserved ends the time after Reserve in which a record takes its slot itself. // I11
func (rs *Records) Reserved(id string) { rs.model.Runs.EndReservation(id) }

// Target returns what is known now about the target of a record. ok is false before the view is complete.
func (rs *Records) Target(r *Record, now time.Time) (t policy.AskedTarget, ok bool) {
	return rs.model.RepairTarget(policy.Asked{
		Check: r.Check, Node: r.Target.Node, MachineAPI: r.Target.MachineAPI, Namespace: r.Target.Namespace, Machine: r.Target.Machine, MachineUID: r.Target.MachineUID,
	}, now)
}
