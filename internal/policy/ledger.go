package policy

import (
	"slices"
	"time"

	"github.com/fenced/fenced/internal/times"
)

// Ledger holds the objects of one cluster and the results of the checks. It gives
// the answers of Decide incrementally: a change marks the targets that it
// concerns, and only those are evaluated again. Results across targets (counters,
// limits, overlaps, budgets, the control plane) are computed on each query, by
// the functions that Decide uses.
//
// It is not safe for concurrent use. It never modifies the values passed to it.
type Ledger struct {
	w        *tables
	checks   map[checkKey]*checkEntry
	budgets  map[checkKey]*budgetEntry
	requests map[ObjectID]*Request
	// upgradeOf is the ClusterVersion that reports the upgrade.
	upgradeOf ObjectID
	// errors are the objects that could not be decoded.
	errors map[ObjectID]ObjectError
	runs   []OpenRun

	// onMachine lists the targets that are Machines by their name, onNode all
	// targets by the name of their Node.
	onMachine, onNode map[string][]*targetEntry
	acting            map[*targetEntry]bool
	fleet             Fleet
	zones             map[string]Fleet

	// byAuthor lists the checks of each namespace by name, with those that are not evaluated; crowded are
	// the namespaces that have such.
	byAuthor map[space][]*Check
	crowded  map[space]bool
	// sizes is how many targets the checks of each namespace select together, including
	// those over the target limit; resized are the namespaces where that has changed. resumes
	// is when those that were over the limit and no longer are, are evaluated again.
	sizes   map[space]int
	resized map[space]bool
	resumes map[space]time.Time

	now  time.Time // the instant of the last evaluation
	next time.Time // when a result changes by the passage of time alone; zero is never
	// dirty are the targets to evaluate again. stale: also evaluate the contexts of
	// the checks again. full: evaluate everything again.
	dirty       []*targetEntry
	stale, full bool
	version     uint64
}

// checkKey identifies a check, whichever version of its API it was read in.
type checkKey struct {
	group, kind, namespace, name string
	// source is empty for a check from the cluster.
	source string
}

// keyOf is the key of a check or budget. A source of "" or "cluster" means the
// cluster.
func keyOf(id ObjectID, source string) checkKey {
	if source == "cluster" {
		source = ""
	}
	return checkKey{group(id.APIVersion), id.Kind, id.Namespace, id.Name, source}
}

// NewLedger returns an empty ledger.
func NewLedger(rules Rules) *Ledger {
	return &Ledger{
		w: newTables(rules), checks: map[checkKey]*checkEntry{}, budgets: map[checkKey]*budgetEntry{},
		requests: map[ObjectID]*Request{}, errors: map[ObjectID]ObjectError{},
		onMachine: map[string][]*targetEntry{}, onNode: map[string][]*targetEntry{},
		acting: map[*targetEntry]bool{}, zones: map[string]Fleet{},
		byAuthor: map[space][]*Check{}, crowded: map[space]bool{},
		sizes: map[space]int{}, resized: map[space]bool{}, resumes: map[space]time.Time{},
	}
}

// Apply records changes and evaluates what they concern. It is idempotent.
func (l *Ledger) Apply(now time.Time, changes ...Change) {
	for i := range changes {
		l.apply(changes[i])
	}
	l.evaluateDue(now)
}

// SetRuns replaces the list of open runs.
func (l *Ledger) SetRuns(now time.Time, runs []OpenRun) {
	if !slices.EqualFunc(runs, l.runs, OpenRun.Equal) {
		l.replaceRuns(runs)
	}
	l.evaluateDue(now)
}

// SetReadsOff records whether the BMC of a Node has just been read Off twice.
func (l *Ledger) SetReadsOff(now time.Time, node string, off bool) {
	if l.w.readsOff[node] != off {
		delete(l.w.readsOff, node)
		if off {
			l.w.readsOff[node] = true
		}
		l.touchNode(node)
	}
	l.evaluateDue(now)
}

// Advance evaluates what the passage of time concerns.
func (l *Ledger) Advance(now time.Time) { l.evaluateDue(now) }

// Version increases whenever a verdict, action, refusal or gate may have changed.
func (l *Ledger) Version() uint64 { return l.version }

// Next is the first instant at which a result changes by the passage of time
// alone; false if no timeout runs.
func (l *Ledger) Next() (time.Time, bool) { return l.next, !l.next.IsZero() }

// clockSlack is how far a caller's clock may be behind the ledger's. A caller
// reads the clock before it locks the ledger.
const clockSlack = time.Second

// evaluateDue evaluates all marked targets, and all whose time has come, as of
// now. It returns the instant that it used.
func (l *Ledger) evaluateDue(now time.Time) time.Time {
	now = now.Round(0).UTC() // compare wall clocks, as the API's timestamps do
	switch {
	case now.Before(l.now.Add(-clockSlack)):
		l.full = true // the clock was set back: expired timeouts may run again
	case now.Before(l.now):
		now = l.now
	}
	l.now = now
	l.resumeWithinLimit(now)
	if l.full || l.stale || !l.next.IsZero() && !now.Before(l.next) {
		for _, c := range l.checks {
			l.refreshCheck(c)
		}
		l.full, l.stale = false, false
	}
	for _, e := range l.dirty {
		e.dirty = false
		if !e.gone {
			l.evaluate(e)
		}
	}
	l.dirty = l.dirty[:0]
	l.next = time.Time{}
	for _, c := range l.checks {
		l.next = times.Sooner(l.next, c.nextDue(now))
	}
	for _, at := range l.resumes {
		l.next = times.Sooner(l.next, at)
	}
	return now
}
