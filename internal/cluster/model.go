package cluster

import (
	"cmp"
	"maps"
	"sync/atomic"
	"time"

	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/policy"
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
	// FilesRefused says which files were not read; see Files.
	FilesRefused string
}

// Model joins the Objects and the Runs of one cluster. Each has its own lock. What concerns both takes both, that of the
// Runs first: a place is counted and taken under it, so that only one of two candidates that exclude each other becomes
// a run. // I11
type Model struct {
	Options Options // as New completed them; nobody changes them
	Started time.Time
	Objects *Objects
	Runs    *Runs
}

// New begins a Model with the checks from files.
func New(opt Options, started time.Time) *Model {
	opt.Rules.ClusterRequired = true // this is a live cluster
	opt.Rules.NodesCountAsMembers, opt.Rules.TrustNames, opt.Rules.HostsUnpinned = false, false, false
	opt.Rules.ZoneKey = cmp.Or(opt.Rules.ZoneKey, opt.Limits.Now().Guards.ZoneKey)
	opt.Draft.deleteControlPlane = opt.Rules.DeleteControlPlaneMachines
	c := &Model{Options: opt, Started: started,
		Objects: &Objects{cluster: opt.Name, started: started, filesRefused: opt.FilesRefused, ledger: policy.NewLedger(opt.Rules), storms: storms{}, stableUntil: stableUntil{}, replacements: replacements{neverReady: map[string]bool{}, lastGood: map[controller]time.Time{}}},
		Runs:    &Runs{cluster: opt.Name, runs: newRuns(), changed: true},
	}
	var files []policy.Change
	for i := range opt.FileChecks {
		check := &opt.FileChecks[i]
		files = append(files, policy.Change{ID: checkObject(check), Value: check})
	}
	for i := range opt.FileBudgets {
		b := &opt.FileBudgets[i]
		files = append(files, policy.Change{Value: b,
			ID: policy.ObjectID{APIVersion: policy.FencedAPI, Kind: policy.DisruptionBudgetKind, Name: b.Name}})
	}
	c.Objects.ledger.Apply(started, c.Objects.storms.assumed(files, started)...)
	return c
}

// lock takes both locks.
func (c *Model) lock() (unlock func()) {
	c.Runs.mu.Lock()
	c.Objects.mu.Lock()
	return func() {
		c.Objects.mu.Unlock()
		c.Runs.mu.Unlock()
	}
}

func checkObject(c *policy.Check) policy.ObjectID {
	return policy.ObjectID{APIVersion: c.APIVersion, Kind: c.Kind, Namespace: c.Namespace, Name: c.Name}
}

// Follow updates the ledger with the changes, the open runs and the time. outageEnd is when
// the view was last complete again. It returns whether a decision may change, and when the
// passing of time alone can change one (zero: never).
func (c *Model) Follow(now time.Time, changes []policy.Change, outageEnd time.Time) (changed bool, due time.Time) {
	defer c.lock()()
	changes = c.Objects.storms.assumed(changes, times.Later(c.Started, outageEnd))
	c.Objects.stableUntil.recordTransitions(c.Objects.ledger, now, changes)
	c.Objects.replacements.recordNew(c.Objects.ledger, changes)
	c.Objects.ledger.Apply(now, changes...)
	c.Objects.replacements.recordReady(c.Objects.ledger, changes)
	c.applyOpenRuns(now)
	c.Objects.ledger.Advance(now)
	if changed = c.Objects.ledger.Version != c.Objects.seenVersion || !c.Objects.complete; changed {
		c.Objects.storms.update(c.Objects.ledger, now)
	}
	c.Objects.complete, c.Objects.seenVersion = true, c.Objects.ledger.Version // other methods advance the ledger, too
	due = c.Objects.ledger.Next
	return changed, due
}

// applyOpenRuns passes the open runs to the ledger: policy counts their targets as not
// healthy and asks for no second action on them. Both locks are held.
func (c *Model) applyOpenRuns(now time.Time) {
	if c.Runs.changed {
		c.Objects.ledger.SetRuns(now, c.Runs.openTargets())
		c.Objects.ledger.SetTried(now, c.Runs.tried())
		c.Runs.changed = false
	}
}

// Forget removes the runs that ended before the time ended, and the data that only open runs or times after recent need, or Machines that
// are gone, or controllers of which no Machine is left.
func (c *Model) Forget(ended, recent time.Time) {
	defer c.lock()()
	maps.DeleteFunc(c.Runs.byID, func(_ string, r *remediate.Run) bool { // the checks depend only on open runs
		return !r.Open() && r.Ended.Before(ended)
	})
	maps.DeleteFunc(c.Runs.seenEnd, func(id string, _ time.Time) bool { return c.Runs.byID[id] == nil })
	machines, controllers := map[string]bool{}, map[controller]bool{}
	for m := range c.Objects.ledger.Machines() {
		machines[m.UID], controllers[controllerOf(m.APIVersion, m.Namespace, m.ControllerOwner.UID)] = true, true
	}
	maps.DeleteFunc(c.Objects.replacements.neverReady, func(uid string, _ bool) bool { return !machines[uid] })
	maps.DeleteFunc(c.Objects.replacements.lastGood, func(of controller, _ time.Time) bool { return !controllers[of] })
	maps.DeleteFunc(c.Objects.stableUntil, func(_ string, until time.Time) bool { return until.Before(recent) })
}

// Healthy says whether the Node of a target is Ready and no run is open on its host, so that
// fenced does not switch it now.
func (c *Model) Healthy(t remediate.Target) bool {
	defer c.lock()()
	n := c.Objects.ledger.Node(t.Node)
	return n != nil && n.Ready() && !c.Runs.openOnHost(t)
}

// Disappearing lists the runs whose Machine, or the Node of that, is still being deleted: those that count against
// guards.maxDeletions, and those that have exceeded guards.deletionTimeout and count no more.
func (c *Model) Disappearing(now time.Time) (inProgress, overdue []remediate.Run) {
	defer c.lock()()
	if !c.Objects.complete {
		return nil, nil
	}
	return c.Runs.disappearing(c.Objects.ledger, c.Options.Limits.Now().Guards.DeletionTimeout, now)
}

// Limits are the limits of all clusters. A reload replaces all of
// them at once. A run keeps the limits of its start, which are in its record. nil Limits are zero.
type Limits struct{ now atomic.Pointer[CurrentLimits] }

// CurrentLimits are what must hold before a run starts, and the limits of a run that starts now.
type CurrentLimits struct {
	Guards guard.Limits
	Run    remediate.Limits
}

// NewLimits returns these limits.
func NewLimits(g guard.Limits, r remediate.Limits) *Limits {
	l := &Limits{}
	l.Replace(g, r)
	return l
}

// Replace makes these the limits from the next evaluation on.
func (l *Limits) Replace(g guard.Limits, r remediate.Limits) { l.now.Store(&CurrentLimits{g, r}) }

// Now returns the limits that apply now.
func (l *Limits) Now() CurrentLimits {
	if l == nil {
		return CurrentLimits{}
	}
	return *l.now.Load()
}
