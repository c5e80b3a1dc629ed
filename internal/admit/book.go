package admit

import (
	"cmp"
	"sync"
	"time"

	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
)

// BookOptions is what the Book of one cluster is made from.
type BookOptions struct {
	Name   string // of the cluster
	Guards guard.Limits
	// Rules is what the administrator decided for all checks.
	Rules policy.Rules
	Draft Drafter
	// FileChecks and FileBudgets are from policies.d.
	FileChecks  []policy.Check
	FileBudgets []policy.DisruptionBudget
}

// Book is what is known about one cluster: what its watch shows, as policy's ledger has
// evaluated it, and its runs. Both are under one lock, so that of two candidates that
// exclude each other one becomes a run. // I11
type Book struct {
	opt     BookOptions
	started time.Time

	mu     sync.Mutex
	ledger *policy.Ledger
	runs   runs
	storms storms
	well   wellUntil
	moved  bool   // runs changed since the ledger was told
	seen   uint64 // version of the ledger at the last Follow
	whole  bool   // the ledger has seen the cluster whole
	leads  bool   // this instance's memory of the runs is the newest
}

// NewBook begins a Book with the checks from files.
func NewBook(opt BookOptions, started time.Time) *Book {
	opt.Rules.ClusterRequired, opt.Rules.NodesCountAsMembers = true, false // this is a live cluster
	opt.Rules.ZoneKey = cmp.Or(opt.Rules.ZoneKey, opt.Guards.ZoneKey)
	opt.Draft.cluster, opt.Draft.replace = opt.Name, opt.Rules.DeleteControlPlaneMachines
	b := &Book{
		opt: opt, started: started, ledger: policy.NewLedger(opt.Rules), runs: newRuns(), storms: storms{},
		well: wellUntil{}, moved: true,
	}
	b.ledger.Apply(started, fromFiles(opt)...)
	return b
}

// fromFiles are the checks and budgets of policies.d as the ledger takes them.
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

// follow brings the ledger up to date with the view, the open runs and the time. outage is
// when the view was last whole again. It says whether anything may have to be done
// differently, and when time alone could change something; zero = never.
func (b *Book) follow(now time.Time, changes []policy.Change, outage time.Time) (moved bool, due time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range changes {
		b.storms.keep(&changes[i], later(b.started, outage))
	}
	b.well.note(b.ledger, now, changes)
	b.ledger.Apply(now, changes...)
	b.bringRuns(now)
	b.ledger.Advance(now)
	if moved = b.ledger.Version() != b.seen || !b.whole; moved {
		b.storms.remember(b.ledger, now)
	}
	b.whole, b.seen = true, b.ledger.Version() // others let time pass in the ledger, too
	due, _ = b.ledger.Next()
	return moved, due
}

// bringRuns makes the ledger know which runs are open: policy counts their targets as not
// healthy and asks for nothing more. b.mu is held.
func (b *Book) bringRuns(now time.Time) {
	if b.moved {
		b.ledger.SetRuns(now, b.runs.openTargets())
		b.moved = false
	}
}

// setReadsOff records whether the BMC of a Node's host reads Off, for the checks that
// would not wait then.
func (b *Book) setReadsOff(now time.Time, node string, off bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ledger.SetReadsOff(now, node, off)
}

// waiting drafts a run for each target that a check waits for which would act at once on a
// host that is off; also for one in known that is unhealthy only because its BMC reads Off.
// some is false when no check would.
func (b *Book) waiting(known map[string]bool) (wanted map[string]remediate.Run, some bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	wanted = map[string]remediate.Run{}
	for _, r := range b.ledger.Counters() {
		check := b.ledger.Check(r.ID())
		if check == nil || !check.ShortenOnEvidence {
			continue
		}
		some = true
		for _, t := range b.ledger.Waiting(r.ID()) {
			if t.Node == "" || t.Verdict != policy.Pending && (t.Verdict != policy.Unhealthy || !known[t.Node]) {
				continue
			}
			wanted[t.Node] = remediate.Run{Target: targetOf(b.ledger, b.opt.Name, judgedMachine(b.ledger, &t), b.ledger.Node(t.Node), t.Node)}
		}
	}
	return wanted, some
}
