package policy

import (
	"slices"
	"time"
)

// Report is what Decide finds in the Snapshot.
func (l *Ledger) Report(now time.Time) Report { return Decide(l.Snapshot(), now) }

// Next is the first instant at which time alone changes something.
func (l *Ledger) Next() (time.Time, bool) {
	r := l.Report(l.now)
	return r.NextCheck()
}

// Acting gives the checks that ask for something, with the targets that they
// ask it for only, refused or not.
func (l *Ledger) Acting(now time.Time) []CheckReport {
	r := l.Report(now)
	for i := range r.Checks {
		r.Checks[i].Targets = slices.DeleteFunc(r.Checks[i].Targets, func(t TargetReport) bool { return t.Action == None })
	}
	return slices.DeleteFunc(r.Checks, func(c CheckReport) bool { return len(c.Targets) == 0 })
}

// Counters gives every check without its targets.
func (l *Ledger) Counters() []CheckReport {
	r := l.Report(l.now)
	for i := range r.Checks {
		r.Checks[i].Targets = []TargetReport{}
	}
	return r.Checks
}

// OnNode is the report restricted to one Node: the checks that judge it, or
// would if they were evaluated, with that target only.
func (l *Ledger) OnNode(node string, now time.Time) Report {
	r := l.Report(now)
	r.restrict(node)
	return r
}

func (r *Report) restrict(node string) {
	for i := range r.Checks {
		c := &r.Checks[i]
		c.Targets = slices.DeleteFunc(c.Targets, func(t TargetReport) bool { return t.Node != node })
		if c.idle[node] {
			c.idle = map[string]bool{node: true}
		} else {
			c.idle = map[string]bool{}
		}
	}
	r.Checks = slices.DeleteFunc(r.Checks, func(c CheckReport) bool {
		return len(c.Targets) == 0 && (c.State == StateActive || !c.unread && !c.idle[node])
	})
}
