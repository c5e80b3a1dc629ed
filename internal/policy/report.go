package policy

import (
	"time"

	"github.com/fenced/fenced/internal/reason"
)

// Report is what Decide found. Its JSON is the output of `fencectl simulate`
// and stable: fields may be added, never renamed.
type Report struct {
	At     time.Time     `json:"at"`
	Checks []CheckReport `json:"checks"`
	Errors []ObjectError `json:"errors"`
	// Budgets are the DisruptionBudgets and how much of them is used.
	Budgets []BudgetReport `json:"budgets,omitempty"`
}

// BudgetReport is what one DisruptionBudget found.
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

// CheckReport is what one check found.
type CheckReport struct {
	Kind       string `json:"kind"`
	APIVersion string `json:"apiVersion"`
	Namespace  string `json:"namespace"`
	Name       string `json:"name"`
	State      State  `json:"state"`
	Message    string `json:"message"`
	Expected   int    `json:"expected"`
	Healthy    int    `json:"healthy"`
	// Limit is the limit as written, MaxUnhealthy the number it comes to.
	Limit        string `json:"limit"`
	MaxUnhealthy int    `json:"maxUnhealthy"`
	MinUnhealthy int    `json:"minUnhealthy"`
	// Allowed is the check's own limit only, before every other gate.
	Allowed             bool           `json:"allowed"`
	RemediationsAllowed int            `json:"remediationsAllowed"`
	RecheckAfterSeconds int            `json:"recheckAfterSeconds"`
	Targets             []TargetReport `json:"targets"`

	UID    string `json:"-"`
	Source string `json:"-"`
	// Storm is what has to be remembered of the check until it is judged again.
	Storm Storm `json:"-"`
	// Due is when time alone changes something about the check as a whole.
	Due time.Time `json:"-"`
	// gate are the refusals of the check as a whole: its limit first.
	gate []reason.Code
	// minHealthy: Limit is about the healthy.
	minHealthy bool
	// countOnly: the check counts its targets and forbids every remedy.
	countOnly bool
	// idle are the Nodes that the check would cover if it were evaluated; empty
	// with unread set when not even its selector could be read, or when all checks
	// have too many targets.
	idle   map[string]bool
	unread bool
}

// Verdict is what a check thinks of one target.
type Verdict string

// The verdicts. Only Healthy targets count as healthy; Skipped ones are not
// counted at all.
const (
	Healthy       Verdict = "Healthy"
	Pending       Verdict = "Pending"
	Unhealthy     Verdict = "Unhealthy"
	Indeterminate Verdict = "Indeterminate"
	Skipped       Verdict = "Skipped"
)

// Action is what a check asks for when nothing refuses.
type Action string

// The actions.
const (
	None          Action = "None"
	PowerCycle    Action = "PowerCycle"
	DeleteMachine Action = "DeleteMachine"
	CreateRequest Action = "CreateRequest"
	MarkOwner     Action = "MarkOwner"
)

// TargetReport is what a check found about one target.
type TargetReport struct {
	Machine             string        `json:"machine"`
	Node                string        `json:"node"`
	Verdict             Verdict       `json:"verdict"`
	Reason              reason.Code   `json:"reason"`
	Message             string        `json:"message"`
	RecheckAfterSeconds int           `json:"recheckAfterSeconds"`
	Action              Action        `json:"action"`
	Refusals            []reason.Code `json:"refusals"`

	// MachineAPIVersion is the lineage of the Machine.
	MachineAPIVersion string `json:"-"`
	// MachineUID and NodeUID are what was judged; the actions carry them as
	// preconditions. // I2
	MachineUID   string `json:"-"`
	NodeUID      string `json:"-"`
	ControlPlane bool   `json:"-"`
	// Since is when the matching condition, or the wait for a Node, began; zero
	// when no clock is involved.
	Since time.Time `json:"-"`
	// Timeout is how long that may last; StartupTimeout is the check's.
	Timeout        time.Duration `json:"-"`
	StartupTimeout time.Duration `json:"-"`
	// Due is the first instant at which time alone changes the verdict or ends a
	// refusal. The daemon's timer fires then; RecheckAfterSeconds is the same
	// with the lineage's rounding. Zero: no clock runs.
	Due time.Time `json:"-"`
	// again is the first instant at which time alone changes the reason only: one
	// more rule matches a target that is Unhealthy already.
	again time.Time
	// Template is what a NodeHealthCheck's request is to be made from; nil for
	// every other action, and when none is left.
	Template *Template `json:"-"`
	// budgets are the DisruptionBudgets behind the refusal Budget.
	budgets []reason.Gate
	// Trigger is the sentence that history shows: which check, and what it saw.
	Trigger string `json:"-"`
}

// Acts says whether the action would be done now.
func (t *TargetReport) Acts() bool { return t.Action != None && len(t.Refusals) == 0 }

// NextCheck is the first instant at which time alone changes something in the
// report; false when no clock runs.
func (r *Report) NextCheck() (time.Time, bool) {
	var next time.Time
	for i := range r.Checks {
		c := &r.Checks[i]
		next = sooner(next, c.Due)
		for j := range c.Targets {
			next = sooner(next, c.Targets[j].wake())
		}
	}
	return next, !next.IsZero()
}

// wake is when time alone changes anything about the target; zero is never.
func (t *TargetReport) wake() time.Time { return sooner(t.Due, t.again) }

// sooner is the earlier of two instants; a zero one is never.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// Acts says whether anything would be done now.
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
