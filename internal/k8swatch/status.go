package k8swatch

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/fenced/fenced/internal/k8swatch/client"
	"github.com/fenced/fenced/internal/policy"
)

// The condition in which both API families report whether the limit is kept.
const (
	remediationAllowed = "RemediationAllowed"
	tooManyUnhealthy   = "TooManyUnhealthy"
)

// fromCluster is the source of checks that are objects, not files.
const fromCluster = "cluster"

// WriteStatus writes the result of a check into its status, as the controller of
// its API family would. It writes only differences. It does not change the status
// of a check that is not evaluated.
func (c *Cluster) WriteStatus(ctx context.Context, r policy.CheckReport) error {
	if r.Source != fromCluster || !r.HasStatus() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, client.RequestTimeout)
	defer cancel()
	var api dynamic.ResourceInterface
	changed := changedStatus
	switch client.GroupOf(r.APIVersion) {
	case client.Medik8sGroup:
		api, changed = c.work.API().Dynamic.Resource(client.NodeCheckGVR), changedNodeStatus
	case client.MachineGroup:
		api = c.work.API().Dynamic.Resource(client.CheckGVR).Namespace(r.Namespace)
	case client.ClusterGroup:
		api = c.servers.ClusterResource("machinehealthchecks", r.Namespace)
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
