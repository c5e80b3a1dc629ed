package k8swatch

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fenced/fenced/internal/k8swatch/client"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
)

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
func (c *Cluster) WriteVerdicts(ctx context.Context, r policy.CheckReport, written map[string]string) (more bool, err error) {
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
		switch done, err := c.writeVerdict(ctx, t, want); {
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
func (c *Cluster) writeVerdict(ctx context.Context, t *policy.TargetReport, want string) (done bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, client.RequestTimeout)
	defer cancel()
	namespace, name, _ := strings.Cut(t.Machine, "/")
	target := remediate.Target{Namespace: namespace, Machine: name, MachineAPI: t.MachineAPIVersion}
	u, err := c.servers.Machine(ctx, target)
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
		_, err = c.servers.Machines(target).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
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
