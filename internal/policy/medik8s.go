package policy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/reason"
)

// Labels, annotations and conditions that medik8s reads on Nodes.
const (
	excludeLabel       = "remediation.medik8s.io/exclude-from-remediation"
	confirmAnnotation  = "remediation.medik8s.io/manually-confirmed-healthy"
	currentConfig      = "machineconfiguration.openshift.io/currentConfig"
	desiredConfig      = "machineconfiguration.openshift.io/desiredConfig"
	terminating        = "Terminating"
	succeededCondition = "Succeeded"
)

// settingMedik8s is what medik8s checks before any Node. A pause and an upgrade
// only refuse the actions; the results are shown anyway.
func (c *Check) settingMedik8s(a CheckContext) setting {
	if c.Evaluator != "" && !c.isEvaluatedBy(a.Rules.Instance) {
		return setting{state: StatePaused, message: "the check is evaluated by " + c.Evaluator}
	}
	st := setting{state: StateActive}
	if others := a.conflictingMachineChecks(); len(others) > 0 {
		return setting{state: StateDisabled, conflicting: true, message: fmt.Sprintf(
			"MachineHealthCheck %s may remediate the same Nodes; next to a NodeHealthCheck there may be only one, with %s as its only condition",
			atMostNamed(others), terminating)}
	}
	if len(a.MachineChecks) > 0 {
		st.exempt = terminating
	}
	if len(c.PauseRequests) > 0 {
		st.refuseFirst(reason.PauseRequested, "spec.pauseRequests: "+strings.Join(c.PauseRequests, ", "))
	}
	return st
}

// conflictingMachineChecks names the MachineHealthChecks that disable every
// NodeHealthCheck: all of them, unless there is only one and its only condition is
// the termination of a spot instance.
func (a *CheckContext) conflictingMachineChecks() (names []string) {
	for _, m := range a.MachineChecks {
		if len(a.MachineChecks) == 1 && m.Invalid == "" && len(m.Conditions) == 1 && m.Conditions[0].Type == terminating {
			return nil
		}
		names = append(names, m.Key())
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// maxNamed is how many objects a message names.
const maxNamed = 3

// atMostNamed joins names for a message, and counts those that it leaves out.
func atMostNamed(names []string) string {
	if more := len(names) - maxNamed; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNamed], ", "), more)
	}
	return strings.Join(names, ", ")
}

// evaluateMedik8s applies the health rules of medik8s to one Node. It uses only
// conditions, the check's own requests and one label. docs/policy.md has a row
// for each rule.
func (t *TargetReport) evaluateMedik8s(c *Check, st *setting, x *Subject, now time.Time) {
	n := x.Node
	switch {
	case n == nil && x.Gone:
		// The Node was deleted between two reads, on purpose as far as fenced knows.
		t.set(Indeterminate, reason.NodeNotFound, "the Node does not exist any more")
		return
	case n == nil:
		t.set(Indeterminate, reason.Undecodable, "the Node could not be decoded")
		return
	}
	if t.evaluateConditions(c, n, now) {
		if t.Verdict == Pending {
			return // also while its request exists: only the cause may have changed
		}
		if _, other := n.condition(st.exempt); st.exempt == "" || !other {
			t.exclude(n)
			return
		}
		t.Since, t.Timeout, t.reasonChangesAt = time.Time{}, 0, time.Time{} // the MachineHealthCheck handles it
	}
	if own := c.ownRequests(x); len(own) > 0 {
		t.evaluateRecovered(c, n, own, now)
		return
	}
	t.set(Healthy, "", "")
}

// exclude leaves out an unhealthy Node with the exclusion label. The Node still
// counts. Only the exact value excludes; medik8s ignores an empty one.
func (t *TargetReport) exclude(n *Node) {
	if n.Labels[excludeLabel] == "true" {
		t.set(Indeterminate, reason.Excluded, t.Message+"; the Node's label excludes it from remediation")
	}
}

// evaluateRecovered evaluates a Node without an unhealthy condition while
// requests for it exist. It is healthy only when they are gone: a remediator may
// keep one with a finalizer until the Node is safe.
func (t *TargetReport) evaluateRecovered(c *Check, n *Node, own []*Request, now time.Time) {
	until, known := latestDelay(own, c.HealthyDelay)
	_, confirmed := n.Annotations[confirmAnnotation]
	message := fmt.Sprintf("the Node has recovered; %s %s", own[0].Kind, own[0].key())
	switch {
	case c.HealthyDelay == 0 || confirmed || known && now.After(until):
		message += " still exists"
	case c.HealthyDelay < 0:
		message += " stays until somebody confirms with the annotation " + confirmAnnotation
	case !known:
		message += fmt.Sprintf(" stays for healthyDelay %s", c.HealthyDelay)
	default:
		message += fmt.Sprintf(" stays until %s, healthyDelay %s", stamp(until), c.HealthyDelay)
		t.waitUntil(until.Add(1), now)
	}
	t.set(Indeterminate, reason.UnderRemediation, message)
}

// latestDelay is when the last delay ends. known is false if one of the requests
// has no start time, or if delay is not positive.
func latestDelay(own []*Request, delay time.Duration) (until time.Time, known bool) {
	for _, q := range own {
		if q.HealthyDelaySince.IsZero() || delay <= 0 {
			return time.Time{}, false
		}
		if end := q.HealthyDelaySince.Add(delay); end.After(until) {
			until = end
		}
	}
	return until, true
}

// isConfigRolling reports whether OpenShift is replacing the Node's configuration.
// The ClusterVersion does not show that in a hosted cluster, nor while a
// MachineConfigPool rolls out a configuration outside of an upgrade.
func (n *Node) isConfigRolling() bool {
	return n.Annotations[currentConfig] != n.Annotations[desiredConfig]
}

// refuseRollingConfig refuses the action while OpenShift replaces the
// configuration of the Node: it reboots the Node for that.
func (t *TargetReport) refuseRollingConfig(x *Subject) {
	if x.Node == nil || t.Action == None || !x.Node.isConfigRolling() || slices.Contains(t.Refusals, reason.ClusterUpgrading) {
		return
	}
	t.refuse(reason.ClusterUpgrading)
	t.Message = bounded(t.Message + fmt.Sprintf("; its machine-config changes from %q to %q", x.Node.Annotations[currentConfig], x.Node.Annotations[desiredConfig]))
}

func (r *Request) key() string { return key(r.Namespace, r.Name) }

// ownRequests returns the check's own requests for the target, by name.
func (c *Check) ownRequests(x *Subject) []*Request {
	var own []*Request
	for _, q := range x.Requests {
		if c.madeRequest(q) {
			own = append(own, q)
		}
	}
	slices.SortFunc(own, byRequest)
	return own
}
