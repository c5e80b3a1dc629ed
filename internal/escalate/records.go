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
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/request"
	"github.com/fenced/fenced/internal/times"
)

// Record is what fenced asked other remediators to do for one target of one check. It is stored
// before the first object is made, and stays until no object is left and the target has recovered,
// whatever becomes of the check. While it is blocking, nobody else acts on the target. // I22
type Record struct {
	ID      string `json:"id"`
	Version uint64 `json:"-"`
	// Key is that of the record in the store; empty before it was stored.
	Key string `json:"-"`
	// Unreadable says why the stored record cannot be read; "" if it was. Then nothing but the ID and
	// the target is known.
	Unreadable string `json:"-"`
	// Check is the mark of the check.
	Check        string           `json:"check"`
	Target       remediate.Target `json:"target"`
	ControlPlane bool             `json:"controlPlane,omitempty"`
	// TakesNoTurn: no other control-plane host waits for it; see remediate.Run. // I12
	TakesNoTurn bool `json:"takesNoTurn,omitempty"`
	// Objects are those that were made, the newest last. Only the newest may still exist.
	Objects []request.Object `json:"objects"`
	Started time.Time        `json:"started"`
	// Labels are those of the Node when the newest object was made, for the limits that cover it; see
	// remediate.KnownLabels. // I11
	Labels map[string]string `json:"labels,omitzero"`
	// Names is how the Node named its Machines then; see remediate.KnownNames. // I11
	Names remediate.NodeNames `json:"names,omitzero"`
	// Idle is since when the record has no place in the limits of what is in flight: nobody
	// carries it out, its remediator does not stop in time, or it has had a place for as long as a run
	// may.
	Idle time.Time `json:"idle,omitzero"`
	// Ended is when no object was left, and nothing more was to be asked. The record stays for
	// the limits of a day.
	Ended time.Time `json:"ended,omitzero"`
	// Recovered: the target was well when the record ended.
	Recovered bool `json:"recovered,omitempty"`
	// GivenUp: a person ended the record, whatever becomes of its object.
	GivenUp *remediate.Order `json:"givenUp,omitempty"`
}

// Newest is the newest object; the zero value if there is none.
func (r *Record) Newest() request.Object {
	if len(r.Objects) == 0 {
		return request.Object{}
	}
	return r.Objects[len(r.Objects)-1]
}

// Blocking says whether an object may exist, so that nobody else may act on the target.
func (r *Record) Blocking() bool {
	return r.Unreadable != "" || len(r.Objects) > 0 && r.Newest().Gone.IsZero() && r.GivenUp == nil
}

// Asks names what may be at work on the target of a blocking record.
func (r *Record) Asks() string {
	if r.Unreadable != "" {
		return "what record " + r.ID + " asks for, which cannot be read"
	}
	return r.Newest().String() + " of record " + r.ID
}

// MaxObjects is how many objects one record holds.
const MaxObjects = 50

// Trim drops the objects that no rule needs any more: they went a day ago, and their template was
// used again since.
func (r *Record) Trim(now time.Time) {
	var kept []request.Object
	for i, o := range r.Objects {
		again := slices.ContainsFunc(r.Objects[i+1:], func(p request.Object) bool {
			return p.APIVersion == o.APIVersion && p.Kind == o.Kind && p.Template == o.Template
		})
		if !again || o.Gone.IsZero() || now.Sub(o.Gone) < 24*time.Hour {
			kept = append(kept, o)
		}
	}
	r.Objects = kept
}

// repair is what the limits count of a record, and what is blocked by it. Of a record that cannot be read nobody knows
// whether its target is of the control plane. // I12
func (r *Record) repair() cluster.Repair {
	p := cluster.Repair{ID: r.ID, Target: r.Target, Stored: r.Version > 0, ControlPlane: r.ControlPlane || r.Unreadable != "", TakesNoTurn: r.TakesNoTurn,
		NodeLabels: r.Labels, NodeNames: r.Names, InFlight: r.Blocking() && r.Idle.IsZero() && r.Unreadable == ""}
	if r.Ended.IsZero() {
		p.Check = r.Check
	}
	if r.Blocking() {
		p.By = r.Asks()
	}
	for i, o := range r.Objects {
		t := cluster.Try{Ended: o.Gone, Gone: !o.Gone.IsZero(),
			Attempt: policy.Attempt{APIVersion: o.APIVersion, Kind: o.Kind, TemplateName: o.Template, Started: o.Made, TimedOut: o.TimedOut}}
		switch newest := i == len(r.Objects)-1; {
		case newest && r.Blocking():
			t.Open = true
		case newest:
			t.Ended, t.Done = times.Later(o.Gone, r.Ended), r.Recovered && o.TimedOut.IsZero()
		}
		p.Tries = append(p.Tries, t)
	}
	return p
}

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
