package write

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/k8swatch/client"
	"github.com/fenced/fenced/internal/policy"
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

// IsMarked reports whether the owner of a Machine has been asked to replace it. The list of metav1 conditions says so; of a condition that
// is not in it, the old list of v1beta1, because an older core provider keeps, and its owners read, only that.
func IsMarked(u *unstructured.Unstructured) bool {
	paths := conditionPathsOf(u.GetAPIVersion())
	current, old := paths.read(u, standard), conditionList{}
	if u.GetAPIVersion() == policy.ClusterAPIV1Beta1 {
		old = paths.read(u, severe)
	}
	isFalse := func(kind string) bool { return cmp.Or(current.status(kind), old.status(kind)) == "False" }
	return isFalse(checkSucceeded) && isFalse(ownerRemediated)
}

// mark hands a Machine of the Cluster API to its owner instead of deleting it;
// the owner applies limits of its own. The preconditions are the UID of the
// decision and the version that was read. // I2
func (w *Runs) mark(ctx context.Context, run remediate.Run) error {
	t := run.Target
	if t.MachineUID == "" {
		return fmt.Errorf("mark Machine %s/%s: its UID is not known", t.Namespace, t.Machine)
	}
	asking, cancel := client.WithReadTimeout(ctx)
	u, err := w.servers.Machine(asking, t)
	cancel()
	switch {
	case client.IsGone(err, t.Machine):
		return nil
	case err != nil:
		return fmt.Errorf("mark Machine %s/%s: %w", t.Namespace, t.Machine, err)
	case string(u.GetUID()) != t.MachineUID:
		return fmt.Errorf("mark Machine %s/%s: its UID is not that of the target", t.Namespace, t.Machine)
	case u.GetDeletionTimestamp() != nil || IsMarked(u):
		return nil
	}
	patch, err := markPatch(u, run.Trigger, time.Now())
	if err == nil {
		var cancel context.CancelFunc
		ctx, cancel = client.WithWriteTimeout(ctx)
		defer cancel()
		_, err = w.servers.Machines(t).Patch(ctx, t.Machine, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
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

// conditionStyle is one of the two styles of conditions that the Cluster API
// writes.
type conditionStyle int

const (
	standard conditionStyle = iota // metav1.Condition: always a reason, no severity
	severe                         // the older style, with a severity
)

// conditionPaths are the status fields that hold the conditions of each style.
type conditionPaths map[conditionStyle][]string

func conditionPathsOf(apiVersion string) conditionPaths {
	switch apiVersion {
	case client.ClusterGroup + "/v1beta2":
		return conditionPaths{standard: {"conditions"}, severe: {"deprecated", "v1beta1", "conditions"}}
	case client.ClusterGroup + "/v1beta1":
		return conditionPaths{standard: {"v1beta2", "conditions"}, severe: {"conditions"}}
	}
	return conditionPaths{severe: {"conditions"}} // OpenShift's
}

// condition is a condition to write.
type condition struct {
	kind, status, severity, reason, message string
	// generation is that of the object about which it speaks; 0: that stays as it is.
	generation int64
}

// conditionList is a list of conditions as it is in the API.
type conditionList []any

func (s conditionPaths) read(u *unstructured.Unstructured, which conditionStyle) conditionList {
	list, _, err := unstructured.NestedSlice(u.Object, append([]string{"status"}, s[which]...)...)
	if err != nil {
		return nil // not a list: the API server will reject our write
	}
	return list
}

// write puts a list into the fields of a status.
func (s conditionPaths) write(status map[string]any, which conditionStyle, list conditionList) {
	path := s[which]
	for _, field := range path[:len(path)-1] {
		next, ok := status[field].(map[string]any)
		if !ok {
			next = map[string]any{}
			status[field] = next
		}
		status = next
	}
	status[path[len(path)-1]] = []any(list)
}

func (l conditionList) find(kind string) (int, map[string]any) {
	for i := range l {
		if m, ok := l[i].(map[string]any); ok && m["type"] == kind {
			return i, m
		}
	}
	return -1, nil
}

func (l conditionList) status(kind string) string {
	_, m := l.find(kind)
	status, _ := m["status"].(string)
	return status
}

// with returns the list with one condition set. Its time changes as with the
// upstream controllers: of a standard condition when the status changes, of a
// severe one when anything changes.
func (l conditionList) with(which conditionStyle, c condition, now time.Time) conditionList {
	next := map[string]any{"type": c.kind, "status": c.status, "lastTransitionTime": now.UTC().Format(time.RFC3339)}
	put(next, "message", c.message)
	put(next, "reason", c.reason)
	if which == severe {
		put(next, "severity", c.severity)
	} else if c.message == "" {
		next["message"] = "" // metav1 requires the field
	}
	if c.generation > 0 {
		next["observedGeneration"] = c.generation
	}
	at, old := l.find(c.kind)
	if old == nil {
		all := append(slices.Clone(l), next)
		if which == severe {
			slices.SortStableFunc(all, byType)
		}
		return all
	}
	if old["status"] == c.status && (which == standard || same(old, next, "reason", "severity", "message")) {
		next["lastTransitionTime"] = old["lastTransitionTime"]
	}
	if which == standard && c.generation == 0 && old["observedGeneration"] != nil {
		next["observedGeneration"] = old["observedGeneration"]
	}
	all := slices.Clone(l)
	all[at] = next
	return all
}

func put(into map[string]any, key, value string) {
	if value != "" {
		into[key] = value
	}
}

func same(a, b map[string]any, keys ...string) bool {
	for _, k := range keys {
		x, _ := a[k].(string)
		y, _ := b[k].(string)
		if x != y {
			return false
		}
	}
	return true
}

func byType(a, b any) int {
	x, _ := a.(map[string]any)
	y, _ := b.(map[string]any)
	s, _ := x["type"].(string)
	t, _ := y["type"].(string)
	return strings.Compare(s, t)
}

// markTimeout ends the writing of a mark, here and at the API server. A run starts to
// power off when its Node is marked. It saves the Node at the earliest when its host is
// proven off, and a mark that is written after that would make the isolation fail once.
const markTimeout = 2 * time.Second

// Mark writes a mark onto an object, or removes it if it names no run. It does nothing if
// another object has the name now. It takes at most two seconds, and the API server carries
// it out within these or not at all.
func (w *Runs) Mark(ctx context.Context, m event.RunMark) error {
	ctx, cancel := context.WithTimeout(client.WithoutRetry(ctx), markTimeout)
	defer cancel()
	values := map[string]any{client.RunAnnotation: m.Run, client.StepAnnotation: m.Step, client.InstanceAnnotation: m.Instance}
	if m.Run == "" {
		values = map[string]any{client.RunAnnotation: nil, client.StepAnnotation: nil, client.InstanceAnnotation: nil}
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": m.UID, "annotations": values}})
	if err != nil {
		return err
	}
	request := w.servers.Of(m.APIVersion).API().Typed.Core.Patch(types.MergePatchType)
	if group := client.GroupOf(m.APIVersion); m.Kind == "Machine" {
		gvr := client.MachineGVR
		if group == client.ClusterGroup {
			gvr = w.servers.Served(gvr.Resource)
		}
		request = request.AbsPath("apis", gvr.Group, gvr.Version).Namespace(m.Namespace).Resource(gvr.Resource)
	} else {
		request = request.Resource("nodes")
	}
	switch err := request.Name(m.Name).Timeout(markTimeout).Body(patch).Do(ctx).Error(); {
	case err == nil, client.IsGone(err, m.Name):
		return nil
	case apierrors.IsForbidden(err):
		return fmt.Errorf("annotate %s %s: %w: apply rbac.yaml, which has this right", m.Kind, m.Name, err)
	default:
		return fmt.Errorf("annotate %s %s: %w", m.Kind, m.Name, err)
	}
}
