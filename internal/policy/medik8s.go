package policy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/reason"
)

// Keys that the medik8s lineage reads on Nodes.
const (
	excludeLabel       = "remediation.medik8s.io/exclude-from-remediation"
	confirmAnnotation  = "remediation.medik8s.io/manually-confirmed-healthy"
	hostedNodeLabel    = "hypershift.openshift.io/nodePool"
	currentConfig      = "machineconfiguration.openshift.io/currentConfig"
	desiredConfig      = "machineconfiguration.openshift.io/desiredConfig"
	terminating        = "Terminating"
	succeededCondition = "Succeeded"
)

// settingMedik8s is what the lineage looks at before any Node. A pause and an
// upgrade only refuse the actions: what is judged is shown all the same.
func (c *Check) settingMedik8s(a CheckContext) setting {
	st := setting{state: StateActive}
	if rival := a.rival(); rival != nil {
		return setting{state: StateDisabled, message: fmt.Sprintf(
			"MachineHealthCheck %s may remedy the same Nodes; beside a NodeHealthCheck only one that looks for %s alone may exist", rival.Key(), terminating)}
	}
	if len(a.MachineChecks) > 0 {
		st.exempt = terminating
	}
	var why []string
	if a.Upgrading != "" {
		st.refusals = append(st.refusals, reason.ClusterUpgrading)
		why = append(why, a.Upgrading)
	}
	if len(c.PauseRequests) > 0 {
		st.refusals = append(st.refusals, reason.PauseRequested)
		why = append(why, "spec.pauseRequests: "+strings.Join(c.PauseRequests, ", "))
	}
	st.message = strings.Join(why, "; ")
	return st
}

// rival is a MachineHealthCheck that stands against every NodeHealthCheck: any,
// unless it is the only one and looks for the end of a spot instance alone.
func (a *CheckContext) rival() *Check {
	var first *Check
	for _, m := range a.MachineChecks {
		if first == nil || m.ID().compare(first.ID()) < 0 {
			first = m
		}
	}
	if len(a.MachineChecks) == 1 && first.Invalid == "" && len(first.Conditions) == 1 && first.Conditions[0].Type == terminating {
		return nil
	}
	return first
}

// judgeMedik8s applies the lineage's health rules to one Node. It looks at
// nothing but conditions, its own requests and one label; docs/policy.md has a
// row for each rule.
func (t *TargetReport) judgeMedik8s(c *Check, st *setting, x *Subject, now time.Time) {
	n := x.Node
	switch {
	case n == nil && x.Gone:
		// The Node went between two looks. Whoever removed it knows why.
		t.set(Indeterminate, reason.NodeNotFound, "the Node does not exist any more")
		return
	case n == nil:
		t.set(Indeterminate, reason.Undecodable, "the Node could not be decoded")
		return
	}
	if t.judgeConditions(c, n, now) {
		if t.Verdict == Pending {
			return // also while its request is there: it may only have changed its illness
		}
		if _, other := n.condition(st.exempt); st.exempt == "" || !other {
			t.exclude(n)
			return
		}
		t.Since, t.Timeout, t.again = time.Time{}, 0, time.Time{} // the MachineHealthCheck looks after it
	}
	if own := c.ownRequests(x); len(own) > 0 {
		t.judgeRecovered(c, n, own, now)
		return
	}
	t.set(Healthy, "", "")
}

// exclude leaves a sick Node alone whose label says so. It still counts. Only
// the exact value excludes; an empty one is a mistake that the lineage ignores.
func (t *TargetReport) exclude(n *Node) {
	if n.Labels[excludeLabel] == "true" {
		t.set(Indeterminate, reason.Excluded, t.Message+"; the Node's label excludes it from remediation")
	}
}

// judgeRecovered judges a Node that shows no illness while requests for it
// exist. It is healthy only when they are gone: a remediator may hold one by a
// finalizer until the Node is safe.
func (t *TargetReport) judgeRecovered(c *Check, n *Node, own []*Request, now time.Time) {
	until, known := latestDelay(own, c.HealthyDelay)
	_, confirmed := n.Annotations[confirmAnnotation]
	message := fmt.Sprintf("the Node has recovered; %s %s", own[0].Kind, own[0].key())
	switch {
	case c.HealthyDelay == 0 || confirmed || known && now.After(until):
		message += " still exists"
	case c.HealthyDelay < 0:
		message += " stays until a person confirms with the annotation " + confirmAnnotation
	case !known:
		message += fmt.Sprintf(" stays for healthyDelay %s", c.HealthyDelay)
	default:
		message += fmt.Sprintf(" stays until %s, healthyDelay %s", stamp(until), c.HealthyDelay)
		t.waitUntil(until.Add(1), now)
	}
	t.set(Indeterminate, reason.UnderRemediation, message)
}

// latestDelay is when the delay of the last of them is over; false while one of
// them has no beginning, or none is to come.
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

// rolling says whether a hosted cluster is replacing the Node's configuration:
// there the ClusterVersion does not tell of an upgrade.
func (n *Node) rolling() bool {
	_, hosted := n.Labels[hostedNodeLabel]
	return hosted && n.Annotations[currentConfig] != n.Annotations[desiredConfig]
}

func (r *Request) key() string { return key(r.Namespace, r.Name) }

// ownRequests are the check's own requests for the target, by name.
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
