package admit

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/times"
)

// BookOptions configures the Book of one cluster.
type BookOptions struct {
	Name   string // of the cluster
	Limits *Limits
	// Rules are the administrator's settings for all checks.
	Rules policy.Rules
	Draft Drafter
	// AnnotatedMachines: an annotation on a Machine is a remediation request.
	AnnotatedMachines bool
	// FileChecks and FileBudgets are from policies.d.
	FileChecks  []policy.Check
	FileBudgets []policy.DisruptionBudget
}

// Book holds what is known about one cluster: the ledger, which evaluates what the watch
// shows, and the runs. One lock protects both, so that only one of two candidates that
// exclude each other becomes a run. // I11
type Book struct {
	opt     BookOptions
	started time.Time

	mu          sync.Mutex
	ledger      *policy.Ledger
	runs        runs
	storms      storms
	stableUntil stableUntil
	// replacements says which Machines were never Ready.
	replacements replacements
	runsChanged  bool   // the ledger does not have the current open runs yet
	seenVersion  uint64 // version of the ledger at the last follow
	complete     bool   // the ledger has the complete view of the cluster
	closed       bool   // no run begins; see Door
	leads        bool   // between BeginLeadership and EndLeadership: the runs here are newer than the store
}

// NewBook begins a Book with the checks from files.
func NewBook(opt BookOptions, started time.Time) *Book {
	opt.Rules.ClusterRequired, opt.Rules.NodesCountAsMembers, opt.Rules.TrustNames = true, false, false // this is a live cluster
	opt.Rules.ZoneKey = cmp.Or(opt.Rules.ZoneKey, opt.Limits.Guards().ZoneKey)
	opt.Draft.cluster, opt.Draft.deleteControlPlane = opt.Name, opt.Rules.DeleteControlPlaneMachines
	b := &Book{
		opt: opt, started: started, ledger: policy.NewLedger(opt.Rules), runs: newRuns(), storms: storms{},
		stableUntil: stableUntil{}, replacements: newReplacements(), runsChanged: true,
	}
	b.ledger.Apply(started, fromFiles(opt)...)
	return b
}

// fromFiles returns the checks and budgets of policies.d as changes for the ledger.
func fromFiles(o BookOptions) []policy.Change {
	var list []policy.Change
	for i := range o.FileChecks {
		c := &o.FileChecks[i]
		list = append(list, policy.Change{ID: checkObject(c), Value: c})
	}
	for i := range o.FileBudgets {
		b := &o.FileBudgets[i]
		list = append(list, policy.Change{Value: b,
			ID: policy.ObjectID{APIVersion: policy.FencedAPI, Kind: policy.DisruptionBudgetKind, Name: b.Name}})
	}
	return list
}

func checkObject(c *policy.Check) policy.ObjectID {
	return policy.ObjectID{APIVersion: c.APIVersion, Kind: c.Kind, Namespace: c.Namespace, Name: c.Name}
}

// follow updates the ledger with the changes, the open runs and the time. outageEnd is when
// the view was last complete again. It returns whether a decision may change, and when the
// passing of time alone can change one (zero: never).
func (b *Book) follow(now time.Time, changes []policy.Change, outageEnd time.Time) (changed bool, due time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range changes {
		b.storms.applyTo(&changes[i], times.Later(b.started, outageEnd))
	}
	b.stableUntil.recordTransitions(b.ledger, now, changes)
	b.replacements.noteNew(b.ledger, changes)
	b.ledger.Apply(now, changes...)
	b.replacements.noteReady(b.ledger, changes)
	b.applyOpenRuns(now)
	b.ledger.Advance(now)
	if changed = b.ledger.Version() != b.seenVersion || !b.complete; changed {
		b.storms.update(b.ledger, now)
	}
	b.complete, b.seenVersion = true, b.ledger.Version() // other methods advance the ledger, too
	due, _ = b.ledger.Next()
	return changed, due
}

// applyOpenRuns passes the open runs to the ledger: policy counts their targets as not
// healthy and asks for no second action on them. b.mu is held.
func (b *Book) applyOpenRuns(now time.Time) {
	if b.runsChanged {
		b.ledger.SetRuns(now, b.runs.openTargets())
		b.ledger.SetTried(now, b.runs.tried())
		b.runsChanged = false
	}
}

// setReadsOff records whether the BMC of a Node's host reads Off. Checks that allow it end
// their wait then.
func (b *Book) setReadsOff(now time.Time, node string, off bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ledger.SetReadsOff(now, node, off)
}

// draftPending drafts a run for each pending target of a check that acts at once if the host
// is off. It includes a target in known that is unhealthy only because its BMC reads Off.
// anyShortens is false if there is no such check.
func (b *Book) draftPending(known map[string]bool) (wanted map[string]remediate.Run, anyShortens bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	wanted = map[string]remediate.Run{}
	for _, r := range b.ledger.Counters() {
		check := b.ledger.Check(r.ID())
		if check == nil || !check.ShortenOnEvidence {
			continue
		}
		anyShortens = true
		for _, t := range b.ledger.Waiting(r.ID()) {
			if t.Node == "" || t.Verdict != policy.Pending && (t.Verdict != policy.Unhealthy || !known[t.Node]) {
				continue
			}
			wanted[t.Node] = remediate.Run{Target: targetOf(b.ledger, b.opt.Name, evaluatedMachine(b.ledger, &t), b.ledger.Node(t.Node), t.Node)}
		}
	}
	return wanted, anyShortens
}

// EndLeadership lets UpdateRuns replace the runs again.
func (b *Book) EndLeadership() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.leads = false
}

// UpdateRuns replaces the runs by those in the store. While this instance leads it changes
// nothing and returns false, because the Book is newer.
func (b *Book) UpdateRuns(all []remediate.Run) bool {
	mine := byID(b.RunsOfCluster(all))
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.leads {
		b.runs.byID, b.runsChanged = mine, true
	}
	return !b.leads
}

// RunsOfCluster selects the runs of this cluster.
func (b *Book) RunsOfCluster(all []remediate.Run) (mine []remediate.Run) {
	for _, r := range all {
		if r.Target.Cluster == b.opt.Name {
			mine = append(mine, r)
		}
	}
	return mine
}

// byID returns runs by ID.
func byID(all []remediate.Run) map[string]*remediate.Run {
	byID := map[string]*remediate.Run{}
	for _, r := range all {
		byID[r.ID] = &r
	}
	return byID
}

// put adds or replaces a run.
func (b *Book) put(r remediate.Run) {
	b.mu.Lock()
	defer b.mu.Unlock()
	was := b.runs.byID[r.ID]
	b.runsChanged = b.runsChanged || !openTarget(was).Equal(openTarget(&r)) // few saves change that
	if b.leads && was != nil && was.Open() && !r.Open() {
		b.runs.seenEnd[r.ID] = true
	}
	b.runs.byID[r.ID] = &r
}

// drop removes a run that was reserved and not started.
func (b *Book) drop(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.runs.byID, id)
	b.runsChanged = true
}

// Run returns the run with this ID.
func (b *Book) Run(id string) (remediate.Run, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r, known := b.runs.byID[id]
	if !known {
		return remediate.Run{}, false
	}
	return *r, true
}

// Runs lists all runs of the Book, in no order.
func (b *Book) Runs() []remediate.Run {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := make([]remediate.Run, 0, len(b.runs.byID))
	for _, r := range b.runs.byID {
		all = append(all, *r)
	}
	return all
}

// OpenRuns lists the open runs by ID.
func (b *Book) OpenRuns() []remediate.Run {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.runs.open()
}

// AnyOpen says whether a run is open.
func (b *Book) AnyOpen() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.runs.anyOpen()
}

// OpenOn returns the open run on a Node, or on the Machine "namespace/name".
func (b *Book) OpenOn(node string) (remediate.Run, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.runs.openOn(node)
}

// newestOn returns the open run on a target's Node or Machine, else the newest that has ended,
// or nil. The run may be from before the Machine had a Node.
func (b *Book) newestOn(t remediate.Target) *remediate.Run {
	b.mu.Lock()
	defer b.mu.Unlock()
	var newest *remediate.Run
	for _, r := range b.runs.byID {
		if (isOn(r, t.Node) || isOn(r, t.MachineKey())) && (newest == nil || r.Open() || !newest.Open() && r.ID > newest.ID) {
			newest = r
		}
	}
	if newest == nil {
		return nil
	}
	found := *newest
	return &found
}

// endedOn lists the runs on the host of a target that have ended, the newest first.
func (b *Book) endedOn(t remediate.Target) []remediate.Run {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.runs.ended(t)
}

// SlotMismatches compares the runs in flight with the slots that are taken, both by run ID:
// lacking runs have no slot, needless slots have no run. A run that is not stored yet, or is reserved, takes
// its slot itself, within the limit, so it is not listed. // I11
func (b *Book) SlotMismatches(taken map[string]bool) (lacking, needless []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.runs.all()
	for id, r := range all.each() {
		if all.inFlight(r) && r.Version > 0 && !b.runs.reserved[id] && !taken[id] {
			lacking = append(lacking, id)
		}
	}
	for id := range taken {
		if r, known := all.find(id); !known || !all.inFlight(r) {
			needless = append(needless, id)
		}
	}
	return lacking, needless
}

// Forget removes the runs that ended before the time ended, and the data that only open
// runs or times after recent need.
func (b *Book) Forget(ended, recent time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	maps.DeleteFunc(b.runs.byID, func(_ string, r *remediate.Run) bool { // the checks depend only on open runs
		return !r.Open() && r.Ended.Before(ended)
	})
	maps.DeleteFunc(b.runs.seenEnd, func(id string, _ bool) bool { return b.runs.byID[id] == nil })
	b.replacements.forget(b.ledger)
	maps.DeleteFunc(b.stableUntil, func(_ string, until time.Time) bool { return until.Before(recent) })
}

// Seen says whether the ledger has the complete view of the cluster.
func (b *Book) Seen() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.complete
}

func errNotSeen() error {
	return &reason.Refusal{Reason: reason.NotSynced, Message: "the watch of the cluster is not complete yet; try again in a few seconds"}
}

// TargetOn returns the objects of one Node as the target of a run; false when no Node has
// this name and no Machine refers to it.
func (b *Book) TargetOn(node string) (remediate.Target, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n, m := b.ledger.Node(node), b.ledger.MachineOf(node)
	return targetOf(b.ledger, b.opt.Name, m, n, node), n != nil || m != nil
}

// Check returns a check as the ledger has it now, or nil.
func (b *Book) Check(id policy.CheckID) *policy.Check {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ledger.Check(id)
}

// actingChecks lists the checks with the targets that they want remediated.
func (b *Book) actingChecks(now time.Time) []policy.CheckReport {
	b.mu.Lock()
	list := b.ledger.Acting(now)
	b.mu.Unlock()
	fewestFirst(list)
	return list
}

// fewestFirst puts files and checks without a namespace first, then the namespaces with the fewest targets. A
// decision may have no time for all, and whoever makes up many in one namespace must not come before the others.
func fewestFirst(list []policy.CheckReport) {
	of := func(c *policy.CheckReport) string {
		if c.Source != "" && c.Source != "cluster" {
			return ""
		}
		return c.Namespace
	}
	targets := map[string]int{}
	for i := range list {
		if namespace := of(&list[i]); namespace != "" {
			targets[namespace] += len(list[i].Targets)
		}
	}
	slices.SortStableFunc(list, func(x, y policy.CheckReport) int { return cmp.Compare(targets[of(&x)], targets[of(&y)]) })
}

// nodeReport is what the checks find about one Node.
func (b *Book) nodeReport(node string, now time.Time) policy.Report {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ledger.OnNode(node, now)
}

// Counters lists the checks without their targets, and counts the Nodes. It returns nothing
// before the view is complete.
func (b *Book) Counters() (checks []policy.CheckReport, nodes int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.complete {
		return nil, 0
	}
	return b.ledger.Counters(), b.ledger.Fleet("").Nodes
}

// WithTargets adds its targets to a check as they are now. matched is false while no Machine
// has its Node: the Nodes may be those of another cluster, and say nothing about the Machines.
// found is false when the check is gone.
func (b *Book) WithTargets(id policy.CheckID, now time.Time) (r policy.CheckReport, matched, found bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r, found = b.ledger.CheckReport(id, now)
	return r, anyMachineHasItsNode(b.ledger), found
}

// Report is what the checks find now, with every target. Its cost grows with the size of
// the cluster.
func (b *Book) Report() (policy.Report, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.complete {
		return policy.Report{}, errNotSeen()
	}
	return b.ledger.Report(time.Now()), nil
}

// Coverage says what every check and budget selects and allows.
func (b *Book) Coverage() ([]policy.Coverage, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.complete {
		return nil, errNotSeen()
	}
	snap := b.ledger.Snapshot()
	return policy.Cover(b.ledger.Report(time.Now()), snap.Checks, snap.Budgets), nil
}

// controlPlaneSize is the number of control-plane members in the view.
func (b *Book) controlPlaneSize() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ledger.ControlPlaneSize()
}

// renamedTo returns the name of another Node with the system UUID of the run's host: the
// host has registered under that name. unseen: the view is not complete, so the answer is
// not known. // I6
func (b *Book) renamedTo(r remediate.Run) (node string, unseen bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.complete {
		return "", true
	}
	for _, n := range b.ledger.OtherNodesWithUUID(r.Target.Node, cmp.Or(r.Target.SystemUUID, r.Target.ReportedUUID)) { // none for a placeholder
		if hasReturned(n, r) {
			return n.Name, false
		}
	}
	return "", false
}
