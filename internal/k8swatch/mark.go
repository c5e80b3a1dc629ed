package k8swatch

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fenced/fenced/internal/k8swatch/client"
	"github.com/fenced/fenced/internal/remediate"
)

// The conditions with which the Cluster API's checks hand a Machine to its owner.
// The owner replaces a Machine if both are False.
const (
	checkSucceeded  = "HealthCheckSucceeded"
	ownerRemediated = "OwnerRemediated"
	waiting         = "WaitingForRemediation"
	judgedUnhealthy = "FencedJudgedUnhealthy"
)

// isMarked reports whether the owner of a Machine has been asked to replace it.
// It reads the list of metav1 conditions.
func isMarked(u *unstructured.Unstructured) bool {
	list := conditionPathsOf(u.GetAPIVersion()).read(u, standard)
	return list.status(checkSucceeded) == "False" && list.status(ownerRemediated) == "False"
}

// mark hands a Machine of the Cluster API to its owner instead of deleting it;
// the owner applies limits of its own. The preconditions are the UID of the
// decision and the version that was read. // I2
func (c *Cluster) mark(ctx context.Context, run remediate.Run) error {
	t := run.Target
	if t.MachineUID == "" {
		return fmt.Errorf("mark Machine %s/%s: its UID is not known", t.Namespace, t.Machine)
	}
	asking, cancel := client.WithReadTimeout(ctx)
	u, err := c.servers.Machine(asking, t)
	cancel()
	switch {
	case client.IsGone(err, t.Machine):
		return nil
	case err != nil:
		return fmt.Errorf("mark Machine %s/%s: %w", t.Namespace, t.Machine, err)
	case string(u.GetUID()) != t.MachineUID:
		return fmt.Errorf("mark Machine %s/%s: its UID is not that of the target", t.Namespace, t.Machine)
	case u.GetDeletionTimestamp() != nil || isMarked(u):
		return nil
	}
	patch, err := markPatch(u, run.Trigger, time.Now())
	if err == nil {
		var cancel context.CancelFunc
		ctx, cancel = client.WithWriteTimeout(ctx)
		defer cancel()
		_, err = c.servers.Machines(t).Patch(ctx, t.Machine, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	}
	if err != nil {
		return fmt.Errorf("mark Machine %s/%s: %w", t.Namespace, t.Machine, err)
	}
	return nil
}

// markPatch sets both conditions in both lists.
func markPatch(u *unstructured.Unstructured, why string, now time.Time) ([]byte, error) {
	shape := conditionPathsOf(u.GetAPIVersion())
	status := map[string]any{}
	for _, which := range []conditionStyle{standard, severe} {
		list := shape.read(u, which)
		list = list.with(which, condition{kind: checkSucceeded, status: "False", severity: "Warning", reason: judgedUnhealthy, message: why}, now)
		list = list.with(which, condition{kind: ownerRemediated, status: "False", severity: "Warning", reason: waiting}, now)
		shape.write(status, which, list)
	}
	return statusPatch(u, status)
}

// statusPatch changes status fields of exactly the object that was read.
func statusPatch(u *unstructured.Unstructured, status map[string]any) ([]byte, error) {
	return json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": u.GetUID(), "resourceVersion": u.GetResourceVersion()},
		"status":   status,
	})
}
