package cluster

import (
	"cmp"
	"maps"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/times"
)

// Runs holds the runs of one cluster, including ended ones, and what other remediators were asked. A method needs no
// other lock.
type Runs struct {
	cluster string

	mu sync.Mutex
	runs
	changed bool // the ledger does not have the current open runs yet
	closed  bool // no run begins; see CloseAdmission
	leads   bool // between BeginLeadership and EndLeadership: the runs here are newer than the store
}

// runs is the data of Runs. A run in it never changes: another one takes its place. So a
// pointer to it may be kept, and thousands of runs are passed over without a copy of each.
type runs struct {
	byID map[string]*remediate.Run
	// repairs are what other remediators were asked, by ID.
	repairs map[string]Repair
	// resuming are the Waiting runs for which a retry is being ordered. Those in reserved have
	// passed the limits, count as in flight, and take their slot themselves: also repairs.
	resuming, reserved map[string]bool
	// seenEnd says when this instance saw the end of those that have ended since it began to lead, and began when that was. Both
	// are also by the monotonic clock, which nobody sets.
	seenEnd map[string]time.Time
	began   time.Time
}

func newRuns() runs {
	return runs{byID: map[string]*remediate.Run{}, repairs: map[string]Repair{}, resuming: map[string]bool{}, reserved: map[string]bool{}, seenEnd: map[string]time.Time{}}
}

// CloseAdmission lets no run or request begin in the cluster any more, and no leadership, in which open runs would go
// on: a reload closes it before it removes the cluster. If runs are open, it changes nothing, and returns them. A run is open from the moment at which
// it reserves its place, so none is between the two. // I11, I19
func (rs *Runs) CloseAdmission() (open []remediate.Run) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	open = rs.open()
	rs.closed = len(open) == 0
	return open
}

// OpenAdmission lets runs begin again.
func (rs *Runs) OpenAdmission() {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.closed = false
}

// errBeingRemoved refuses what would begin while the admission is closed.
func errBeingRemoved() error {
	return &reason.Refusal{Reason: reason.NotOwner, Message: "the cluster is being removed from the configuration of this instance"}
}

// BeginLeadership sets the runs to those in the store. From now on the Runs of this
// instance are newer than the store, until EndLeadership. It refuses while it is closed. // I19
func (rs *Runs) BeginLeadership(all []remediate.Run) error {
	mine := byID(rs.OfCluster(all))
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rs.closed {
		return errBeingRemoved()
	}
	rs.leads = true
	rs.byID, rs.seenEnd, rs.began, rs.changed = mine, map[string]time.Time{}, time.Now(), true
	return nil
}

// EndLeadership lets Update replace the runs again.
func (rs *Runs) EndLeadership() {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.leads = false
}

// Update replaces the runs by those in the store. While this instance leads it changes
// nothing and returns false, because what it knows is newer.
func (rs *Runs) Update(all []remediate.Run) bool {
	mine := byID(rs.OfCluster(all))
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if !rs.leads {
		rs.byID, rs.changed = mine, true
	}
	return !rs.leads
}

// OfCluster selects the runs of this cluster.
func (rs *Runs) OfCluster(all []remediate.Run) (mine []remediate.Run) {
	for _, r := range all {
		if r.Target.Cluster == rs.cluster {
			mine = append(mine, r)
		}
	}
	return mine
}

// Put adds or replaces a run.
func (rs *Runs) Put(r remediate.Run) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	was := rs.byID[r.ID]
	rs.changed = rs.changed || !openTarget(was).Equal(openTarget(&r)) // few saves change that
	if rs.leads && was != nil && was.Open() && !r.Open() {
		rs.seenEnd[r.ID] = time.Now()
	}
	rs.byID[r.ID] = &r
}

// Drop removes a run that was reserved and not started.
func (rs *Runs) Drop(id string) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	delete(rs.byID, id)
	rs.changed = true
}

// Get returns the run with this ID.
func (rs *Runs) Get(id string) (remediate.Run, bool) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	r, known := rs.byID[id]
	if !known {
		return remediate.Run{}, false
	}
	return *r, true
}

// All lists all runs, in no order.
func (rs *Runs) All() []remediate.Run {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	all := make([]remediate.Run, 0, len(rs.byID))
	for _, r := range rs.byID {
		all = append(all, *r)
	}
	return all
}

// Open lists the open runs by ID.
func (rs *Runs) Open() []remediate.Run {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return rs.open()
}

// AnyOpen says whether a run is open, or another remediator may be at work.
func (rs *Runs) AnyOpen() bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for _, r := range rs.byID {
		if r.Open() {
			return true
		}
	}
	for _, p := range rs.repairs {
		if p.By != "" {
			return true
		}
	}
	return false
}

// OpenOn returns the open run on a Node, or on the Machine "namespace/name".
func (rs *Runs) OpenOn(node string) (remediate.Run, bool) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for _, r := range rs.byID {
		if r.Open() && IsOn(r, node) {
			return *r, true
		}
	}
	return remediate.Run{}, false
}

// NewestOn returns the open run on a target's Node or Machine, else the newest that has ended,
// or nil. The run may be from before the Machine had a Node.
func (rs *Runs) NewestOn(t remediate.Target) *remediate.Run {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	var newest *remediate.Run
	for _, r := range rs.byID {
		if (IsOn(r, t.Node) || IsOn(r, t.MachineKey())) && (newest == nil || r.Open() || !newest.Open() && r.ID > newest.ID) {
			newest = r
		}
	}
	if newest == nil {
		return nil
	}
	found := *newest
	return &found
}

// EndedOn lists the runs on the host of a target that have ended, the newest first, each with its endedAt.
func (rs *Runs) EndedOn(t remediate.Target, now time.Time) (list []remediate.Run) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for _, r := range rs.byID {
		if !r.Open() && sameHost(r.Target, t) {
			ended := *r
			ended.Ended = rs.endedAt(r, now)
			list = append(list, ended)
		}
	}
	slices.SortFunc(list, func(a, b remediate.Run) int { return b.Ended.Compare(a.Ended) })
	return list
}

// endedAt is when a run has ended; zero: it has not. // I15
func (rs runs) endedAt(r *remediate.Run, now time.Time) time.Time {
	return rs.noLaterThanSeen(r.Ended, rs.seenEnd[r.ID], now)
}

// noLaterThanSeen returns an end. A time to come was written by a clock that was ahead. Then it is when this instance saw the end,
// or, if it did not, when it began to lead: the end was no later. // I15
func (rs runs) noLaterThanSeen(ended, seen, now time.Time) time.Time {
	if !ended.After(now) || rs.began.IsZero() {
		return ended
	}
	return now.Add(-now.Sub(cmp.Or(seen, rs.began)))
}

// SlotMismatches compares the runs in flight with the slots that are taken, both by run ID:
// lacking runs have no slot, needless slots have no run. A run that is not stored yet, or is reserved, takes
// its slot itself, within the limit, so it is not listed. // I11
func (rs *Runs) SlotMismatches(taken map[string]bool) (lacking, needless []string) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	inFlight := map[string]bool{}
	for id, r := range rs.byID {
		if inFlight[id] = rs.inFlight(r); inFlight[id] && r.Version > 0 && !rs.reserved[id] && !taken[id] {
			lacking = append(lacking, id)
		}
	}
	for id, p := range rs.repairs {
		if inFlight[id] = p.InFlight; p.InFlight && p.Stored && !rs.reserved[id] && !taken[id] {
			lacking = append(lacking, id)
		}
	}
	for id := range taken {
		if !inFlight[id] {
			needless = append(needless, id)
		}
	}
	return lacking, needless
}

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

// IsUnsaved says whether a run is only reserved: its start may fail yet.
func IsUnsaved(r remediate.Run) bool { return r.Version == 0 }

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
		p := rs.repairs[id]
		if p.By == "" {
			continue
		}
		node := p.Target.Node
		if !p.ControlPlane {
			node = nodeThatWas(p.Target, p.NodeLabels)
		}
		list = append(list, policy.OpenRun{ID: "of the remediator of " + p.By, Node: node, Machine: p.Target.MachineKey(), MachineAPI: p.Target.MachineAPI,
			ControlPlane: p.ControlPlane, TakesNoTurn: p.TakesNoTurn, SystemUUID: p.Target.SystemUUID, NodeLabels: p.NodeLabels, NodeNames: policy.NodeNames(p.NodeNames)})
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

// sameHost says whether two targets share a Machine, a Node or a host: also one that has registered
// under another name. // I6, I22
func sameHost(a, b remediate.Target) bool {
	return a.Overlaps(b) || bmc.UUIDsMatch(a.SystemUUID, b.SystemUUID)
}

// knownNode returns the labels of a target's Node, and how it names its Machines, for the record of a new run. If there
// is no Node, they are those in the newest record of the same Node or Machine; nil: nobody knows them. // I11
func (rs runs) knownNode(t remediate.Target, n *policy.Node) (map[string]string, remediate.NodeNames) {
	if n != nil {
		return remediate.KnownLabels(n.Labels.Map()), remediate.KnownNames(remediate.NodeNames(n.Names()))
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

func byID(all []remediate.Run) map[string]*remediate.Run {
	byID := map[string]*remediate.Run{}
	for _, r := range all {
		byID[r.ID] = &r
	}
	return byID
}

// Repair is what another remediator was asked to do about one target. While it may be at work, nobody else acts
// there, and each try uses up the limits as a power cycle does. Package escalate makes them. // I11, I15, I22
type Repair struct {
	ID     string
	Target remediate.Target
	// By names what may be at work on the target; "" if nothing is.
	By string
	// Check is the mark of the check that asks; "" when nothing more is to be asked.
	Check string
	// InFlight: it has a place in the limits, and Stored: its slot over all clusters is to be there.
	InFlight, Stored          bool
	ControlPlane, TakesNoTurn bool // as of a run
	NodeLabels                map[string]string
	NodeNames                 remediate.NodeNames
	Tries                     []Try // the newest last
	// seenEnd says when this instance saw that the newest end of the tries changed, also by the monotonic clock.
	seenEnd time.Time
}

// lastEnd is the newest end of the tries.
func (p *Repair) lastEnd() (last time.Time) {
	for _, t := range p.Tries {
		last = times.Later(last, t.Ended)
	}
	return last
}

// Try is one request to another remediator.
type Try struct {
	policy.Attempt
	Ended time.Time
	// Open: it may be at work. Gone: the request is known not to exist. Done: the target has recovered by it.
	Open, Gone, Done bool
}

// blocks returns the reason why nobody else may act on a target; "" if nobody was asked to repair it. // I22
func (rs runs) blocks(t remediate.Target) string {
	for _, p := range rs.repairs {
		if p.By != "" && sameHost(p.Target, t) {
			return p.By + " may be at work on it; to give that up: fencectl abort " + p.ID + " --as-is --reason WHY"
		}
	}
	return ""
}

// tried lists for the ledger what was tried on each target, by check and by Node and Machine.
func (rs runs) tried() map[string]map[string][]policy.Attempt {
	found := map[string]map[string][]policy.Attempt{}
	for _, p := range rs.repairs {
		var list []policy.Attempt
		for _, t := range p.Tries {
			if t.Gone {
				list = append(list, t.Attempt)
			}
		}
		if p.Check == "" || len(list) == 0 {
			continue
		}
		if found[p.Check] == nil {
			found[p.Check] = map[string][]policy.Attempt{}
		}
		for _, name := range p.Target.Names() {
			found[p.Check][name] = list
		}
	}
	return found
}

// isStep says whether a try is a step of the escalation of a candidate's check, from another of its templates.
func (p *Repair) isStep(t Try, a Candidate) bool {
	return a.Check != nil && a.Template != nil && len(a.Check.Escalation) > 0 && p.Check == a.Check.Mark() && p.Target.Overlaps(a.Draft.Target) && t.Gone &&
		!(&policy.Escalation{Template: *a.Template}).IsSourceOf(&policy.Request{APIVersion: t.APIVersion, Kind: t.Kind, TemplateName: t.TemplateName})
}

// SetRepairs replaces all repairs.
func (rs *Runs) SetRepairs(all []Repair) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	before := rs.repairs
	rs.repairs, rs.changed = map[string]Repair{}, true
	for _, p := range all {
		rs.repairs[p.ID] = p.after(before)
	}
}

// after returns a repair with its seenEnd. before are those that were known.
func (p Repair) after(before map[string]Repair) Repair {
	if was, known := before[p.ID]; known {
		if p.seenEnd = was.seenEnd; !p.lastEnd().Equal(was.lastEnd()) {
			p.seenEnd = time.Now()
		}
	}
	return p
}

// PutRepair adds or replaces a repair.
func (rs *Runs) PutRepair(p Repair) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.repairs[p.ID], rs.changed = p.after(rs.repairs), true
}

// DropRepair removes a repair.
func (rs *Runs) DropRepair(id string) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	delete(rs.repairs, id)
	rs.changed = true
}

// ReserveRepair lists a repair with a new try, if the try has a place under the limits. From then on nobody
// else acts on the target. An error is a *reason.Refusal. // I22
func (c *Model) ReserveRepair(a Candidate, p Repair, slots int, releasedAt, now time.Time) error {
	defer c.lock()()
	a.Draft.ID = p.ID
	if err := c.mayBegin(a, slots, releasedAt, now); err != nil {
		return err
	}
	c.Runs.repairs[p.ID], c.Runs.changed, c.Runs.reserved[p.ID] = p.after(c.Runs.repairs), true, true
	return nil
}

// EndReservation ends the time after ReserveRepair in which a repair takes its slot itself. // I11
func (rs *Runs) EndReservation(id string) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	delete(rs.reserved, id)
}

// Leads says whether this instance leads, so that what it knows is newer than the store.
func (rs *Runs) Leads() bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return rs.leads
}

// RepairTarget returns what is known now about a target for which another remediator was asked. ok is false before the
// view is complete.
func (c *Model) RepairTarget(asked policy.Asked, now time.Time) (t policy.AskedTarget, ok bool) {
	defer c.lock()()
	if !c.Objects.complete {
		return t, false
	}
	c.applyOpenRuns(now)
	if t = c.Objects.ledger.AskedTarget(asked, now); t.Check == nil && c.Objects.filesRefused != "" { // it may be in a file that was not read
		t = policy.AskedTarget{Unknown: true}
	}
	return t, true
}

// Makers lists the checks by which fenced asks other remediators, in the order in which they get one of a limited number of places:
// those of administrators, then those of namespaces in turn, of which the ones that clusters[] names come first. Whoever may write checks in
// one namespace takes the places of no other. // I18
func (c *Model) Makers() (list []policy.Check) {
	type place struct{ rank, turn int }
	list = c.Objects.makers()
	places, taken := make(map[policy.CheckID]place, len(list)), map[string]int{}
	for i := range list {
		check, at := &list[i], place{}
		if namespace := check.APIVersion + " " + check.Namespace; !check.Administrators() {
			at = place{2, taken[namespace]}
			taken[namespace]++
			if c.Options.Rules.TrustsChecks(check.APIVersion, check.Namespace) {
				at.rank = 1
			}
		}
		places[check.ID()] = at
	}
	sort.SliceStable(list, func(i, j int) bool {
		x, y := places[list[i].ID()], places[list[j].ID()]
		return cmp.Or(cmp.Compare(x.rank, y.rank), cmp.Compare(x.turn, y.turn)) < 0
	})
	return list
}

// makers are these checks by name.
func (o *Objects) makers() (list []policy.Check) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, r := range o.ledger.Counters() {
		if check := o.ledger.Check(r.ID()); check != nil && check.AsksOthers() && r.State != policy.StatePaused && r.State != policy.StateInvalid {
			list = append(list, *check)
		}
	}
	return list
}

// SetDisabled sets for the ledger why nobody carries out the requests of checks.
func (o *Objects) SetDisabled(why map[string]string, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ledger.SetDisabled(now, why)
}
