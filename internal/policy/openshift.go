package policy

import (
	"fmt"
	"time"

	"github.com/fenced/fenced/internal/reason"
)

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
		seen, ok := n.condition(u.Type)
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
