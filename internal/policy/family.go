package policy

import (
	"fmt"
	"time"

	"github.com/fenced/fenced/internal/reason"
)

// family is an API whose checks fenced evaluates. Each is in a file of its own, with a row in families; what it
// does not say itself it has from common. CONTRIBUTING.md says how to add one.
type family interface {
	// addContext adds what a check depends on besides its targets.
	addContext(w *tables, c *Check, a *CheckContext)
	// setting determines whether a check is evaluated, by the rules of the API.
	setting(c *Check, a CheckContext, now time.Time) setting
	// evaluate applies the health rules to one target of an active check. The first rule that matches wins.
	evaluate(t *TargetReport, c *Check, a CheckContext, st *setting, x *Subject, now time.Time)
	// parseLimits returns what is wrong with the limits of a check.
	parseLimits(c *Check) error
	// tally applies the limits, which parse, to the counters.
	tally(c *Check, n count) tally
	// limitText returns the limit as its author wrote it, or the documented default; "" if there is neither.
	limitText(c *Check) string
	// escalates reports whether a check asks one remediator after the other, and counts a target as not healthy
	// while its requests exist.
	escalates() bool
}

// The families. The zero check is of none: it is common, and settingOf refuses it.
type (
	openShiftFamily  struct{ common }
	clusterAPIFamily struct{ common }
	medik8sFamily    struct{}
	fencedFamily     struct{ common }
)

var (
	unknownFamily family = common{}
	openShift     family = openShiftFamily{}
	clusterAPI    family = clusterAPIFamily{}
	medik8s       family = medik8sFamily{}
	fenced        family = fencedFamily{}
)

// families maps the API version and the kind of a check to its family.
var families = map[[2]string]family{
	{OpenShiftMachineAPI, MachineHealthCheckKind}: openShift,
	{ClusterAPIV1Beta1, MachineHealthCheckKind}:   clusterAPI,
	{ClusterAPIV1Beta2, MachineHealthCheckKind}:   clusterAPI,
	{Medik8sAPI, NodeHealthCheckKind}:             medik8s,
	{FencedAPI, FencePolicyKind}:                  fenced,
}

func (c *Check) family() family {
	if f, ok := families[[2]string{c.APIVersion, c.Kind}]; ok {
		return f
	}
	return unknownFamily
}

// IsCheckKind reports whether checks of some API version have this kind.
func IsCheckKind(kind string) bool {
	for k := range families {
		if k[1] == kind {
			return true
		}
	}
	return false
}

// common is what families have in common.
type common struct{}

func (common) addContext(*tables, *Check, *CheckContext) {}

func (common) setting(c *Check, a CheckContext, now time.Time) setting {
	switch {
	case c.Paused && !c.isEvaluatedBy(a.Rules.Instance):
		return setting{state: StatePaused, message: "the check is paused"}
	case c.Disabled != "":
		return setting{state: StateDisabled, message: c.Disabled}
	}
	return setting{state: StateActive}
}

func (common) evaluate(*TargetReport, *Check, CheckContext, *setting, *Subject, time.Time) {}

func (common) parseLimits(c *Check) error {
	_, err := parseLimit(c.MaxUnhealthy)
	return err
}

func (common) tally(*Check, count) tally { return tally{} }

func (common) limitText(c *Check) string {
	switch {
	case c.UnhealthyRange != "":
		return c.UnhealthyRange
	case c.MaxUnhealthy != nil:
		return c.MaxUnhealthy.String()
	}
	return "100%"
}

func (common) escalates() bool { return false }

// OpenShift's rules, most of which are the common ones.

// evaluate applies OpenShift's health rules to one target. docs/policy.md has a row for each.
func (openShiftFamily) evaluate(t *TargetReport, c *Check, _ CheckContext, _ *setting, x *Subject, now time.Time) {
	m, n := x.Machine, x.Node
	switch {
	case m.Suspended != "":
		t.set(Skipped, reason.Paused, m.Suspended)
	case m.Phase == "Failed":
		t.set(Unhealthy, reason.MachineFailed, "the Machine's phase is Failed")
	case m.NodeName == "":
		t.evaluateStartup(c, m, now)
	case x.Gone:
		// No timeout: the Machine had a Node, and somebody removed it.
		t.set(Unhealthy, reason.NodeNotFound, fmt.Sprintf("Node %s does not exist", m.NodeName))
	case n == nil:
		t.set(Indeterminate, reason.Undecodable, fmt.Sprintf("Node %s could not be decoded", m.NodeName))
	case t.evaluateConditions(c, n, now):
	case m.Deleting:
		t.set(Indeterminate, reason.Deleting, "the Machine is being deleted")
	case m.ExternalRemediationRequested:
		// OpenShift counts the target as not healthy until the request is cleared, so
		// that hosts under remediation count against the limit.
		t.set(Indeterminate, reason.UnderRemediation, "the Machine's remediation has been requested")
	default:
		t.set(Healthy, "", "")
	}
}

// evaluateStartup evaluates a Machine that has no Node yet. The timeout starts at
// the last status write, not at the creation of the Machine.
func (t *TargetReport) evaluateStartup(c *Check, m *Machine, now time.Time) {
	switch {
	case c.StartupTimeout == 0:
		t.set(Indeterminate, reason.StartupCheckDisabled, "no Node has joined, and nodeStartupTimeout is 0")
	case m.LastUpdated.IsZero():
		// Without a start time it can never time out; evaluate again after a full
		// timeout.
		t.set(Pending, reason.NodeStartupTimeout, "no Node has joined, and the Machine has no status.lastUpdated yet")
		t.Timeout = c.StartupTimeout
		t.RecheckAfterSeconds = wholeSeconds(c.StartupTimeout)
	case expired(m.LastUpdated, c.StartupTimeout, now):
		t.set(Unhealthy, reason.NodeStartupTimeout, fmt.Sprintf("no Node has joined since %s, longer than %s",
			stamp(m.LastUpdated), c.StartupTimeout))
		t.Since, t.Timeout = m.LastUpdated, c.StartupTimeout
	default:
		t.set(Pending, reason.NodeStartupTimeout, fmt.Sprintf("no Node has joined since %s, allowed for %s",
			stamp(m.LastUpdated), c.StartupTimeout))
		t.wait(m.LastUpdated, c.StartupTimeout, now)
	}
}

// evaluateConditions evaluates the Node's conditions; one unhealthy condition is
// enough. It returns false if none matches.
func (t *TargetReport) evaluateConditions(c *Check, n *Node, now time.Time) bool {
	waiting := false
	for _, u := range c.Conditions {
		seen, ok := n.Condition(u.Type)
		if !ok || seen.Status != u.Status {
			continue
		}
		since := seen.LastTransition
		if expired(since, u.Timeout, now) {
			// An earlier rule takes over as soon as its own timeout ends.
			t.reasonChangesAt, t.Due, t.RecheckAfterSeconds = t.Due, time.Time{}, 0
			t.set(Unhealthy, reason.NodeCondition, fmt.Sprintf("%s is %s since %s, longer than %s",
				u.Type, u.Status, stamp(since), u.Timeout))
			t.Since, t.Timeout = since, u.Timeout
			return true
		}
		if !waiting || deadline(since, u.Timeout).Before(t.Due) {
			t.set(Pending, reason.NodeCondition, fmt.Sprintf("%s is %s since %s, allowed for %s",
				u.Type, u.Status, stamp(since), u.Timeout))
			t.wait(since, u.Timeout, now)
		}
		waiting = true
	}
	return waiting
}

func (openShiftFamily) tally(c *Check, n count) tally {
	parsed, _ := parseLimit(c.MaxUnhealthy) // settingOf has checked that it parses
	y := tally{limit: c.family().limitText(c), max: parsed.of(n.expected)}
	unhealthy := n.expected - n.healthy
	y.allowed, y.more = unhealthy <= y.max, max(0, y.max-unhealthy)
	if !y.allowed {
		y.reason = reason.ShortCircuit
		y.message = fmt.Sprintf("%d of %d targets are not healthy, more than maxUnhealthy %s (%d)", unhealthy, n.expected, y.limit, y.max)
	}
	return y
}
