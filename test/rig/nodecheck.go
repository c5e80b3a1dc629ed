package rig

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The resources of medik8s and of OpenShift's upgrades. NodeHealthChecks and ClusterVersions have no
// namespace.
var (
	NodeCheckResource = schema.GroupVersionResource{
		Group: "remediation.medik8s.io", Version: "v1alpha1", Resource: "nodehealthchecks",
	}
	MachineDeletionResource = schema.GroupVersionResource{
		Group: "machine-deletion-remediation.medik8s.io", Version: "v1alpha1", Resource: "machinedeletionremediations",
	}
	ClusterVersionResource = schema.GroupVersionResource{
		Group: "config.openshift.io", Version: "v1", Resource: "clusterversions",
	}
)

// NodeCheck is a NodeHealthCheck to create. The API server gets the values as they are, even invalid
// ones. An empty field is left out.
type NodeCheck struct {
	Name string
	// Match selects the Nodes by label; empty selects all.
	Match map[string]string
	// Conditions are Ready=False and Ready=Unknown for 300 s if empty.
	Conditions []UnhealthyCondition
	// MinHealthy and MaxUnhealthy are strings ("51%") or int64 numbers.
	MinHealthy, MaxUnhealthy    any
	Template                    TemplateRef
	Escalating                  []Escalation
	PauseRequests               []string
	HealthyDelay, StormCooldown string
	Annotations                 map[string]string
}

// Escalation is one of a series of remediations.
type Escalation struct {
	Order    int64
	Template TemplateRef
	Timeout  string
}

// CreateNodeCheck creates a NodeHealthCheck.
func (c *ControlPlane) CreateNodeCheck(ctx context.Context, k NodeCheck) (*unstructured.Unstructured, error) {
	obj := object("remediation.medik8s.io/v1alpha1", "NodeHealthCheck", k.Name, nil, k.Annotations)
	obj.SetNamespace("")
	spec := map[string]any{"selector": matchLabels(k.Match)}
	if len(k.Conditions) > 0 {
		spec["unhealthyConditions"] = unhealthyConditions(k.Conditions, "duration")
	}
	for key, value := range map[string]any{"minHealthy": k.MinHealthy, "maxUnhealthy": k.MaxUnhealthy} {
		if value != nil {
			spec[key] = value
		}
	}
	for key, value := range map[string]string{"healthyDelay": k.HealthyDelay, "stormCooldownDuration": k.StormCooldown} {
		if value != "" {
			spec[key] = value
		}
	}
	if len(k.PauseRequests) > 0 {
		var requests []any
		for _, r := range k.PauseRequests {
			requests = append(requests, r)
		}
		spec["pauseRequests"] = requests
	}
	if k.Template != (TemplateRef{}) {
		spec["remediationTemplate"] = k.Template.object()
	}
	var steps []any
	for _, e := range k.Escalating {
		steps = append(steps, map[string]any{"order": e.Order, "timeout": e.Timeout, "remediationTemplate": e.Template.object()})
	}
	if len(steps) > 0 {
		spec["escalatingRemediations"] = steps
	}
	obj.Object["spec"] = spec
	return c.createWithStatus(ctx, obj, nil)
}

// PutClusterVersion creates or changes the ClusterVersion of an OpenShift cluster. progressing means
// that an upgrade is in progress.
func (c *ControlPlane) PutClusterVersion(ctx context.Context, progressing bool) error {
	obj := object("config.openshift.io/v1", "ClusterVersion", "version", nil, nil)
	obj.SetNamespace("")
	obj.Object["spec"] = map[string]any{"clusterID": "3f8a1f0e-5b0e-4a52-9d6e-0f2b6f4f9c11"}
	if err := c.apply(ctx, obj); err != nil {
		return err
	}
	status := "False"
	if progressing {
		status = "True"
	}
	image := "registry.example.com/release@sha256:0"
	err := c.SetStatus(ctx, ClusterVersionResource, "version", map[string]any{
		"availableUpdates": []any{}, "observedGeneration": int64(1), "versionHash": "rig",
		"desired": map[string]any{"version": "4.20.0", "image": image},
		"conditions": []any{map[string]any{
			"type": "Progressing", "status": status, "reason": "Rig", "message": "",
			"lastTransitionTime": time.Now().UTC().Format(time.RFC3339),
		}},
	})
	if err != nil {
		return fmt.Errorf("say whether the cluster is upgraded: %w", err)
	}
	return nil
}
