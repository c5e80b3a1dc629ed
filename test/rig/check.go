package rig

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// StrategyAnnotation on a MachineHealthCheck, with the value BareMetalStrategy, asks for a power cycle
// instead of a deletion.
const (
	StrategyAnnotation = "machine.openshift.io/remediation-strategy"
	BareMetalStrategy  = "external-baremetal"
)

// Check is a MachineHealthCheck to create. The API server gets the values as they are, even invalid
// ones. An empty field is left out.
type Check struct {
	Name string
	// Strategy is the value of StrategyAnnotation.
	Strategy string
	// Match selects the Machines by label; empty selects all, as in the API.
	Match      map[string]string
	Conditions []UnhealthyCondition
	// MaxUnhealthy is a string ("40%") or an int64 number.
	MaxUnhealthy       any
	NodeStartupTimeout string
	Annotations        map[string]string
}

// UnhealthyCondition is one entry of a check.
type UnhealthyCondition struct{ Type, Status, Timeout string }

// NotReadyFor returns the two entries that nearly every check has.
func NotReadyFor(timeout string) []UnhealthyCondition {
	return []UnhealthyCondition{{"Ready", "Unknown", timeout}, {"Ready", "False", timeout}}
}

// CreateCheck creates a MachineHealthCheck.
func (c *ControlPlane) CreateCheck(ctx context.Context, k Check) (*unstructured.Unstructured, error) {
	obj := object("machine.openshift.io/v1beta1", "MachineHealthCheck", k.Name, nil, k.Annotations)
	if k.Strategy != "" {
		annotations := obj.GetAnnotations()
		annotations[StrategyAnnotation] = k.Strategy
		obj.SetAnnotations(annotations)
	}
	spec := map[string]any{"selector": matchLabels(k.Match)}
	if len(k.Conditions) > 0 {
		spec["unhealthyConditions"] = unhealthyConditions(k.Conditions, "timeout")
	}
	if k.MaxUnhealthy != nil {
		spec["maxUnhealthy"] = k.MaxUnhealthy
	}
	if k.NodeStartupTimeout != "" {
		spec["nodeStartupTimeout"] = k.NodeStartupTimeout
	}
	obj.Object["spec"] = spec
	return c.createWithStatus(ctx, obj, nil)
}
