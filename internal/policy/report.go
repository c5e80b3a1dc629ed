package policy

import (
	"slices"
	"time"

	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/times"
)

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
func (t *TargetReport) Subject() string { return subjectName(t.Node, t.Machine) }

func subjectName(node, machine string) string {
	if node != "" {
		return node
	}
	return machine
}
