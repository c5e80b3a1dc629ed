package admit

import (
	"cmp"
	"sync"
	"time"

	"github.com/fenced/fenced/internal/policy"
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
