package policy

import (
	"slices"
	"time"
)

// Ledger holds the objects of one cluster and what the checks think of them,
// and gives the answers of Decide without judging everything again for each
// event: an event marks the targets that it concerns, and only those are judged
// anew. What spans targets (counters, limits, overlaps, budgets, the control
// plane) is worked out when somebody asks, by the functions that Decide uses.
//
// It is not safe for concurrent use. Values handed in are never written.
type Ledger struct {
	w        *tables
	checks   map[checkKey]*checkEntry
	budgets  map[checkKey]*budgetEntry
	requests map[ObjectID]*Request
	// upgradeOf is the ClusterVersion that says whether the cluster is upgraded.
	upgradeOf ObjectID
	// errors are the objects that could not be decoded.
	errors map[ObjectID]ObjectError
	runs   []OpenRun

	// onMachine lists the targets that are Machines by name, onNode all targets by
	// the name of their Node.
	onMachine, onNode map[string][]*targetEntry
	acting            map[*targetEntry]bool
	fleet             Fleet
	zones             map[string]Fleet
	twins             map[string][]string

	// size is how many targets the checks select together, kept or not.
	size int

	now  time.Time // as of when everything is judged
	next time.Time // when time alone changes something; zero is never
	// dirty are the targets to be judged again; stale: also look at what the
	// checks are judged amid; full: judge everything.
	dirty       []*targetEntry
	stale, full bool
	version     uint64
}

// checkKey tells checks apart, whatever version of their API they were read in.
type checkKey struct {
	group, kind, namespace, name string
	// source is empty for the cluster's own.
	source string
}

// keyOf is the key of a check or budget; an empty source or "cluster" is the
// cluster's own.
func keyOf(id ObjectID, source string) checkKey {
	if source == "cluster" {
		source = ""
	}
	return checkKey{group(id.APIVersion), id.Kind, id.Namespace, id.Name, source}
}

// NewLedger makes a ledger that holds nothing yet.
func NewLedger(rules Rules) *Ledger {
	return &Ledger{
		w: newTables(rules), checks: map[checkKey]*checkEntry{}, budgets: map[checkKey]*budgetEntry{},
		requests: map[ObjectID]*Request{}, errors: map[ObjectID]ObjectError{},
		onMachine: map[string][]*targetEntry{}, onNode: map[string][]*targetEntry{},
		acting: map[*targetEntry]bool{}, zones: map[string]Fleet{}, twins: map[string][]string{},
	}
}

// Apply takes what changed. The same change twice is harmless.
func (l *Ledger) Apply(now time.Time, changes ...Change) {
	for i := range changes {
		l.apply(changes[i])
	}
	l.settle(now)
}

// SetRuns replaces the list of open runs.
func (l *Ledger) SetRuns(now time.Time, runs []OpenRun) {
	if !slices.Equal(runs, l.runs) {
		l.replaceRuns(runs)
	}
	l.settle(now)
}

// SetReadsOff notes whether the BMC of a Node has just been read Off twice.
func (l *Ledger) SetReadsOff(now time.Time, node string, off bool) {
	if l.w.readsOff[node] != off {
		delete(l.w.readsOff, node)
		if off {
			l.w.readsOff[node] = true
		}
		l.touchNode(node)
	}
	l.settle(now)
}

// Advance lets time pass.
func (l *Ledger) Advance(now time.Time) { l.settle(now) }

// Version grows when any verdict, action, refusal or gate may have changed.
func (l *Ledger) Version() uint64 { return l.version }

// Next is the first instant at which time alone changes something; false when
// no clock runs.
func (l *Ledger) Next() (time.Time, bool) { return l.next, !l.next.IsZero() }

// clockSlack is how far behind the ledger a caller's clock may be: it looks at
// the clock before it gets hold of the ledger.
const clockSlack = time.Second

// settle judges all that was marked, and all whose time has come, as of now. It
// gives the instant that it went by.
func (l *Ledger) settle(now time.Time) time.Time {
	now = now.Round(0).UTC() // the wall clock decides, as for the API's times
	switch {
	case now.Before(l.now.Add(-clockSlack)):
		l.full = true // the clock was set back: what was over may not be
	case now.Before(l.now):
		now = l.now
	}
	l.now = now
	if l.full || l.stale || !l.next.IsZero() && !now.Before(l.next) {
		for _, c := range l.checks {
			l.revise(c)
		}
		l.full, l.stale = false, false
	}
	for _, e := range l.dirty {
		e.dirty = false
		if !e.gone {
			l.judge(e)
		}
	}
	l.dirty = l.dirty[:0]
	l.next = time.Time{}
	for _, c := range l.checks {
		l.next = sooner(l.next, c.nextDue(now))
	}
	return now
}
