package policy

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/reason"
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
	for i := range s.Budgets {
		r.Budgets = append(r.Budgets, w.countBudget(&s.Budgets[i]))
	}
	r.Errors = append(r.Errors, s.Errors...)
	w.finish(&r, s.Budgets)
	return r
}

// finish puts the report in order and adds the refusals that no check shows by
// itself.
func (w *tables) finish(r *Report, budgets []DisruptionBudget) {
	slices.SortFunc(r.Checks, byName)
	slices.SortFunc(r.Errors, func(a, b ObjectError) int {
		return cmp.Or(strings.Compare(a.Object, b.Object), strings.Compare(a.Message, b.Message))
	})
	refuseOverlaps(r)
	w.refusePowerOwners(r)
	w.refuseBudgets(r, budgets)
	w.guardControlPlane(r)
}

// decideCheck judges one check as if it were alone in the cluster.
func (w *tables) decideCheck(c *Check, now time.Time) CheckReport {
	a := w.checkContext(c)
	st := settingOf(c, a, now)
	r := newCheckReport(c, a, &st)
	var n count
	subjects := w.selected(c)
	for i := range subjects {
		x := &subjects[i]
		if st.state != StateActive {
			r.idle[x.nodeName()] = true
			continue
		}
		t := judge(c, a, &st, x, now)
		n.add(&t)
		r.Targets = append(r.Targets, t)
	}
	r.conclude(c, &st, n, now)
	return r
}

// count is what the targets of a check come to.
type count struct {
	// expected are those that the check's limit is about.
	expected, healthy int
	// sick are past a timeout, whether or not the check would have them remedied.
	sick int
	// recheck is the shortest of their waits in seconds; 0 is none.
	recheck int
}

// add counts one target.
func (n *count) add(t *TargetReport) {
	n.weigh(t, 1)
	n.wait(t.RecheckAfterSeconds)
}

// weigh adds one target to the numbers, or takes it out of them.
func (n *count) weigh(t *TargetReport, by int) {
	if t.Verdict != Skipped {
		n.expected += by
	}
	if t.Verdict == Healthy {
		n.healthy += by
	}
	if t.Verdict == Unhealthy || t.Reason == reason.Excluded {
		n.sick += by
	}
}

// wait notes a wait in seconds; 0 is none.
func (n *count) wait(seconds int) {
	if seconds > 0 && (n.recheck == 0 || seconds < n.recheck) {
		n.recheck = seconds
	}
}

func newCheckReport(c *Check, a CheckContext, st *setting) CheckReport {
	return CheckReport{
		Kind: c.Kind, APIVersion: c.APIVersion, Namespace: c.Namespace, Name: c.Name,
		State: st.state, Message: st.message, Targets: []TargetReport{}, UID: c.UID, Source: c.Source,
		unread: c.Selector == nil || a.Crowded, idle: map[string]bool{}, countOnly: c.Strategy == CountOnly, Limit: c.limitText(), Due: st.due, Storm: c.Storm,
		minHealthy: c.family() == medik8s && c.MaxUnhealthy == nil,
	}
}

// conclude fills in the counters, the gate and the next look, once the targets
// are judged. Whatever is not healthy counts against the limit: also targets
// that are still inside their timeout, that are being deleted, or that are
// being remedied.
func (r *CheckReport) conclude(c *Check, st *setting, n count, now time.Time) {
	if st.state != StateActive {
		return
	}
	y := c.tally(n.expected, n.healthy)
	if y.invalid != "" {
		r.invalidate(y.invalid)
		return
	}
	r.Expected, r.Healthy = n.expected, n.healthy
	r.MaxUnhealthy, r.MinUnhealthy = y.max, y.min
	r.Allowed, r.RemediationsAllowed, r.Message = y.allowed, y.more, cmp.Or(y.message, st.message)
	if !y.allowed {
		r.gate = append(r.gate, y.reason)
	}
	r.gate = append(r.gate, st.refusals...)
	r.updateStorm(c, st, y.allowed, n.sick > 0, now)
	n.wait(r.RecheckAfterSeconds)
	r.RecheckAfterSeconds = n.recheck
	for i := range r.Targets {
		if t := &r.Targets[i]; t.Action != None {
			t.Refusals = append(append([]reason.Code{}, r.gate...), t.Refusals...) // never null in JSON
		}
	}
	if c.family() == openShift {
		r.RecheckAfterSeconds = min(r.RecheckAfterSeconds, recheckCap)
	}
}

// invalidate takes back what was judged: the check's limit cannot be applied
// to the targets that it has.
func (r *CheckReport) invalidate(why string) {
	for i := range r.Targets {
		r.idle[r.Targets[i].Node] = true
	}
	r.State, r.Message, r.Targets = StateInvalid, why, []TargetReport{}
}

// byName orders checks for people, whatever order they came in.
func byName(a, b CheckReport) int {
	return cmp.Or(
		strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name),
		strings.Compare(a.Kind, b.Kind), strings.Compare(a.APIVersion, b.APIVersion),
		strings.Compare(a.Source, b.Source))
}
