package policy

import (
	"slices"
	"time"
)

// Ledger holds the objects of one cluster and what the checks think of them. It
// answers as Decide does. It is not safe for concurrent use.
type Ledger struct {
	w        *tables
	checks   map[checkKey]*Check
	budgets  map[checkKey]*DisruptionBudget
	hosts    map[string]*Host
	requests map[ObjectID]*Request
	// errors are the objects that could not be decoded.
	errors  map[ObjectID]ObjectError
	runs    []OpenRun
	now     time.Time // the latest one heard of
	version uint64
}

// checkKey tells checks apart, whatever version of their API they were read in.
type checkKey struct {
	group, kind, namespace, name string
	// source is empty for the cluster's own.
	source string
}

// NewLedger makes a ledger that holds nothing yet.
func NewLedger(rules Rules) *Ledger {
	return &Ledger{
		w: newTables(rules), checks: map[checkKey]*Check{}, budgets: map[checkKey]*DisruptionBudget{},
		hosts: map[string]*Host{}, requests: map[ObjectID]*Request{}, errors: map[ObjectID]ObjectError{},
	}
}

// Apply takes what changed. The same change twice is harmless.
func (l *Ledger) Apply(now time.Time, changes ...Change) {
	l.now = now
	for i := range changes {
		l.apply(changes[i])
	}
	l.version++
}

// SetRuns replaces the list of open runs.
func (l *Ledger) SetRuns(now time.Time, runs []OpenRun) {
	l.now = now
	if slices.Equal(runs, l.runs) {
		return
	}
	l.runs = slices.Clone(runs)
	l.w.runs = map[string]OpenRun{}
	for _, r := range runs {
		l.w.putRun(r)
	}
	l.version++
}

// SetReadsOff notes whether the BMC of a Node has just been read Off twice.
func (l *Ledger) SetReadsOff(now time.Time, node string, off bool) {
	l.now = now
	if l.w.readsOff[node] == off {
		return
	}
	delete(l.w.readsOff, node)
	if off {
		l.w.readsOff[node] = true
	}
	l.version++
}

// Advance lets time pass.
func (l *Ledger) Advance(now time.Time) {
	l.now = now
	l.version++
}

// Version grows when any verdict, action, refusal or gate may have changed.
func (l *Ledger) Version() uint64 { return l.version }
