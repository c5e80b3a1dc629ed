package admit

import (
	"sync/atomic"
	"time"

	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
)

// Files are the checks and budgets of policies.d for one cluster.
type Files struct {
	Checks  []policy.Check
	Budgets []policy.DisruptionBudget
}

// Policies takes in other Files while the cluster is being decided about.
type Policies struct {
	c    *Cluster
	next atomic.Pointer[Files] // nil: there is nothing to take in
}

// Replace has the deciding goroutine take the Files in between two decisions.
func (p *Policies) Replace(f Files) {
	p.next.Store(&f)
	p.c.Wake()
}

// takeIn switches to the Files that wait, if there are any. The quiet period of a larger scope
// begins before the first decision with it. Only the deciding goroutine calls it. // I18
func (p *Policies) takeIn(now time.Time) {
	f := p.next.Swap(nil)
	if f == nil {
		return
	}
	for _, ev := range p.c.scope.replaceFiles(f.Checks, now) {
		p.c.emit(ev)
	}
	bookFiles{p.c.book}.replace(*f, now)
}

// replaceFiles begins a quiet period if fenced may act on more with these checks than with
// those before. The scope is stored again after it. // I18
func (k *scopeKeeper) replaceFiles(checks []policy.Check, now time.Time) (events []event.Event) {
	before := scopeOf(k.opt)
	k.opt.Files, k.stored = checks, false
	why := whyEnlarged(before, scopeOf(k.opt))
	if why == "" {
		return nil
	}
	k.opt.View.BeQuiet(now)
	if k.opt.Limits.Guards().QuietPeriod > 0 {
		events = append(events, event.Event{Type: event.Internal, Reason: reason.QuietPeriod,
			Message: "after the reload fenced may act on more than before (" + why + "): the quiet period begins"})
	}
	return events
}

// bookFiles is the Book as what replaces its Files.
type bookFiles struct{ *Book }

// replace replaces the checks and budgets from files. A check of the same name keeps the
// state of its storm, on whatever line it stands now.
func (b bookFiles) replace(f Files, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	was := map[string]policy.Storm{}
	for k, storm := range b.storms {
		if isFromFile(k.id) {
			was[checkID(k.id)] = storm
			delete(b.storms, k)
		}
	}
	checks := append([]policy.Check(nil), f.Checks...)
	for i := range checks {
		if storm, known := was[checkID(checks[i].ID())]; known {
			checks[i].Storm = storm
			b.storms[checkKey{checks[i].ID(), checks[i].UID}] = storm
		}
	}
	b.ledger.SetFiles(now, checks, f.Budgets)
}

func isFromFile(id policy.CheckID) bool { return id.Source != "" && id.Source != "cluster" }
