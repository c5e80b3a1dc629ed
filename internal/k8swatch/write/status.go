package write

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/fenced/fenced/internal/k8swatch/client"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
)

// The condition in which both API families report whether the limit is kept.
const (
	remediationAllowed = "RemediationAllowed"
	tooManyUnhealthy   = "TooManyUnhealthy"
)

// fromCluster is the source of checks that are objects, not files.
const fromCluster = "cluster"

// Checks writes what the controllers of checks would write while none is alive.
type Checks struct{ servers *client.Servers }

// NewChecks returns what writes about checks.
func NewChecks(servers *client.Servers) *Checks { return &Checks{servers} }

// WriteStatus writes the result of a check into its status, as the controller of
// its API family would. It writes only differences. It does not change the status
// of a check that is not evaluated.
func (w *Checks) WriteStatus(ctx context.Context, r policy.CheckReport) error {
	if r.Source != fromCluster || !r.HasStatus() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, client.RequestTimeout)
	defer cancel()
	var api dynamic.ResourceInterface
	changed := changedStatus
	switch client.GroupOf(r.APIVersion) {
	case client.Medik8sGroup:
		api, changed = w.servers.Work.API().Dynamic.Resource(client.NodeCheckGVR), changedNodeStatus
	case client.MachineGroup:
		api = w.servers.Work.API().Dynamic.Resource(client.CheckGVR).Namespace(r.Namespace)
	case client.ClusterGroup:
		api = w.servers.ClusterResource("machinehealthchecks", r.Namespace)
	default:
		return nil
	}
	live, err := client.ReadCustom(ctx, api, client.GroupOf(r.APIVersion), r.Namespace, r.Name)
	if client.IsGone(err, r.Name) || err == nil && string(live.GetUID()) != r.UID {
		return nil // another check has the name now, and has its own report
	}
	if err == nil {
		err = writeStatus(ctx, api, live, changed(live, &r, time.Now()))
	}
	if err != nil {
		return fmt.Errorf("write the status of %s %s: %w", r.Kind, strings.TrimPrefix(r.Namespace+"/"+r.Name, "/"), err)
	}
	return nil
}

func writeStatus(ctx context.Context, api dynamic.ResourceInterface, live *unstructured.Unstructured, status map[string]any) error {
	if len(status) == 0 {
		return nil
	}
	patch, err := statusPatch(live, status)
	if err == nil {
		_, err = api.Patch(ctx, live.GetName(), types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	}
	return err
}

// changedStatus returns what has to be merged into the status of a check.
func changedStatus(live *unstructured.Unstructured, r *policy.CheckReport, now time.Time) map[string]any {
	status := map[string]any{}
	for name, n := range map[string]int{
		"expectedMachines": r.Expected, "currentHealthy": r.Healthy, "remediationsAllowed": r.RemediationsAllowed,
	} {
		if old, found, err := unstructured.NestedInt64(live.Object, "status", name); err != nil || !found || old != int64(n) {
			status[name] = int64(n)
		}
	}
	if targets, ok := targetNames(r); ok && client.GroupOf(r.APIVersion) == client.ClusterGroup {
		if old, _, err := unstructured.NestedStringSlice(live.Object, "status", "targets"); err != nil || !slices.Equal(old, targets) {
			status["targets"] = targets
		}
	}
	shape := conditionPathsOf(live.GetAPIVersion())
	for which := range shape {
		old := shape.read(live, which)
		if list := old.with(which, allowance(r, which), now); !reflect.DeepEqual([]any(list), []any(old)) {
			shape.write(status, which, list)
		}
	}
	return status
}

// allowance is the condition that says whether the limit is kept.
func allowance(r *policy.CheckReport, which conditionStyle) condition {
	k := condition{kind: remediationAllowed, status: "True"}
	switch {
	case !r.Allowed:
		k = condition{kind: remediationAllowed, status: "False", severity: "Warning", reason: tooManyUnhealthy, message: r.Message}
	case which == standard:
		k.reason = remediationAllowed
	}
	return k
}

// targetNames returns the Machines that were counted; false if the report does
// not list them all.
func targetNames(r *policy.CheckReport) ([]string, bool) {
	names := []string{}
	for i := range r.Targets {
		if t := &r.Targets[i]; t.Verdict != policy.Skipped {
			_, name, _ := strings.Cut(t.Machine, "/")
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, len(names) == r.Expected
}

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

// verdictsAtOnce is how many Machines one call of WriteVerdicts reads.
const verdictsAtOnce = 20

// unhealthyReasons are the reasons of HealthCheckSucceeded False by the reason of
// the verdict, of the standard condition and of the severe one, as the Cluster API's own controller writes
// them.
var unhealthyReasons = map[string][2]string{
	"RemediateRequested": {"HasRemediateAnnotation", "HasRemediateMachineAnnotation"},
	"MachineCondition":   {"UnhealthyMachine", "UnhealthyMachineCondition"},
	"NodeNotFound":       {"NodeDeleted", "NodeNotFound"},
	"NodeStartupTimeout": {"NodeStartupTimeout", "NodeStartupTimeout"},
	"NodeCondition":      {"UnhealthyNode", "UnhealthyNodeCondition"},
	"MachineFailed":      {"MachineHasFailure", "MachineHasFailure"},
}

// WriteVerdicts writes the condition HealthCheckSucceeded on the Machines of a
// Cluster API check, True and False, as that check's own controller would. It
// leaves a Machine alone about which the check has no verdict. It reads a few
// Machines at a time; more says that it must be called again.
//
// written are the statuses that are known to be on the Machines of this check, by UID.
// WriteVerdicts keeps it up to date. The caller forgets it when somebody else may have
// written.
func (w *Checks) WriteVerdicts(ctx context.Context, r policy.CheckReport, written map[string]string) (more bool, err error) {
	if r.Source != fromCluster || r.State != policy.StateActive || client.GroupOf(r.APIVersion) != client.ClusterGroup {
		return false, nil
	}
	forgetUncovered(written, &r)
	left := verdictsAtOnce
	for i := range r.Targets {
		t := &r.Targets[i]
		want := verdictStatus(t)
		if want == "" || t.MachineUID == "" || written[t.MachineUID] == want {
			continue
		}
		if left--; left < 0 {
			return true, nil
		}
		switch done, err := w.writeVerdict(ctx, t, want); {
		case err != nil:
			return false, err
		case done:
			written[t.MachineUID] = want
		default:
			more = true
		}
	}
	return more, nil
}

// forgetUncovered drops the Machines that the check no longer covers.
func forgetUncovered(written map[string]string, r *policy.CheckReport) {
	covered := map[string]bool{}
	for i := range r.Targets {
		covered[r.Targets[i].MachineUID] = true
	}
	maps.DeleteFunc(written, func(uid, _ string) bool { return !covered[uid] })
}

func verdictStatus(t *policy.TargetReport) string {
	switch t.Verdict {
	case policy.Healthy:
		return "True"
	case policy.Unhealthy:
		return "False"
	}
	return ""
}

// writeVerdict writes the condition on one Machine, unless it is there. done is
// false if somebody else wrote the Machine meanwhile.
func (w *Checks) writeVerdict(ctx context.Context, t *policy.TargetReport, want string) (done bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, client.RequestTimeout)
	defer cancel()
	namespace, name, _ := strings.Cut(t.Machine, "/")
	target := remediate.Target{Namespace: namespace, Machine: name, MachineAPI: t.MachineAPIVersion}
	u, err := w.servers.Machine(ctx, target)
	switch {
	case client.IsGone(err, name):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("read Machine %s: %w", t.Machine, err)
	case string(u.GetUID()) != t.MachineUID, u.GetDeletionTimestamp() != nil:
		return true, nil
	}
	paths := conditionPathsOf(u.GetAPIVersion())
	if paths.read(u, standard).status(checkSucceeded) == want || want == "False" && wouldDelete(u) {
		return true, nil
	}
	status, now := map[string]any{}, time.Now()
	for _, which := range []conditionStyle{standard, severe} {
		paths.write(status, which, paths.read(u, which).with(which, verdictCondition(t, want, which), now))
	}
	patch, err := statusPatch(u, status)
	if err == nil {
		_, err = w.servers.Machines(target).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	}
	if apierrors.IsConflict(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("write %s of Machine %s: %w", checkSucceeded, t.Machine, err)
	}
	return true, nil
}

// wouldDelete says whether HealthCheckSucceeded False would make the owner delete a Machine: with
// OwnerRemediated False it would, and only a run decides that. An older provider writes, and an
// older owner reads, only the old list.
func wouldDelete(u *unstructured.Unstructured) bool {
	paths := conditionPathsOf(u.GetAPIVersion())
	return paths.read(u, standard).status(ownerRemediated) == "False" || paths.read(u, severe).status(ownerRemediated) == "False"
}

func verdictCondition(t *policy.TargetReport, want string, which conditionStyle) condition {
	k := condition{kind: checkSucceeded, status: want}
	reasons, ok := unhealthyReasons[string(t.Reason)]
	switch {
	case want == "True" && which == standard:
		k.reason = checkSucceeded
	case want == "True":
	case !ok:
		k.reason, k.severity, k.message = judgedUnhealthy, "Warning", t.Message
	default:
		k.reason, k.severity, k.message = reasons[which], "Warning", t.Message
	}
	return k
}
