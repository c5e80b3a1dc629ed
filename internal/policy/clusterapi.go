package policy

import (
	"cmp"
	"fmt"
	"iter"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/times"
)

// controlPlaneLabel marks the control-plane Machines of the Cluster API. Before
// the control plane is initialized, only Machines with this label are evaluated.
const controlPlaneLabel = "cluster.x-k8s.io/control-plane"

// clusterOf returns the Cluster of a Cluster API check. If it returns nil, unread
// means that the Cluster may be among the objects that could not be decoded.
func (w *tables) clusterOf(c *Check) (cluster *Cluster, unread bool) {
	if cluster = w.clusters[key(c.Namespace, c.ClusterName)]; cluster != nil {
		return cluster, false
	}
	for _, k := range []ObjectKey{{}, {Kind: "Cluster"}, {Kind: "Cluster", Namespace: c.Namespace}, {Kind: "Cluster", Namespace: c.Namespace, Name: c.ClusterName}} {
		if _, ok := w.undecoded[k]; ok {
			return nil, true
		}
	}
	return nil, false
}

func (clusterAPIFamily) addContext(w *tables, c *Check, a *CheckContext) {
	a.Cluster, a.ClusterUnread = w.clusterOf(c)
}

// setting derives the state of a check from its Cluster. Saved objects may lack the Cluster; it then counts as up
// and running.
func (clusterAPIFamily) setting(c *Check, a CheckContext, now time.Time) setting {
	name := key(c.Namespace, c.ClusterName)
	switch {
	case a.Cluster == nil && a.ClusterUnread:
		return setting{state: StateInvalid, message: fmt.Sprintf("Cluster %s could not be read", name)}
	case a.Cluster == nil && a.Rules.ClusterRequired:
		return setting{state: StateInvalid, message: fmt.Sprintf("Cluster %s does not exist", name)}
	case a.Cluster != nil && a.Cluster.Paused:
		return setting{state: StatePaused, message: fmt.Sprintf("Cluster %s is paused", name)}
	}
	return common{}.setting(c, a, now)
}

// evaluate applies the Cluster API's health rules to one target. docs/policy.md has a row for each.
func (clusterAPIFamily) evaluate(t *TargetReport, c *Check, a CheckContext, _ *setting, x *Subject, now time.Time) {
	m := x.Machine
	p := clusterPhase{a.Cluster, a.Cluster == nil || a.Cluster.ControlPlaneInitialized, a.Cluster == nil || a.Cluster.InfrastructureReady}
	switch {
	case m.Paused:
		t.set(Skipped, reason.Paused, "the Machine is paused")
	case m.SkipRemediation:
		t.set(Skipped, reason.SkipRequested, "the Machine asks not to be remediated")
	case p.initialized && m.NodeName != "" && x.Node == nil && !x.Gone:
		// The Cluster API evaluates no target in this case; fenced leaves out only
		// this Machine.
		t.set(Indeterminate, reason.Undecodable, fmt.Sprintf("Node %s could not be decoded", m.NodeName))
	case m.RemediateRequested:
		t.set(Unhealthy, reason.RemediateRequested, "the Machine is annotated for remediation")
	case a.Rules.MachineFailureReason && m.Failure != "":
		// As before v1.11: at once, whatever the state of the Node and of the Cluster.
		t.set(Unhealthy, reason.MachineFailed, "the Machine reports a terminal failure: "+m.Failure)
	case !p.initialized && !labels.Set(m.Labels).Has(controlPlaneLabel):
		t.set(Indeterminate, reason.NotReadyForChecks, "the control plane is not initialized")
	case !p.ready && !(p.initialized && x.Node != nil):
		t.set(Indeterminate, reason.NotReadyForChecks, "the cluster's infrastructure is not ready")
	case p.ready && t.evaluateClocks(c, p.findings(c, x), now):
	case p.ready && (m.NodeName == "" || !p.initialized):
		t.set(Indeterminate, reason.StartupCheckDisabled, p.noNode()+", and the start-up check is off")
	case m.Deleting:
		t.set(Indeterminate, reason.Deleting, "the Machine is being deleted")
	default:
		// The target is healthy also while the infrastructure is not ready, whatever
		// the state of its Node.
		t.set(Healthy, "", "")
	}
}

// clusterPhase is how far the setup of a Cluster has come.
type clusterPhase struct {
	cluster *Cluster
	// initialized: the control plane answers. Before that, Nodes are not checked.
	initialized bool
	// ready: the infrastructure is ready.
	ready bool
}

func (p clusterPhase) noNode() string {
	if p.initialized {
		return "no Node has joined"
	}
	return "no Node can be seen before the control plane is initialized"
}

// finding is a problem of a target, and the timeout after which it makes the
// target unhealthy.
type finding struct {
	reason  reason.Code
	what    string
	since   time.Time
	timeout time.Duration
	// atOnce: the target is unhealthy without a timeout.
	atOnce bool
}

func (f *finding) String() string {
	if f.atOnce {
		return f.what
	}
	return fmt.Sprintf("%s since %s, longer than %s", f.what, stamp(f.since), f.timeout)
}

// findings lists the problems of a target: first those that the Machine's own
// conditions show, which need no Node, then those of its Node.
func (p clusterPhase) findings(c *Check, x *Subject) []finding {
	m := x.Machine
	list := matching(nil, reason.MachineCondition, "Machine condition ", c.MachineConditions, slices.Values(m.Conditions))
	switch {
	case m.NodeName == "" || !p.initialized:
		if c.StartupTimeout == 0 {
			return list
		}
		return append(list, finding{reason: reason.NodeStartupTimeout, what: p.noNode(), since: p.startupClock(m), timeout: c.StartupTimeout})
	case x.Gone:
		// No timeout: the Machine had a Node, and somebody removed it.
		return append(list, finding{reason: reason.NodeNotFound, what: fmt.Sprintf("Node %s does not exist", m.NodeName), atOnce: true})
	}
	return matching(list, reason.NodeCondition, "", c.Conditions, x.Node.Conditions.All())
}

// matching appends a finding for each unhealthy condition that the object has.
func matching(list []finding, code reason.Code, prefix string, unhealthy []UnhealthyCondition, seen iter.Seq[Condition]) []finding {
	for _, u := range unhealthy {
		for s := range seen {
			if s.Type != u.Type {
				continue
			}
			if s.Status == u.Status {
				what := prefix + u.Type + " is " + u.Status
				list = append(list, finding{reason: code, what: what, since: s.LastTransition, timeout: u.Timeout})
			}
			break // the first condition of a type counts
		}
	}
	return list
}

// startupClock returns when the wait for a Node began: the latest of the four
// moments without which no Node could join.
func (p clusterPhase) startupClock(m *Machine) time.Time {
	latest := times.Later(m.InfrastructureReadySince, m.Created)
	if p.cluster != nil {
		latest = times.Later(times.Later(p.cluster.ControlPlaneSince, p.cluster.InfrastructureReadySince), latest)
	}
	return latest
}

// maxFindings is how many findings a message names.
const maxFindings = 5

// evaluateClocks turns findings into a verdict; it returns false if there are
// none. Any finding past its timeout makes the target unhealthy. The message
// names the first of those, the reason is that of the first. Otherwise the finding with
// the earliest deadline counts.
func (t *TargetReport) evaluateClocks(c *Check, list []finding, now time.Time) bool {
	var over []string
	var first, next *finding
	for i := range list {
		f := &list[i]
		switch {
		case f.atOnce || expired(f.since, f.timeout, now):
			if len(over) < maxFindings {
				over = append(over, f.String())
			}
			first = cmp.Or(first, f)
		case next == nil || deadline(f.since, f.timeout).Before(deadline(next.since, next.timeout)):
			next = f
		}
	}
	switch {
	case first != nil:
		t.set(Unhealthy, first.reason, strings.Join(over, "; "))
		t.Since, t.Timeout = first.since, first.timeout
		if next != nil {
			t.reasonChangesAt = deadline(next.since, next.timeout)
		}
	case next != nil:
		t.set(Pending, next.reason, fmt.Sprintf("%s since %s, allowed for %s", next.what, stamp(next.since), next.timeout))
		t.wait(next.since, next.timeout, now)
	}
	return len(list) > 0
}

// refuseHandOver refuses to hand a Machine over that no controller owns, because
// nothing would replace it, and a second hand-over to an owner. It refuses a
// control-plane Machine unless its owner is a KubeadmControlPlane, the only owner
// that protects the quorum itself.
func (t *TargetReport) refuseHandOver(m *Machine) {
	if m.ControllerOwner == (Owner{}) {
		t.refuse(reason.NoController)
	}
	if s := m.OwnerRemediated; s != "" && s != "True" {
		t.refuse(reason.AlreadyRequested) // also for Unknown: the owner is working on it
	}
	if t.ControlPlane && m.ControllerOwner.Kind != "KubeadmControlPlane" {
		t.refuse(reason.ControlPlane)
	}
}

func (clusterAPIFamily) parseLimits(c *Check) error {
	_, _, err := c.parseClusterAPILimits()
	return err
}

// parseClusterAPILimits parses the range and the limit. Both must be valid, even
// though the range overrides the limit.
func (c *Check) parseClusterAPILimits() (span [2]int, l limit, err error) {
	limitField, rangeField := "spec.remediation.triggerIf.unhealthyLessThanOrEqualTo", "spec.remediation.triggerIf.unhealthyInRange"
	if c.APIVersion == ClusterAPIV1Beta1 {
		limitField, rangeField = "spec.maxUnhealthy", "spec.unhealthyRange"
	}
	if c.UnhealthyRange != "" {
		if span, err = parseRange(c.UnhealthyRange); err != nil {
			return span, l, fmt.Errorf("%s: %w", rangeField, err)
		}
	}
	l, err = parseStrictLimit(c.MaxUnhealthy)
	if err != nil {
		return span, l, fmt.Errorf("%s: %w", limitField, err)
	}
	return span, l, nil
}

// parseStrictLimit parses a limit as the Cluster API does: a string must be a
// percentage, so "10" is an error and not ten targets.
func parseStrictLimit(raw *intstr.IntOrString) (limit, error) {
	if raw != nil && raw.Type == intstr.String && !strings.HasSuffix(raw.StrVal, "%") {
		return limit{}, fmt.Errorf("%q is neither a whole number nor a percentage", raw.StrVal)
	}
	l, err := parseLimit(raw)
	switch {
	case err != nil:
		return limit{}, fmt.Errorf("%q is neither a whole number nor a percentage", raw.StrVal)
	case l.value < 0:
		return limit{}, fmt.Errorf("%s is negative", raw)
	}
	return l, nil
}

var rangeForm = regexp.MustCompile(`^\[([0-9]+)-([0-9]+)\]$`)

// parseRange parses "[min-max]"; both bounds are inclusive.
func parseRange(text string) (span [2]int, err error) {
	m := rangeForm.FindStringSubmatch(text)
	if m == nil {
		return span, fmt.Errorf("%q is not a range like [1-3]", text)
	}
	for i := range span {
		n, err := strconv.ParseUint(m[i+1], 10, 32)
		if err != nil {
			return span, fmt.Errorf("%q: %s is too large", text, m[i+1])
		}
		span[i] = int(n)
	}
	if span[1] < span[0] {
		return span, fmt.Errorf("%q: the maximum is below the minimum", text)
	}
	return span, nil
}

// tally applies the range if there is one, else the limit.
func (f clusterAPIFamily) tally(c *Check, n count) tally {
	span, l, _ := c.parseClusterAPILimits() // settingOf has checked that they parse
	expected, unhealthy := n.expected, n.expected-n.healthy
	y := tally{limit: f.limitText(c), max: l.of(expected)}
	if c.UnhealthyRange != "" {
		y.min, y.max = span[0], span[1]
	}
	switch {
	case c.UnhealthyRange != "" && (unhealthy-n.doubtful < y.min || unhealthy > y.max):
		y.reason = reason.OutOfRange
		y.message = fmt.Sprintf("%d of %d targets are not healthy, outside the range %s", unhealthy, expected, y.limit)
	case unhealthy > y.max:
		y.reason = reason.ShortCircuit
		y.message = fmt.Sprintf("%d of %d targets are not healthy, more than the limit %s (%d)", unhealthy, expected, y.limit, y.max)
	default:
		y.allowed, y.more = true, y.max-unhealthy
	}
	return y
}
