package k8swatch

import (
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fenced/fenced/internal/policy"
)

// nodeCheckLeader is the leader Lease of medik8s' NodeHealthCheck operator.
const nodeCheckLeader = "e1f13584.medik8s.io"

// The phases of a NodeHealthCheck, and the reasons of its condition Disabled.
const (
	phaseDisabled    = "Disabled"
	phasePaused      = "Paused"
	phaseRemediating = "Remediating"
	phaseEnabled     = "Enabled"

	nodeCheckEnabled  = "NodeHealthCheckEnabled"
	conflictDetected  = "ConflictingMachineHealthCheckDetected"
	templateIsInvalid = "RemediationTemplateInvalid"
)

// changedNodeStatus returns what has to be merged into the status of a
// NodeHealthCheck. It leaves the history of requests and storms alone, which
// medik8s' operator keeps there and fenced reads.
func changedNodeStatus(live *unstructured.Unstructured, r *policy.CheckReport, now time.Time) map[string]any {
	status := map[string]any{}
	if r.State == policy.StateActive {
		for name, n := range map[string]int{"observedNodes": r.Expected, "healthyNodes": r.Healthy} {
			if old, found, err := unstructured.NestedInt64(live.Object, "status", name); err != nil || !found || old != int64(n) {
				status[name] = int64(n)
			}
		}
	}
	phase, why := nodeCheckPhase(r)
	for name, text := range map[string]string{"phase": phase, "reason": why} {
		if old, found, err := unstructured.NestedString(live.Object, "status", name); err != nil || !found || old != text {
			status[name] = text
		}
	}
	old := conditionPaths{standard: {"conditions"}}.read(live, standard)
	if list := old.with(standard, disabledCondition(r), now); !reflect.DeepEqual([]any(list), []any(old)) {
		status["conditions"] = []any(list)
	}
	if len(status) > 0 {
		status["lastUpdateTime"] = now.UTC().Format(time.RFC3339)
	}
	return status
}

// nodeCheckPhase is the phase and its reason, as a person reads them.
func nodeCheckPhase(r *policy.CheckReport) (phase, why string) {
	switch {
	case r.State == policy.StateDisabled:
		return phaseDisabled, "NHC is disabled: " + r.Message
	case r.PauseRequested():
		return phasePaused, "NHC is paused: " + r.Message
	case r.Remediating():
		return phaseRemediating, "NHC is remediating unhealthy nodes"
	case !r.Allowed:
		return phaseEnabled, "NHC is enabled, but remediates nothing: " + r.Message
	}
	return phaseEnabled, "NHC is enabled, no ongoing remediation"
}

func disabledCondition(r *policy.CheckReport) condition {
	k := condition{kind: phaseDisabled, status: "True", reason: templateIsInvalid, message: r.Message}
	switch {
	case r.State != policy.StateDisabled:
		k.status, k.reason, k.message = "False", nodeCheckEnabled, "No issues found, NodeHealthCheck is enabled."
	case r.Conflicting:
		k.reason = conflictDetected
	}
	return k
}
