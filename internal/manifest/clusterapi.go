package manifest

import (
	"cmp"
	"time"

	"github.com/fenced/fenced/internal/policy"
)

// Keys of the Cluster API.
const (
	clusterNameLabel    = "cluster.x-k8s.io/cluster-name"
	skipAnnotation      = "cluster.x-k8s.io/skip-remediation"
	remediateAnnotation = "cluster.x-k8s.io/remediate-machine"

	controlPlaneInitialized = "ControlPlaneInitialized"
	infrastructureReady     = "InfrastructureReady"
	ownerRemediated         = "OwnerRemediated"
)

// isClusterAPI reports whether this version of fenced reads objects of that
// apiVersion.
func isClusterAPI(apiVersion string) bool {
	return apiVersion == policy.ClusterAPIV1Beta1 || apiVersion == policy.ClusterAPIV1Beta2
}

// Cluster decodes a cluster.x-k8s.io Cluster of v1beta1 or v1beta2. A condition
// takes precedence over the field with the same meaning.
func Cluster(fields map[string]any) (policy.Cluster, error) {
	o := read(fields)
	status := o.child("status")
	c := policy.Cluster{Paused: o.child("spec").flag("paused")}
	c.Namespace, c.Name, _, _ = identify(o.child("metadata"), true)
	old := o.text("apiVersion") == policy.ClusterAPIV1Beta1
	seen := clusterConditions(status, old)
	initialization := status.child("initialization")
	initialized, provisioned := initialization.flag("controlPlaneInitialized"), initialization.flag("infrastructureProvisioned")
	if old {
		initialized, provisioned = status.flag("controlPlaneReady"), status.flag("infrastructureReady")
	}
	c.ControlPlaneInitialized, c.ControlPlaneSince = seen.holds(controlPlaneInitialized, initialized)
	c.InfrastructureReady, c.InfrastructureReadySince = seen.holds(infrastructureReady, provisioned)
	return c, o.err()
}

// clusterMachine decodes a cluster.x-k8s.io Machine of v1beta1 or v1beta2.
func clusterMachine(o object) (policy.Machine, error) {
	status := o.child("status")
	m := machineOf(o, status)
	old := m.APIVersion == policy.ClusterAPIV1Beta1
	seen := clusterConditions(status, old)
	node, infrastructure := status.child("nodeRef"), o.child("spec").child("infrastructureRef")
	m.NodeName, m.NodeUID = node.text("name"), node.text("uid") // a reference without a name counts as none
	m.Infrastructure.Name = infrastructure.text("name")
	m.Infrastructure.Kind = kindAndGroup(infrastructure.text("kind"), cmp.Or(infrastructure.text("apiVersion"), infrastructure.text("apiGroup")+"/"))
	m.Conditions, m.OwnerRemediated, m.Failure = seen.current, seen.status(ownerRemediated), terminalFailure(status, old)
	m.ClusterName = m.Labels[clusterNameLabel]
	_, m.InfrastructureReadySince = seen.holds(infrastructureReady, false)
	_, m.Paused = m.Annotations[pausedAnnotation]
	_, m.SkipRemediation = m.Annotations[skipAnnotation]
	_, m.RemediateRequested = m.Annotations[remediateAnnotation]
	return m, o.err()
}

// terminalFailure reads failureReason and failureMessage, which v1beta2 keeps
// only for v1beta1.
func terminalFailure(status object, old bool) string {
	if !old {
		status = status.child("deprecated").child("v1beta1")
	}
	why, message := status.start("failureReason", maxFailure), status.start("failureMessage", maxFailure)
	if why != "" && message != "" {
		why += ": "
	}
	return why + message
}

// maxFailure is how much of each text about a failure is kept, in bytes. Its author may write any
// length.
const maxFailure = 300

// conditionLists are the conditions of a Cluster API object. Owners and checks
// use the list that v1beta2 introduced; an older core provider writes only the
// old list.
type conditionLists struct {
	current, old []policy.Condition
}

func clusterConditions(status object, old bool) conditionLists {
	if old {
		return conditionLists{current: conditions(status.child("v1beta2")), old: conditions(status)}
	}
	return conditionLists{current: conditions(status)}
}

// find returns a condition of the current list, or else of the old one.
func (l conditionLists) find(kind string) (policy.Condition, bool) {
	for _, list := range [][]policy.Condition{l.current, l.old} {
		for _, c := range list {
			if c.Type == kind {
				return c, true
			}
		}
	}
	return policy.Condition{}, false
}

// status is the condition's status, or empty if it is absent.
func (l conditionLists) status(kind string) string {
	c, _ := l.find(kind)
	return c.Status
}

// holds returns whether a condition is True, and since when; fallback if it is
// absent.
func (l conditionLists) holds(kind string, fallback bool) (bool, time.Time) {
	c, ok := l.find(kind)
	switch {
	case !ok:
		return fallback, time.Time{}
	case c.Status != "True":
		return false, time.Time{}
	}
	return true, c.LastTransition
}
