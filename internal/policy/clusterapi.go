package policy

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/reason"
)

// controlPlaneLabel marks the Cluster API's control-plane Machines; only the
// label decides which Machines are judged before the control plane is there.
const controlPlaneLabel = "cluster.x-k8s.io/control-plane"

// clusterOf is the Cluster of a Cluster API check. Without one, unread says that
// it may be among the objects that could not be decoded.
func (w *tables) clusterOf(c *Check) (cluster *Cluster, unread bool) {
	if cluster = w.clusters[key(c.Namespace, c.ClusterName)]; cluster != nil {
		return cluster, false
	}
	for _, k := range []ObjectKey{{}, {Kind: "Cluster"}, {"Cluster", c.Namespace, ""}, {"Cluster", c.Namespace, c.ClusterName}} {
		if _, ok := w.undecoded[k]; ok {
			return nil, true
		}
	}
	return nil, false
}

// settingClusterAPI: a check waits with its Cluster. Saved objects may come
// without the Cluster; it is then taken for one that is up and running.
func (c *Check) settingClusterAPI(a CheckContext) setting {
	name := key(c.Namespace, c.ClusterName)
	switch {
	case a.Cluster == nil && a.ClusterUnread:
		return setting{state: StateInvalid, message: fmt.Sprintf("Cluster %s could not be read", name)}
	case a.Cluster == nil && a.Rules.ClusterRequired:
		return setting{state: StateInvalid, message: fmt.Sprintf("Cluster %s does not exist", name)}
	case a.Cluster != nil && a.Cluster.Paused:
		return setting{state: StatePaused, message: fmt.Sprintf("Cluster %s is paused", name)}
	case c.Paused && !c.handedTo(a.Rules.Instance):
		return setting{state: StatePaused, message: "the check is paused"}
	case c.Disabled != "":
		return setting{state: StateDisabled, message: c.Disabled}
	}
	return setting{state: StateActive}
}

// handedTo says whether the check was paused for its own controller only, so
// that this instance judges it.
func (c *Check) handedTo(instance string) bool {
	return c.Evaluator != "" && (instance == "" || instance == c.Evaluator)
}

// judgeClusterAPI applies the Cluster API's health rules to one target.
// docs/policy.md has a row for each.
func (t *TargetReport) judgeClusterAPI(c *Check, cluster *Cluster, x *Subject, now time.Time) {
	m := x.Machine
	_, controlPlane := m.Labels[controlPlaneLabel]
	p := phaseOf(cluster)
	switch {
	case m.Paused:
		t.set(Skipped, reason.Paused, "the Machine is paused")
	case m.SkipRemediation:
		t.set(Skipped, reason.SkipRequested, "the Machine asks not to be remedied")
	case p.initialized && m.NodeName != "" && x.Node == nil && !x.Gone:
		// The lineage judges nobody then; here one Machine waits for its Node.
		t.set(Indeterminate, reason.Undecodable, fmt.Sprintf("Node %s could not be decoded", m.NodeName))
	case m.RemediateRequested:
		t.set(Unhealthy, reason.RemediateRequested, "the Machine is annotated for remediation")
	case !p.initialized && !controlPlane:
		t.set(Indeterminate, reason.NotReadyForChecks, "the control plane is not initialized")
	case !p.ready && !(p.initialized && x.Node != nil):
		t.set(Indeterminate, reason.NotReadyForChecks, "the cluster's infrastructure is not ready")
	case p.ready && t.judgeClocks(c, p.findings(c, x), now):
	case p.ready && (m.NodeName == "" || !p.initialized):
		t.set(Indeterminate, reason.StartupCheckDisabled, p.noNode()+", and the start-up check is off")
	case m.Deleting:
		t.set(Indeterminate, reason.Deleting, "the Machine is being deleted")
	default:
		// Also while the infrastructure is not ready, however the Node is.
		t.set(Healthy, "", "")
	}
}

// clusterPhase is how far the setting up of a Cluster has come.
type clusterPhase struct {
	cluster *Cluster
	// initialized: the control plane answers. Before that no Node is looked at.
	initialized bool
	// ready: the infrastructure is.
	ready bool
}

func phaseOf(cluster *Cluster) clusterPhase {
	return clusterPhase{cluster,
		cluster == nil || cluster.ControlPlaneInitialized,
		cluster == nil || cluster.InfrastructureReady}
}

func (p clusterPhase) noNode() string {
	if p.initialized {
		return "no Node has joined"
	}
	return "no Node can be seen before the control plane is initialized"
}

// finding is something wrong with a target, and the clock that makes it
// unhealthy.
type finding struct {
	reason  reason.Code
	what    string
	since   time.Time
	timeout time.Duration
	// atOnce: no clock is involved.
	atOnce bool
}

func (f *finding) String() string {
	if f.atOnce {
		return f.what
	}
	return fmt.Sprintf("%s since %s, longer than %s", f.what, stamp(f.since), f.timeout)
}

// findings lists what is wrong with a target: first by the Machine's own
// conditions, which need no Node, then by its Node.
func (p clusterPhase) findings(c *Check, x *Subject) []finding {
	m := x.Machine
	list := matching(nil, reason.MachineCondition, "Machine condition ", c.MachineConditions, m.Conditions)
	switch {
	case m.NodeName == "" || !p.initialized:
		if c.StartupTimeout == 0 {
			return list
		}
		return append(list, finding{reason: reason.NodeStartupTimeout, what: p.noNode(), since: p.startupClock(m), timeout: c.StartupTimeout})
	case x.Gone:
		// No grace: the Machine had a Node, and someone removed it.
		return append(list, finding{reason: reason.NodeNotFound, what: fmt.Sprintf("Node %s does not exist", m.NodeName), atOnce: true})
	}
	return matching(list, reason.NodeCondition, "", c.Conditions, x.Node.Conditions)
}

// matching adds a finding for each unhealthy condition that is seen.
func matching(list []finding, code reason.Code, prefix string, unhealthy []UnhealthyCondition, seen []Condition) []finding {
	for _, u := range unhealthy {
		for _, s := range seen {
			if s.Type != u.Type {
				continue
			}
			if s.Status == u.Status {
				what := prefix + u.Type + " is " + u.Status
				list = append(list, finding{reason: code, what: what, since: s.LastTransition, timeout: u.Timeout})
			}
			break // the first of a type counts
		}
	}
	return list
}

// startupClock is the latest of the four moments from which a Node could have
// joined.
func (p clusterPhase) startupClock(m *Machine) time.Time {
	latest := m.Created
	moments := []time.Time{m.InfrastructureReadySince}
	if p.cluster != nil {
		moments = append(moments, p.cluster.ControlPlaneSince, p.cluster.InfrastructureReadySince)
	}
	for _, moment := range moments {
		if moment.After(latest) {
			latest = moment
		}
	}
	return latest
}

// judgeClocks turns findings into a verdict; false when there are none. Any
// that is past its timeout makes the target unhealthy, and the message names
// all of those; the first gives the reason. Else the earliest clock counts.
func (t *TargetReport) judgeClocks(c *Check, list []finding, now time.Time) bool {
	var over []string
	var first, next *finding
	for i := range list {
		f := &list[i]
		switch {
		case f.atOnce || expired(f.since, f.timeout, now):
			over = append(over, f.String())
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
			t.again = deadline(next.since, next.timeout)
		}
	case next != nil:
		t.set(Pending, next.reason, fmt.Sprintf("%s since %s, allowed for %s", next.what, stamp(next.since), next.timeout))
		t.wait(next.since, next.timeout, now)
	}
	return len(list) > 0
}

// refuseHandOver: an owner is told once, and none but a KubeadmControlPlane
// has brakes of its own for a control-plane Machine.
func (t *TargetReport) refuseHandOver(m *Machine) {
	if s := m.OwnerRemediated; s != "" && s != "True" {
		t.refuse(reason.AlreadyRequested) // Unknown, too: the owner is at it
	}
	if t.ControlPlane && m.ControllerOwner.Kind != "KubeadmControlPlane" {
		t.refuse(reason.ControlPlane)
	}
}

// readsHealth: the reason is what a Node or its Machine reports, or fails to
// report, and not somebody's order.
func readsHealth(r reason.Code) bool {
	return r == reason.NodeCondition || r == reason.MachineCondition || r == reason.NodeStartupTimeout
}
