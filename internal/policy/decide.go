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
	"github.com/fenced/fenced/internal/times"
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
		b, n := &s.Budgets[i], budgetCount{}
		n.addAll(w, b)
		r.Budgets = append(r.Budgets, n.report(b, b.unseen(w)))
	}
	r.Errors = append(r.Errors, s.Errors...)
	w.finish(&r, s.Budgets, crowded)
	return r
}

// finish sorts the report and adds what no check can see by itself: the refusals, and the namespaces that have
// more checks than are evaluated.
func (w *tables) finish(r *Report, budgets []DisruptionBudget, crowded map[space]bool) {
	for author := range crowded {
		r.Errors = append(r.Errors, ObjectError{Object: author.text(), Message: string(reason.CheckLimit) + ": " + w.rules.checkLimitMessage()})
	}
	slices.SortFunc(r.Checks, byName)
	slices.SortFunc(r.Errors, func(a, b ObjectError) int {
		return cmp.Or(strings.Compare(a.Object, b.Object), strings.Compare(a.Message, b.Message))
	})
	w.refuseOverlaps(r)
	w.refuseHosts(r)
	w.refuseBudgets(r, budgets)
	w.guardControlPlane(r)
	// What fenced leaves to another controller comes last, because that controller acts: its targets keep their
	// turn and their place.
	for i := range r.Checks {
		c := &r.Checks[i]
		for j := range c.Targets {
			t := &c.Targets[j]
			if _, delegated := c.executor(t); delegated {
				t.refuse(reason.Delegated)
			}
		}
	}
}

// powerCycles reports whether fenced itself power-cycles the host for a target: a request from its
// own template needs no object. template is that of the check.
func (t *TargetReport) powerCycles(template *Template) bool {
	next := cmp.Or(t.Template, template)
	return t.Action == PowerCycle || t.Action == CreateRequest && next != nil && next.IsOwn()
}

// executor reports whether fenced itself power-cycles the host for a target. delegated: the check's own controller
// acts, by a request that fenced does not make.
func (r *CheckReport) executor(t *TargetReport) (powerCycles, delegated bool) {
	powerCycles = t.powerCycles(r.template)
	asks := t.Action == CreateRequest && cmp.Or(t.Template, r.template) != nil
	return powerCycles, asks && !powerCycles && !r.makesRequests
}

// decideCheck evaluates one check as if it were the only one in the cluster.
func (w *tables) decideCheck(c *Check, now time.Time) CheckReport {
	a := w.CheckContext(c)
	st := settingOf(c, a, now)
	var n count
	targets, idle := []TargetReport{}, map[string]bool{}
	var subjects []Subject
	if !a.OverTargetLimit {
		subjects = w.selected(c)
	}
	for i := range subjects {
		x := &subjects[i]
		if st.state != StateActive {
			idle[cmp.Or(x.nodeName(), x.machineKey())] = true
			continue
		}
		t := evaluate(c, a, &st, x, now)
		n.addVerdict(&t, 1)
		n.wait(t.RecheckAfterSeconds)
		targets = append(targets, t)
	}
	return newCheckReport(c, a, &st, targets, idle, n, now)
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

// addVerdict adds one target to the counts, or removes it: by is 1 or -1. Nil is healthy and nothing else.
func (n *count) addVerdict(t *TargetReport, by int) {
	switch {
	case t == nil:
		n.expected += by
		n.healthy += by
		return
	case t.uncounted:
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

// newCheckReport is the report of a check, once its targets are evaluated: the counters, which cover all of them, the
// gate and the time of the next evaluation. Every target that is not healthy counts against
// the limit: also those still inside their timeout, being deleted, or under
// remediation.
func newCheckReport(c *Check, a CheckContext, st *setting, targets []TargetReport, idle map[string]bool, n count, now time.Time) CheckReport {
	r := CheckReport{
		Kind: c.Kind, APIVersion: c.APIVersion, Namespace: c.Namespace, Name: c.Name,
		State: st.state, Message: st.message, Conflicting: st.conflicting, Targets: targets, UID: c.UID, Source: c.Source,
		unread: c.Selector == nil || a.OverTargetLimit, idle: idle, countOnly: c.Strategy == CountOnly, Limit: c.family().limitText(c), Due: st.due, Storm: c.Storm,
		upgrading: a.Upgrading, template: c.Template, makesRequests: c.MakesRequests(),
		NeedsHosts: c.Strategy == PowerCycleHosts || c.firstIsOwn(),
		minHealthy: c.family() == medik8s && c.MaxUnhealthy == nil,
	}
	if st.state != StateActive {
		return r
	}
	y := c.family().tally(c, n)
	if y.invalid != "" { // without verdicts: the limit cannot be applied to these targets
		for i := range r.Targets {
			r.idle[r.Targets[i].Subject()] = true
		}
		r.State, r.Message, r.Targets = StateInvalid, y.invalid, []TargetReport{}
		return r
	}
	r.Expected, r.Healthy, r.running, r.doubtful = n.expected, n.healthy, n.running, n.doubtful
	r.MaxUnhealthy, r.MinUnhealthy = y.max, y.min
	r.Allowed, r.RemediationsAllowed, r.Message = y.allowed, y.more, cmp.Or(y.message, st.message)
	if !y.allowed {
		r.gate = append(r.gate, y.reason)
		r.Message += r.runningText() + r.doubtText()
	}
	r.gate = append(r.gate, st.refusals...)
	// As in medik8s, the storm does not change while no Node is unhealthy, while the check is paused and
	// during an upgrade. So a storm whose Nodes all recover delays the next incident.
	if c.StormCooldown != 0 && n.sick > 0 && len(st.refusals) == 0 {
		r.updateStorm(c, y.allowed, now)
	}
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
	return r
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

// Report is the result of Decide. Its JSON is the output of `fencectl simulate`.
// The JSON is stable: fields may be added, never renamed.
type Report struct {
	At     time.Time     `json:"at"`
	Checks []CheckReport `json:"checks"`
	Errors []ObjectError `json:"errors"`
	// Budgets are the DisruptionBudgets and their current use.
	Budgets []BudgetReport `json:"budgets,omitempty"`
}

// BudgetReport is the result of one DisruptionBudget.
type BudgetReport struct {
	Name  string `json:"name"`
	State State  `json:"state"`
	// Message says why it is Invalid.
	Message        string `json:"message"`
	Nodes          int    `json:"nodes"`
	Unavailable    int    `json:"unavailable"`
	MaxUnavailable int    `json:"maxUnavailable"`
	// Limit is maxUnavailable as written.
	Limit string `json:"limit"`
}

// State is whether a check was evaluated.
type State string

// The states of a check.
const (
	StateActive   State = "Active"
	StatePaused   State = "Paused"
	StateDisabled State = "Disabled"
	StateInvalid  State = "Invalid"
)

// States lists the states.
var States = []State{StateActive, StatePaused, StateDisabled, StateInvalid}

// CheckReport is the result of one check.
type CheckReport struct {
	Kind       string `json:"kind"`
	APIVersion string `json:"apiVersion"`
	Namespace  string `json:"namespace"`
	Name       string `json:"name"`
	State      State  `json:"state"`
	Message    string `json:"message"`
	Expected   int    `json:"expected"`
	Healthy    int    `json:"healthy"`
	// Limit is the limit as written, MaxUnhealthy the resulting number.
	Limit        string `json:"limit"`
	MaxUnhealthy int    `json:"maxUnhealthy"`
	MinUnhealthy int    `json:"minUnhealthy"`
	// Allowed is the result of the check's own limit, before every other gate.
	Allowed             bool           `json:"allowed"`
	RemediationsAllowed int            `json:"remediationsAllowed"`
	RecheckAfterSeconds int            `json:"recheckAfterSeconds"`
	Targets             []TargetReport `json:"targets"`

	UID    string `json:"-"`
	Source string `json:"-"`
	// Storm is the state to store until the next evaluation.
	Storm Storm `json:"-"`
	// Conflicting: it is Disabled because of the MachineHealthChecks of the cluster.
	Conflicting bool `json:"-"`
	// Due is when the passage of time alone changes the check as a whole.
	Due time.Time `json:"-"`
	// NeedsHosts: fenced itself carries out the check's first remedy, and for that each target needs a
	// host whose power it can switch.
	NeedsHosts bool `json:"-"`
	// makesRequests: fenced makes the requests of the check.
	makesRequests bool
	// template is that of the check.
	template *Template
	// upgrading describes the upgrade of the cluster that the check waits for.
	upgrading string
	// gate holds the refusals of the check as a whole, its limit first.
	gate []reason.Code
	// minHealthy: Limit counts the healthy targets.
	minHealthy bool
	// running are the targets under remediation.
	running int
	// doubtful are the targets in doubt.
	doubtful int
	// countOnly: the check counts its targets and forbids every remediation.
	countOnly bool
	// idle are the Nodes that the check would cover if it were active. It is empty,
	// and unread set, if the selector could not be read or the target limit is
	// exceeded.
	idle   map[string]bool
	unread bool
}

// Protects reports whether the check has something remediated: it is active, and does not only count.
func (r *CheckReport) Protects() bool { return r.State == StateActive && !r.countOnly }

// SelectsNothing reports whether the check is active and has no target. The check that OpenShift's
// machine-api-operator makes for the termination of spot instances has none in most clusters, as it
// should.
func (r *CheckReport) SelectsNothing() bool {
	return r.State == StateActive && r.Expected == 0 && len(r.Targets) == 0 && r.Name != "machine-api-termination-handler"
}

// PauseRequested reports whether pauseRequests of the check forbid all actions.
func (r *CheckReport) PauseRequested() bool { return slices.Contains(r.gate, reason.PauseRequested) }

// Remediating reports whether one of its targets is under remediation.
func (r *CheckReport) Remediating() bool {
	return slices.ContainsFunc(r.Targets, func(t TargetReport) bool { return t.Reason == reason.UnderRemediation })
}

// HasStatus reports whether fenced writes a status of the check, where it evaluates
// it in place of the controller of its API family.
func (r *CheckReport) HasStatus() bool {
	switch r.Kind {
	case MachineHealthCheckKind:
		return r.State == StateActive
	case NodeHealthCheckKind:
		return r.State == StateActive || r.State == StateDisabled
	}
	return false
}

// Verdict is the result of a check for one target.
type Verdict string

// The verdicts. Only Healthy targets count as healthy. Skipped ones are not
// counted at all.
const (
	Healthy       Verdict = "Healthy"
	Pending       Verdict = "Pending"
	Unhealthy     Verdict = "Unhealthy"
	Indeterminate Verdict = "Indeterminate"
	Skipped       Verdict = "Skipped"
)

// Action is what a check asks for if nothing refuses it.
type Action string

// The actions.
const (
	None          Action = "None"
	PowerCycle    Action = "PowerCycle"
	DeleteMachine Action = "DeleteMachine"
	CreateRequest Action = "CreateRequest"
	MarkOwner     Action = "MarkOwner"
)

// TargetReport is the result of a check for one target.
type TargetReport struct {
	Machine             string        `json:"machine"`
	Node                string        `json:"node"`
	Verdict             Verdict       `json:"verdict"`
	Reason              reason.Code   `json:"reason"`
	Message             string        `json:"message"`
	RecheckAfterSeconds int           `json:"recheckAfterSeconds"`
	Action              Action        `json:"action"`
	Refusals            []reason.Code `json:"refusals"`

	// MachineAPIVersion tells the API family of the Machine.
	MachineAPIVersion string `json:"-"`
	// MachineUID and NodeUID identify the evaluated objects. The actions carry them
	// as preconditions. // I2
	MachineUID   string `json:"-"`
	NodeUID      string `json:"-"`
	ControlPlane bool   `json:"-"`
	// Since is when the matching condition, or the wait for a Node, began; zero
	// without a timeout.
	Since time.Time `json:"-"`
	// Timeout is how long that may last; StartupTimeout is the check's.
	Timeout        time.Duration `json:"-"`
	StartupTimeout time.Duration `json:"-"`
	// Due is the first instant at which the passage of time alone changes the
	// verdict or ends a refusal. The daemon's timer fires then. RecheckAfterSeconds
	// is the same, rounded as the API family does. Zero: no timeout runs.
	Due time.Time `json:"-"`
	// reasonChangesAt is the first instant at which the passage of time changes
	// only the reason: one more rule matches a target that is already Unhealthy.
	reasonChangesAt time.Time
	// Template is what the request of a NodeHealthCheck or a FencePolicy is made
	// from; nil for every other action, and if no template is left.
	Template *Template `json:"-"`
	// budgets are the DisruptionBudgets behind the refusal Budget.
	budgets []reason.Gate
	// overlaps are the checks behind the refusal Overlap.
	overlaps []reason.Gate
	// unlabelled: the Node does not exist, and nobody knows whether the check selected it.
	unlabelled bool
	// uncounted: it counts in no limit. A policy covers the Machines of every namespace, and whoever
	// may write Machines in one must not use its limit up. // I11
	uncounted bool
	// handedOver: the target is in doubt, and the check had handed it to another remediator.
	handedOver bool
	// Trigger is the sentence for the history: which check, and what it found.
	Trigger string `json:"-"`
}

// Acts reports whether the action would be done now.
func (t *TargetReport) Acts() bool { return t.Action != None && len(t.Refusals) == 0 }

// nextChange is when the passage of time changes the result; zero means never.
func (t *TargetReport) nextChange() time.Time { return times.Sooner(t.Due, t.reasonChangesAt) }

// Acts reports whether any action would be done now.
func (r *Report) Acts() bool {
	for i := range r.Checks {
		for j := range r.Checks[i].Targets {
			if r.Checks[i].Targets[j].Acts() {
				return true
			}
		}
	}
	return false
}

// ID identifies the check of the report.
func (r *CheckReport) ID() CheckID {
	return CheckID{r.Kind, r.APIVersion, r.Namespace, r.Name, r.Source}
}

// Subject names the target, the same in every check: the Node, or the Machine
// "namespace/name" while it has no Node.
func (t *TargetReport) Subject() string { return cmp.Or(t.Node, t.Machine) }
