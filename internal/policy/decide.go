package policy

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/fenced/fenced/internal/reason"
)

// Decide evaluates every check of the snapshot at one instant. The order of the
// rules is the order of the lines: each check by itself, then the effect of one
// check on another, the budgets, and the control plane as a whole.
//
// It is the reference implementation. The Ledger gives the same answer
// incrementally.
func Decide(s Snapshot, now time.Time) Report {
	now = now.UTC()
	var crowded map[space]bool
	s.Checks, crowded = s.Rules.seated(s.Checks)
	w := tablesOf(&s)
	r := Report{At: now, Checks: make([]CheckReport, 0, len(s.Checks)), Errors: []ObjectError{}}
	for i := range s.Checks {
		r.Checks = append(r.Checks, w.decideCheck(&s.Checks[i], now))
	}
	for i := range s.Budgets {
		r.Budgets = append(r.Budgets, w.countBudget(&s.Budgets[i]))
	}
	r.Errors = append(append(r.Errors, s.Errors...), s.Rules.crowdErrors(crowded)...)
	w.finish(&r, s.Budgets)
	return r
}

// finish sorts the report and adds the refusals that no check can see by itself.
func (w *tables) finish(r *Report, budgets []DisruptionBudget) {
	slices.SortFunc(r.Checks, byName)
	slices.SortFunc(r.Errors, func(a, b ObjectError) int {
		return cmp.Or(strings.Compare(a.Object, b.Object), strings.Compare(a.Message, b.Message))
	})
	w.refuseOverlaps(r)
	w.refuseHosts(r)
	w.refuseBudgets(r, budgets)
	w.guardControlPlane(r)
	refuseDelegated(r)
}

// refuseDelegated refuses what fenced leaves to another controller. It comes last,
// because that controller acts: its targets keep their turn and their place.
func refuseDelegated(r *Report) {
	for i := range r.Checks {
		c := &r.Checks[i]
		for j := range c.Targets {
			if t := &c.Targets[j]; c.isDelegated(t) {
				t.refuse(reason.Delegated)
			}
		}
	}
}

// isDelegated reports whether the check's own controller acts on a target, by a request that fenced does
// not make.
func (r *CheckReport) isDelegated(t *TargetReport) bool {
	next := cmp.Or(t.Template, r.template)
	return t.Action == CreateRequest && !r.makesRequests && next != nil && !next.IsOwn()
}

// decideCheck evaluates one check as if it were the only one in the cluster.
func (w *tables) decideCheck(c *Check, now time.Time) CheckReport {
	a := w.checkContext(c)
	st := settingOf(c, a, now)
	r := newCheckReport(c, a, &st)
	var n count
	subjects := w.selected(c)
	for i := range subjects {
		x := &subjects[i]
		if st.state != StateActive {
			r.idle[subjectName(x.nodeName(), x.machineKey())] = true
			continue
		}
		t := evaluate(c, a, &st, x, now)
		n.add(&t)
		r.Targets = append(r.Targets, t)
	}
	r.applyLimit(c, &st, n, now)
	return r
}

// recheckCap is the longest time in seconds until an OpenShift check is evaluated
// again while one of its timeouts runs.
const recheckCap = 3600

// count holds the counters of a check's targets.
type count struct {
	// expected are the targets that the check's limit applies to.
	expected, healthy int
	// unlabelled are those of which nobody knows whether they are targets. They close a gate, and open none. // I11
	unlabelled int
	// doubtful are those of which nobody knows whether they are healthy. They open no gate, either.
	doubtful int
	// sick are the targets past a timeout, whether or not the check would remediate
	// them.
	sick int
	// running are the targets under remediation. Their Nodes may not exist.
	running int
	// recheck is the shortest wait of the targets in seconds; 0 means none.
	recheck int
}

// add counts one target.
func (n *count) add(t *TargetReport) {
	n.addVerdict(t, 1)
	n.wait(t.RecheckAfterSeconds)
}

// addVerdict adds one target to the counts, or removes it: by is 1 or -1.
func (n *count) addVerdict(t *TargetReport, by int) {
	if t.uncounted {
		return
	}
	if t.Verdict != Skipped {
		n.expected += by
	}
	if t.Verdict == Healthy {
		n.healthy += by
	}
	if t.Verdict == Unhealthy || t.Reason == reason.Excluded {
		n.sick += by
	}
	if t.Reason == reason.UnderRemediation {
		n.running += by
	}
	if t.unlabelled {
		n.unlabelled += by
	} else if t.isDoubtful() {
		n.doubtful += by
	}
}

// wait records a wait in seconds; 0 means none.
func (n *count) wait(seconds int) {
	if seconds > 0 && (n.recheck == 0 || seconds < n.recheck) {
		n.recheck = seconds
	}
}

func newCheckReport(c *Check, a CheckContext, st *setting) CheckReport {
	return CheckReport{
		Kind: c.Kind, APIVersion: c.APIVersion, Namespace: c.Namespace, Name: c.Name,
		State: st.state, Message: st.message, Conflicting: st.conflicting, Targets: []TargetReport{}, UID: c.UID, Source: c.Source,
		unread: c.Selector == nil || a.OverTargetLimit, idle: map[string]bool{}, countOnly: c.Strategy == CountOnly, Limit: c.family().limitText(c), Due: st.due, Storm: c.Storm,
		upgrading: a.Upgrading, template: c.Template, makesRequests: c.MakesRequests(),
		NeedsHosts: c.Strategy == PowerCycleHosts || c.firstIsOwn(),
		minHealthy: c.family() == medik8s && c.MaxUnhealthy == nil,
	}
}

// applyLimit fills in the counters, the gate and the time of the next evaluation,
// once the targets are evaluated. Every target that is not healthy counts against
// the limit: also those still inside their timeout, being deleted, or under
// remediation.
func (r *CheckReport) applyLimit(c *Check, st *setting, n count, now time.Time) {
	if st.state != StateActive {
		return
	}
	y := c.family().tally(c, n)
	if y.invalid != "" {
		r.invalidate(y.invalid)
		return
	}
	r.Expected, r.Healthy, r.running, r.doubtful = n.expected, n.healthy, n.running, n.doubtful
	r.MaxUnhealthy, r.MinUnhealthy = y.max, y.min
	r.Allowed, r.RemediationsAllowed, r.Message = y.allowed, y.more, cmp.Or(y.message, st.message)
	if !y.allowed {
		r.gate = append(r.gate, y.reason)
		r.Message += r.runningText() + r.doubtText()
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

// invalidate discards the verdicts, because the check's limit cannot be applied
// to the targets that it has.
func (r *CheckReport) invalidate(why string) {
	for i := range r.Targets {
		r.idle[r.Targets[i].Subject()] = true
	}
	r.State, r.Message, r.Targets = StateInvalid, why, []TargetReport{}
}

// byName orders checks for display, independent of the input order.
func byName(a, b CheckReport) int { return a.ID().compare(b.ID()) }

// limit is a parsed maxUnhealthy: a number of targets, or a percentage.
type limit struct {
	value   int
	percent bool
}

// parseLimit parses maxUnhealthy as OpenShift does: an integer, or a string of an
// integer with an optional percent sign. "2" is two targets, not two percent. Nil
// is 100%.
func parseLimit(raw *intstr.IntOrString) (limit, error) {
	if raw == nil {
		return limit{value: 100, percent: true}, nil
	}
	if raw.Type == intstr.Int {
		return limit{value: int(raw.IntVal)}, nil
	}
	digits, percent := strings.CutSuffix(raw.StrVal, "%")
	value, err := strconv.Atoi(digits)
	if err != nil {
		return limit{}, fmt.Errorf("spec.maxUnhealthy: %q is neither a whole number nor a percentage", raw.StrVal)
	}
	return limit{value: value, percent: percent}, nil
}

// of returns the limit as a number of expected targets: rounded down, never
// negative, and not capped, so 150% is more than all.
func (l limit) of(expected int) int {
	if !l.percent {
		return max(0, l.value)
	}
	// Floating point, because a huge percentage must not overflow.
	return int(min(max(0, math.Floor(float64(l.value)*float64(expected)/100)), math.MaxInt32))
}

// tally is the limit of a check applied to its counters.
type tally struct {
	limit    string // as written
	max, min int    // as numbers of targets
	allowed  bool
	more     int         // remediations that the limit still allows
	reason   reason.Code // why it is not allowed
	message  string
	invalid  string // why the limit cannot be applied to these counters
}
