package cluster

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

// Options configures the Model of one cluster.
type Options struct {
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

// Model holds what is known about one cluster: the ledger, which evaluates what the watch
// shows, and the runs. One lock protects both, so that only one of two candidates that
// exclude each other becomes a run. // I11
type Model struct {
	Options Options // as New completed them; nobody changes them
	Started time.Time

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
	closed       bool   // no run begins; see AdmissionSwitch
	leads        bool   // between BeginLeadership and EndLeadership: the runs here are newer than the store
}

// New begins a Model with the checks from files.
func New(opt Options, started time.Time) *Model {
	opt.Rules.ClusterRequired, opt.Rules.NodesCountAsMembers, opt.Rules.TrustNames = true, false, false // this is a live cluster
	opt.Rules.ZoneKey = cmp.Or(opt.Rules.ZoneKey, opt.Limits.Guards().ZoneKey)
	opt.Draft.cluster, opt.Draft.deleteControlPlane = opt.Name, opt.Rules.DeleteControlPlaneMachines
	b := &Model{
		Options: opt, Started: started, ledger: policy.NewLedger(opt.Rules), runs: newRuns(), storms: storms{},
		stableUntil: stableUntil{}, replacements: newReplacements(), runsChanged: true,
	}
	b.ledger.Apply(started, fromFiles(opt)...)
	return b
}

// fromFiles returns the checks and budgets of policies.d as changes for the ledger.
func fromFiles(o Options) []policy.Change {
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

// Follow updates the ledger with the changes, the open runs and the time. outageEnd is when
// the view was last complete again. It returns whether a decision may change, and when the
// passing of time alone can change one (zero: never).
func (c *Model) Follow(now time.Time, changes []policy.Change, outageEnd time.Time) (changed bool, due time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range changes {
		c.storms.applyTo(&changes[i], times.Later(c.Started, outageEnd))
	}
	c.stableUntil.recordTransitions(c.ledger, now, changes)
	c.replacements.noteNew(c.ledger, changes)
	c.ledger.Apply(now, changes...)
	c.replacements.noteReady(c.ledger, changes)
	c.applyOpenRuns(now)
	c.ledger.Advance(now)
	if changed = c.ledger.Version != c.seenVersion || !c.complete; changed {
		c.storms.update(c.ledger, now)
	}
	c.complete, c.seenVersion = true, c.ledger.Version // other methods advance the ledger, too
	due = c.ledger.Next
	return changed, due
}

// applyOpenRuns passes the open runs to the ledger: policy counts their targets as not
// healthy and asks for no second action on them. b.mu is held.
func (c *Model) applyOpenRuns(now time.Time) {
	if c.runsChanged {
		c.ledger.SetRuns(now, c.runs.openTargets())
		c.ledger.SetTried(now, c.runs.tried())
		c.runsChanged = false
	}
}

// SetReadsOff records whether the BMC of a Node's host reads Off. Checks that allow it end
// their wait then.
func (c *Model) SetReadsOff(now time.Time, node string, off bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ledger.SetReadsOff(now, node, off)
}

// DraftPending drafts a run for each pending target of a check that acts at once if the host
// is off. It includes a target in known that is unhealthy only because its BMC reads Off.
// anyShortens is false if there is no such check.
func (c *Model) DraftPending(known map[string]bool) (wanted map[string]remediate.Run, anyShortens bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	wanted = map[string]remediate.Run{}
	for _, r := range c.ledger.Counters() {
		check := c.ledger.Check(r.ID())
		if check == nil || !check.ShortenOnEvidence {
			continue
		}
		anyShortens = true
		for _, t := range c.ledger.Waiting(r.ID()) {
			if t.Node == "" || t.Verdict != policy.Pending && (t.Verdict != policy.Unhealthy || !known[t.Node]) {
				continue
			}
			wanted[t.Node] = remediate.Run{Target: targetOf(c.ledger, c.Options.Name, evaluatedMachine(c.ledger, &t), c.ledger.Node(t.Node), t.Node)}
		}
	}
	return wanted, anyShortens
}

// EndLeadership lets UpdateRuns replace the runs again.
func (c *Model) EndLeadership() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leads = false
}

// UpdateRuns replaces the runs by those in the store. While this instance leads it changes
// nothing and returns false, because the Model is newer.
func (c *Model) UpdateRuns(all []remediate.Run) bool {
	mine := byID(c.RunsOfCluster(all))
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.leads {
		c.runs.byID, c.runsChanged = mine, true
	}
	return !c.leads
}

// RunsOfCluster selects the runs of this cluster.
func (c *Model) RunsOfCluster(all []remediate.Run) (mine []remediate.Run) {
	for _, r := range all {
		if r.Target.Cluster == c.Options.Name {
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

// Put adds or replaces a run.
func (c *Model) Put(r remediate.Run) {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.runs.byID[r.ID]
	c.runsChanged = c.runsChanged || !openTarget(was).Equal(openTarget(&r)) // few saves change that
	if c.leads && was != nil && was.Open() && !r.Open() {
		c.runs.seenEnd[r.ID] = true
	}
	c.runs.byID[r.ID] = &r
}

// Drop removes a run that was reserved and not started.
func (c *Model) Drop(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.runs.byID, id)
	c.runsChanged = true
}

// Run returns the run with this ID.
func (c *Model) Run(id string) (remediate.Run, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r, known := c.runs.byID[id]
	if !known {
		return remediate.Run{}, false
	}
	return *r, true
}

// Runs lists all runs of the Model, in no order.
func (c *Model) Runs() []remediate.Run {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]remediate.Run, 0, len(c.runs.byID))
	for _, r := range c.runs.byID {
		all = append(all, *r)
	}
	return all
}

// OpenRuns lists the open runs by ID.
func (c *Model) OpenRuns() []remediate.Run {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.runs.open()
}

// AnyOpen says whether a run is open.
func (c *Model) AnyOpen() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.runs.anyOpen()
}

// OpenOn returns the open run on a Node, or on the Machine "namespace/name".
func (c *Model) OpenOn(node string) (remediate.Run, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.runs.openOn(node)
}

// NewestOn returns the open run on a target's Node or Machine, else the newest that has ended,
// or nil. The run may be from before the Machine had a Node.
func (c *Model) NewestOn(t remediate.Target) *remediate.Run {
	c.mu.Lock()
	defer c.mu.Unlock()
	var newest *remediate.Run
	for _, r := range c.runs.byID {
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

// EndedOn lists the runs on the host of a target that have ended, the newest first.
func (c *Model) EndedOn(t remediate.Target) []remediate.Run {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.runs.ended(t)
}

// SlotMismatches compares the runs in flight with the slots that are taken, both by run ID:
// lacking runs have no slot, needless slots have no run. A run that is not stored yet, or is reserved, takes
// its slot itself, within the limit, so it is not listed. // I11
func (c *Model) SlotMismatches(taken map[string]bool) (lacking, needless []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := c.runs.all()
	for id, r := range all.each() {
		if all.inFlight(r) && r.Version > 0 && !c.runs.reserved[id] && !taken[id] {
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
func (c *Model) Forget(ended, recent time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.runs.byID, func(_ string, r *remediate.Run) bool { // the checks depend only on open runs
		return !r.Open() && r.Ended.Before(ended)
	})
	maps.DeleteFunc(c.runs.seenEnd, func(id string, _ bool) bool { return c.runs.byID[id] == nil })
	c.replacements.forget(c.ledger)
	maps.DeleteFunc(c.stableUntil, func(_ string, until time.Time) bool { return until.Before(recent) })
}

// Seen says whether the ledger has the complete view of the cluster.
func (c *Model) Seen() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.complete
}

func ErrNotSeen() error {
	return &reason.Refusal{Reason: reason.NotSynced, Message: "the watch of the cluster is not complete yet; try again in a few seconds"}
}

// TargetOn returns the objects of one Node as the target of a run; false when no Node has
// this name and no Machine refers to it.
func (c *Model) TargetOn(node string) (remediate.Target, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, m := c.ledger.Node(node), c.ledger.MachineOf(node)
	return targetOf(c.ledger, c.Options.Name, m, n, node), n != nil || m != nil
}

// Check returns a check as the ledger has it now, or nil.
func (c *Model) Check(id policy.CheckID) *policy.Check {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ledger.Check(id)
}

// ActingChecks lists the checks with the targets that they want remediated.
func (c *Model) ActingChecks(now time.Time) []policy.CheckReport {
	c.mu.Lock()
	list := c.ledger.Acting(now)
	c.mu.Unlock()
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

// NodeReport is what the checks find about one Node.
func (c *Model) NodeReport(node string, now time.Time) policy.Report {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ledger.OnNode(node, now)
}

// Counters lists the checks without their targets, and counts the Nodes. It returns nothing
// before the view is complete.
func (c *Model) Counters() (checks []policy.CheckReport, nodes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.complete {
		return nil, 0
	}
	return c.ledger.Counters(), c.ledger.Fleet("").Nodes
}

// WithTargets adds its targets to a check as they are now. matched is false while no Machine
// has its Node: the Nodes may be those of another cluster, and say nothing about the Machines.
// found is false when the check is gone.
func (c *Model) WithTargets(id policy.CheckID, now time.Time) (r policy.CheckReport, matched, found bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r, found = c.ledger.CheckReport(id, now)
	return r, anyMachineHasItsNode(c.ledger), found
}

// Report is what the checks find now, with every target. Its cost grows with the size of
// the cluster.
func (c *Model) Report() (policy.Report, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.complete {
		return policy.Report{}, ErrNotSeen()
	}
	return c.ledger.Report(time.Now()), nil
}

// Coverage says what every check and budget selects and allows.
func (c *Model) Coverage() ([]policy.Coverage, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.complete {
		return nil, ErrNotSeen()
	}
	snap := c.ledger.Snapshot()
	return policy.Cover(c.ledger.Report(time.Now()), snap.Checks, snap.Budgets), nil
}

// RenamedTo returns the name of another Node with the system UUID of the run's host: the
// host has registered under that name. unseen: the view is not complete, so the answer is
// not known. // I6
func (c *Model) RenamedTo(r remediate.Run) (node string, unseen bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.complete {
		return "", true
	}
	for _, n := range c.ledger.OtherNodesWithUUID(r.Target.Node, cmp.Or(r.Target.SystemUUID, r.Target.ReportedUUID)) { // none for a placeholder
		if hasReturned(n, r) {
			return n.Name, false
		}
	}
	return "", false
}
