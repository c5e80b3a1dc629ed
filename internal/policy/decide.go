package policy

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// recheckCap is the longest a check of the OpenShift lineage goes unlooked at
// while one of its clocks runs.
const recheckCap = 3600

// Decide judges every check of the snapshot at one instant. The order of the
// rules is the order of the lines: each check by itself, then what one check
// does to another, the budgets that span them, and the control plane as a whole.
//
// It is the plain reference: the Ledger gives the same answer and does not
// judge everything again for each event.
func Decide(s Snapshot, now time.Time) Report {
	now = now.UTC()
	w := tablesOf(&s)
	r := Report{At: now, Checks: make([]CheckReport, 0, len(s.Checks)), Errors: []ObjectError{}}
	for i := range s.Checks {
		r.Checks = append(r.Checks, w.decideCheck(&s.Checks[i], now))
	}
	slices.SortFunc(r.Checks, byName)
	for i := range s.Budgets {
		r.Budgets = append(r.Budgets, w.countBudget(&s.Budgets[i]))
	}
	w.acrossChecks(&r, s.Budgets)
	r.Errors = append(r.Errors, s.Errors...)
	slices.SortFunc(r.Errors, func(a, b ObjectError) int {
		return cmp.Or(strings.Compare(a.Object, b.Object), strings.Compare(a.Message, b.Message))
	})
	return r
}

// decideCheck judges one check as if it were alone in the cluster.
func (w *tables) decideCheck(c *Check, now time.Time) CheckReport {
	a := w.surroundings(c)
	st := settingOf(c, a, now)
	r := newCheckReport(c, &st)
	healthy := 0
	subjects := w.selected(c)
	for i := range subjects {
		x := &subjects[i]
		if st.state != StateActive {
			r.idle[x.nodeName()] = true
			continue
		}
		t := judge(c, a, &st, x, now)
		if t.Verdict == Healthy {
			healthy++
		}
		r.Targets = append(r.Targets, t)
	}
	r.conclude(c, &st, counted(r.Targets), healthy, now)
	return r
}

// counted is how many targets the check's limit is about.
func counted(targets []TargetReport) (n int) {
	for i := range targets {
		if targets[i].Verdict != Skipped {
			n++
		}
	}
	return n
}

func newCheckReport(c *Check, st *setting) CheckReport {
	return CheckReport{
		Kind: c.Kind, APIVersion: c.APIVersion, Namespace: c.Namespace, Name: c.Name,
		State: st.state, Message: st.message, Targets: []TargetReport{}, UID: c.UID, Source: c.Source,
		unread: c.Selector == nil, idle: map[string]bool{}, pets: c.Strategy == CountOnly, Limit: c.limitText(), Due: st.due,
	}
}

// conclude fills in the counters, the gate and the next look, once the targets
// are judged. Whatever is not healthy counts against the limit: also targets
// that are still inside their timeout, that are being deleted, or that are
// being remedied.
func (r *CheckReport) conclude(c *Check, st *setting, expected, healthy int, now time.Time) {
	if st.state != StateActive {
		return
	}
	y := c.tally(expected, healthy)
	if y.invalid != "" {
		r.State, r.Message, r.Targets = StateInvalid, y.invalid, []TargetReport{}
		return
	}
	r.Expected, r.Healthy = expected, healthy
	r.MaxUnhealthy, r.MinUnhealthy = y.max, y.min
	r.Allowed, r.RemediationsAllowed, r.Message = y.allowed, y.more, y.message
	if !y.allowed {
		r.gate = append(r.gate, y.reason)
	}
	r.gate = append(r.gate, st.refusals...)
	for i := range r.Targets {
		t := &r.Targets[i]
		if s := t.RecheckAfterSeconds; s > 0 && (r.RecheckAfterSeconds == 0 || s < r.RecheckAfterSeconds) {
			r.RecheckAfterSeconds = s
		}
		if t.Action != None {
			t.Refusals = append(append([]Reason{}, r.gate...), t.Refusals...) // never null in JSON
		}
	}
	if c.lineage() == openShift {
		r.RecheckAfterSeconds = min(r.RecheckAfterSeconds, recheckCap)
	}
}

// acrossChecks adds the refusals that no check shows by itself.
func (w *tables) acrossChecks(r *Report, budgets []DisruptionBudget) {
	refuseOverlaps(r)
	w.refuseBudgets(r, budgets)
	w.guardControlPlane(r)
}

// byName orders checks for people, whatever order they came in.
func byName(a, b CheckReport) int {
	return cmp.Or(
		strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name),
		strings.Compare(a.Kind, b.Kind), strings.Compare(a.APIVersion, b.APIVersion),
		strings.Compare(a.Source, b.Source))
}
