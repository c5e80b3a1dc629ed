package admit

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/escalate"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
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
	if reflect.DeepEqual(mine, b.asked) {
		return false
	}
	b.asked, b.runsChanged = mine, true
	return true
}

// put adds or replaces a record, and drop removes one.
func (b handoverBook) put(r escalate.Record) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked[r.ID], b.runsChanged = r, true
}

func (b handoverBook) drop(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.asked, id)
	b.runsChanged = true
}

// get returns the record as it is now.
func (b handoverBook) get(id string) (escalate.Record, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r, known := b.asked[id]
	return r, known
}

// records lists the records by ID.
func (b handoverBook) records() (list []escalate.Record) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(b.asked)) {
		list = append(list, b.asked[id])
	}
	return list
}

// sameHost says whether two targets share a Machine, a Node or a host: also one that has registered
// under another name. // I6, I22
func sameHost(a, b remediate.Target) bool {
	return a.Overlaps(b) || bmc.UUIDsMatch(a.SystemUUID, b.SystemUUID)
}

// blocks says why nobody else may act on a target; "" if nobody was asked to repair it. b.mu is
// held. // I22
func (b handoverBook) blocks(t remediate.Target) string {
	for _, r := range b.asked {
		if r.Blocking() && sameHost(r.Target, t) {
			return r.Asks() + " may be at work on it; to give that up: fencectl abort " + r.ID + " --as-is --reason WHY"
		}
	}
	return ""
}

// openTargets lists the targets that other remediators work on for the ledger: no check asks for
// anything else there. b.mu is held.
func (b handoverBook) openTargets() (list []policy.OpenRun) {
	for _, id := range slices.Sorted(maps.Keys(b.asked)) {
		if r := b.asked[id]; r.Blocking() {
			node := r.Target.Node
			if !r.MayBeControlPlane() {
				node = nodeThatWas(r.Target, r.Labels)
			}
			list = append(list, policy.OpenRun{ID: "of the remediator of " + r.Asks(), Node: node, Machine: r.Target.MachineKey(), MachineAPI: r.Target.MachineAPI,
				ControlPlane: r.MayBeControlPlane(), TakesNoTurn: r.TakesNoTurn, NodeLabels: r.Labels, NodeNames: policy.NodeNames(r.Names)})
		}
	}
	return list
}

// allOpenTargets lists all targets on which something is open. The ledger never gets only a part of
// them: a budget would forget the others. b.mu is held. // I11, I22
func (b handoverBook) allOpenTargets() []policy.OpenRun {
	return append(b.runs.openTargets(), b.openTargets()...)
}

// tried lists for the ledger what was tried on each target, by check and by Node and Machine. b.mu
// is held.
func (b handoverBook) tried() map[string]map[string][]policy.Attempt {
	found := map[string]map[string][]policy.Attempt{}
	for _, r := range b.asked {
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

// reserve puts a new object of a record into the Book, if its check still asks for it, if no run is open
// on the target, and if the limits still allow it. o.Mark lacks the ID of the record. From then on nobody
// else acts on the target. An error is a *reason.Refusal. // I11, I12, I22
func (b handoverBook) reserve(a candidate, from policy.Template, o escalate.Object, slots int, releasedAt, now time.Time) (r escalate.Record, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := a.draft.Target
	if b.closed {
		return r, errRemoved()
	}
	if code := b.whyNotAsked(a, from, now); code != "" {
		return r, &reason.Refusal{Reason: code, Message: "check " + a.check.Key() + " no longer asks for an object from " + from.Kind + " " + from.Name}
	}
	if why := b.blocks(t); why != "" {
		return r, &reason.Refusal{Reason: reason.AlreadyRequested, Message: why}
	}
	if slices.ContainsFunc(b.runs.open(), func(r remediate.Run) bool { return sameHost(r.Target, t) }) {
		return r, &reason.Refusal{Reason: reason.UnderRemediation, Message: "a run of fenced is open on the target"}
	}
	r = b.recordOf(a, now)
	if r.Trim(now); len(r.Objects) >= escalate.MaxObjects {
		return r, &reason.Refusal{Reason: reason.FencesPerDay, Message: fmt.Sprintf("%d objects were made for it since %s; give that up with fencectl abort %s --as-is --reason WHY",
			len(r.Objects), r.Started.Format(time.RFC3339), r.ID)}
	}
	a.draft.ID = r.ID
	f := guard.Facts{ControlPlane: r.ControlPlane, AsksOther: true, InFlightTotal: slots}
	b.countAll(a, &f, releasedAt, now)
	if g, refused := firstFailing(guard.StartGates(b.opt.Limits.Guards(), f, now)); refused {
		return r, reason.RefusalOf(g)
	}
	o.Mark, o.Made = o.Mark+r.ID, now.UTC()
	r.Objects, r.Idle, r.Labels, r.Names = append(r.Objects, o), time.Time{}, a.draft.NodeLabels, a.draft.NodeNames
	b.asked[r.ID], b.runsChanged, b.runs.reserved[r.ID] = r, true, true
	return r, nil
}

// reserved ends the time after reserve in which a record takes its slot itself. // I11
func (b handoverBook) reserved(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.runs.reserved, id)
}

// recordOf is the record of a target: the one whose escalation goes on, else a new one. b.mu is held.
func (b handoverBook) recordOf(a candidate, now time.Time) escalate.Record {
	mark := a.check.Mark()
	for _, r := range b.asked {
		if r.Ended.IsZero() && r.Check == mark && r.Target.Overlaps(a.draft.Target) {
			r.Target, r.ControlPlane, r.TakesNoTurn = a.draft.Target, a.draft.ControlPlane, a.draft.TakesNoTurn
			return r
		}
	}
	return escalate.Record{ID: newRunID(now), Check: mark, Target: a.draft.Target, ControlPlane: a.draft.ControlPlane, TakesNoTurn: a.draft.TakesNoTurn,
		Started: now.UTC()}
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
