package rig

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// CAPICluster is a Cluster of Cluster API to create.
type CAPICluster struct {
	Name   string
	Paused bool
	// Conditions are added to ControlPlaneInitialized and InfrastructureReady, which become True
	// now if they are not in the list.
	Conditions  []CAPICondition
	Annotations map[string]string
}

// CreateCAPICluster creates a Cluster in the state in which the controllers of Cluster API leave a
// running one, in the shape of the served version.
func (c *ControlPlane) CreateCAPICluster(ctx context.Context, k CAPICluster) (*unstructured.Unstructured, error) {
	v, err := c.capi()
	if err != nil {
		return nil, err
	}
	obj := v.object("Cluster", k.Name, nil, k.Annotations)
	spec := map[string]any{
		"controlPlaneEndpoint": map[string]any{"host": "192.0.2.1", "port": int64(6443)},
		"infrastructureRef":    v.ref(capiInfraGroup, "Metal3Cluster", k.Name),
		"controlPlaneRef":      v.ref(capiControlPlane, "KubeadmControlPlane", k.Name),
	}
	if k.Paused {
		spec["paused"] = true
	}
	obj.Object["spec"] = spec
	conditions := withDefaults(k.Conditions, "ControlPlaneInitialized", "InfrastructureReady")
	status := map[string]any{"phase": "Provisioned"}
	ready, initialized := isTrue(conditions, "InfrastructureReady"), isTrue(conditions, "ControlPlaneInitialized")
	if v == "v1beta1" {
		status["infrastructureReady"], status["controlPlaneReady"] = ready, initialized
	} else {
		status["initialization"] = map[string]any{
			"infrastructureProvisioned": ready, "controlPlaneInitialized": initialized,
		}
	}
	return c.createCAPI(ctx, v, obj, status, conditions)
}

// withDefaults puts the types that are True by default before the conditions.
func withDefaults(conditions []CAPICondition, types ...string) []CAPICondition {
	var all []CAPICondition
	for _, t := range types {
		all = append(all, CAPICondition{Type: t, Status: "True"})
	}
	return append(all, conditions...) // the last one of a type counts
}

func isTrue(conditions []CAPICondition, kind string) bool {
	status := ""
	for _, cond := range conditions {
		if cond.Type == kind {
			status = cond.Status
		}
	}
	return status == "True"
}

// CreateCAPIMachineSet creates a MachineSet without Machines. It replaces nothing, because no
// controller runs.
func (c *ControlPlane) CreateCAPIMachineSet(ctx context.Context, cluster, name string) (*unstructured.Unstructured, error) {
	v, err := c.capi()
	if err != nil {
		return nil, err
	}
	labels := map[string]any{capiClusterLabel: cluster, capiSetLabel: name}
	obj := v.object("MachineSet", name, map[string]string{capiClusterLabel: cluster}, nil)
	obj.Object["spec"] = map[string]any{
		"clusterName": cluster, "replicas": int64(1), "selector": map[string]any{"matchLabels": labels},
		"template": map[string]any{
			"metadata": map[string]any{"labels": labels},
			"spec": map[string]any{
				"clusterName":       cluster,
				"bootstrap":         map[string]any{"dataSecretName": name},
				"infrastructureRef": v.ref(capiInfraGroup, "Metal3MachineTemplate", name),
			},
		},
	}
	return c.createWithStatus(ctx, obj, map[string]any{"replicas": int64(1), "readyReplicas": int64(1)})
}

// CreateCAPIControlPlane creates a KubeadmControlPlane without Machines. It replaces nothing, because
// no controller runs.
func (c *ControlPlane) CreateCAPIControlPlane(ctx context.Context, cluster, name string) (*unstructured.Unstructured, error) {
	v, err := c.capi()
	if err != nil {
		return nil, err
	}
	obj := object(capiControlPlane+"/"+string(v), "KubeadmControlPlane", name, map[string]string{capiClusterLabel: cluster}, nil)
	infrastructure := map[string]any{"infrastructureRef": v.ref(capiInfraGroup, "Metal3MachineTemplate", name)}
	spec := map[string]any{
		"version": "v1.36.3", "replicas": int64(3), "kubeadmConfigSpec": map[string]any{"format": "cloud-config"},
		"machineTemplate": infrastructure,
	}
	if v != "v1beta1" {
		spec["machineTemplate"] = map[string]any{"spec": infrastructure}
	}
	obj.Object["spec"] = spec
	return c.createWithStatus(ctx, obj, nil)
}

// controllerRef is the owner reference that names owner as the controller.
func controllerRef(owner *unstructured.Unstructured) []metav1.OwnerReference {
	return []metav1.OwnerReference{*metav1.NewControllerRef(owner, owner.GroupVersionKind())}
}
