package rig

import (
	"context"
	"fmt"
	"maps"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	capiGroup           = "cluster.x-k8s.io"
	capiInfraGroup      = "infrastructure.cluster.x-k8s.io"
	capiControlPlane    = "controlplane.cluster.x-k8s.io"
	capiClusterLabel    = "cluster.x-k8s.io/cluster-name"
	capiRoleLabel       = "cluster.x-k8s.io/control-plane"
	capiControllerLabel = "cluster.x-k8s.io/control-plane-name"
	capiSetLabel        = "cluster.x-k8s.io/set-name"
)

// CAPIResource is a resource of cluster.x-k8s.io: "machines", "clusters".
func CAPIResource(version, plural string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: capiGroup, Version: version, Resource: plural}
}

// capi is the served version of Cluster API, and knows its shapes.
type capi string

func (c *ControlPlane) capi(ctx context.Context) (capi, error) {
	m, err := c.mapper.RESTMapping(ctx, schema.GroupKind{Group: capiGroup, Kind: "Machine"})
	if err != nil {
		return "", fmt.Errorf("find the version of Cluster API: %w", err)
	}
	return capi(m.Resource.Version), nil
}

// object returns a new object of cluster.x-k8s.io in Namespace.
func (v capi) object(kind, name string, labels, annotations map[string]string) *unstructured.Unstructured {
	return object(capiGroup+"/"+string(v), kind, name, labels, annotations)
}

// ref returns a reference to an object in Namespace. In v1beta1 it has the object's version and
// namespace, in v1beta2 neither.
func (v capi) ref(group, kind, name string) map[string]any {
	if v == "v1beta1" {
		return map[string]any{"apiVersion": group + "/v1beta1", "kind": kind, "name": name, "namespace": Namespace}
	}
	return map[string]any{"apiGroup": group, "kind": kind, "name": name}
}

// createCAPI creates obj with its status, in which conditions of some types are True, in both lists.
func (c *ControlPlane) createCAPI(ctx context.Context, v capi, obj *unstructured.Unstructured, status map[string]any, types ...string,
) (*unstructured.Unstructured, error) {
	var old, standard []any // only the standard list has messages, also empty ones
	for _, t := range types {
		cond := map[string]any{"type": t, "status": "True", "reason": "Rig", "lastTransitionTime": time.Now().UTC().Format(time.RFC3339)}
		old = append(old, cond)
		cond = maps.Clone(cond)
		cond["message"] = ""
		standard = append(standard, cond)
	}
	if v == "v1beta1" {
		status["conditions"], status["v1beta2"] = old, map[string]any{"conditions": standard}
	} else {
		status["conditions"], status["deprecated"] = standard, map[string]any{"v1beta1": map[string]any{"conditions": old}}
	}
	return c.createWithStatus(ctx, obj, status)
}

// CreateCAPICluster creates a Cluster in the state in which the controllers of Cluster API leave a
// running one, in the shape of the served version.
func (c *ControlPlane) CreateCAPICluster(ctx context.Context, name string) (*unstructured.Unstructured, error) {
	v, err := c.capi(ctx)
	if err != nil {
		return nil, err
	}
	obj := v.object("Cluster", name, nil, nil)
	obj.Object["spec"] = map[string]any{
		"controlPlaneEndpoint": map[string]any{"host": "192.0.2.1", "port": int64(6443)},
		"infrastructureRef":    v.ref(capiInfraGroup, "Metal3Cluster", name),
		"controlPlaneRef":      v.ref(capiControlPlane, "KubeadmControlPlane", name),
	}
	status := map[string]any{"phase": "Provisioned"}
	if v == "v1beta1" {
		status["infrastructureReady"], status["controlPlaneReady"] = true, true
	} else {
		status["initialization"] = map[string]any{"infrastructureProvisioned": true, "controlPlaneInitialized": true}
	}
	return c.createCAPI(ctx, v, obj, status, "ControlPlaneInitialized", "InfrastructureReady")
}

// CreateCAPIMachineSet creates a MachineSet without Machines. It replaces nothing, because no
// controller runs.
func (c *ControlPlane) CreateCAPIMachineSet(ctx context.Context, cluster, name string) (*unstructured.Unstructured, error) {
	v, err := c.capi(ctx)
	if err != nil {
		return nil, err
	}
	obj := v.machineSet(cluster, name, 1, map[string]string{capiClusterLabel: cluster, capiSetLabel: name}, "Metal3MachineTemplate")
	return c.createWithStatus(ctx, obj, map[string]any{"replicas": int64(1), "readyReplicas": int64(1)})
}

// machineSet returns a MachineSet whose Machines have the labels, and come from the template of its name and of a kind.
func (v capi) machineSet(cluster, name string, replicas int, labels map[string]string, template string) *unstructured.Unstructured {
	set := v.object("MachineSet", name, map[string]string{capiClusterLabel: cluster}, nil)
	set.Object["spec"] = map[string]any{
		"clusterName": cluster, "replicas": int64(replicas), "selector": matchLabels(labels),
		"template": map[string]any{
			"metadata": map[string]any{"labels": matchLabels(labels)["matchLabels"]},
			"spec": map[string]any{
				"clusterName":       cluster,
				"bootstrap":         map[string]any{"dataSecretName": name},
				"infrastructureRef": v.ref(capiInfraGroup, template, name),
			},
		},
	}
	return set
}

// CreateCAPIControlPlane creates a KubeadmControlPlane without Machines. It replaces nothing, because
// no controller runs.
func (c *ControlPlane) CreateCAPIControlPlane(ctx context.Context, cluster, name string) (*unstructured.Unstructured, error) {
	v, err := c.capi(ctx)
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

// CAPIMachine is a Machine of Cluster API to create.
type CAPIMachine struct {
	Name, Cluster string
	// MachineSet or ControlPlane is the controller of the Machine, and must exist; empty for
	// none.
	MachineSet, ControlPlane string
	// Host is the BareMetalHost that providerID names.
	Host string
	// NodeName is the Node in status.nodeRef. It need not exist. If it does, it is in the workload
	// cluster.
	NodeName string
	Labels   map[string]string
}

// NamesCAPIMachine are the annotations with which the Cluster API writes into a Node which Machine is its.
func NamesCAPIMachine(machine string) map[string]string {
	return map[string]string{"cluster.x-k8s.io/cluster-namespace": Namespace, "cluster.x-k8s.io/machine": machine}
}

// CreateCAPIMachine creates a Machine with its status, as the controllers of Cluster API leave it, in
// the shape of the served version.
func (c *ControlPlane) CreateCAPIMachine(ctx context.Context, m CAPIMachine) (*unstructured.Unstructured, error) {
	v, err := c.capi(ctx)
	if err != nil {
		return nil, err
	}
	obj := v.object("Machine", m.Name, m.Labels, nil)
	setDefault(obj, capiClusterLabel, m.Cluster)
	if err := c.own(ctx, v, obj, m); err != nil {
		return nil, err
	}
	spec := map[string]any{
		"clusterName":       m.Cluster,
		"bootstrap":         map[string]any{"dataSecretName": m.Name},
		"infrastructureRef": v.ref(capiInfraGroup, "Metal3Machine", m.Name),
		"version":           "v1.36.3",
	}
	if m.Host != "" {
		spec["providerID"] = "metal3://" + Namespace + "/" + m.Host + "/" + m.Name
	}
	obj.Object["spec"] = spec
	status, types := m.status(v)
	return c.createCAPI(ctx, v, obj, status, types...)
}

// own gives obj its owner, and the labels by which the owner selects it.
func (c *ControlPlane) own(ctx context.Context, v capi, obj *unstructured.Unstructured, m CAPIMachine) error {
	var r schema.GroupVersionResource
	var name string
	switch {
	case m.ControlPlane != "":
		r = schema.GroupVersionResource{Group: capiControlPlane, Version: string(v), Resource: "kubeadmcontrolplanes"}
		name = m.ControlPlane
		setDefault(obj, capiRoleLabel, "")
		setDefault(obj, capiControllerLabel, name)
	case m.MachineSet != "":
		r, name = CAPIResource(string(v), "machinesets"), m.MachineSet
		setDefault(obj, capiSetLabel, name)
	default:
		return nil
	}
	owner, err := c.dynamic.Resource(r).Namespace(Namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("find the owner of Machine %s: %w", m.Name, err)
	}
	obj.SetOwnerReferences(controllerRef(owner))
	return nil
}

// status returns the status, and the types of the conditions that are True.
func (m CAPIMachine) status(v capi) (map[string]any, []string) {
	types := []string{"InfrastructureReady"}
	status := map[string]any{"lastUpdated": time.Now().UTC().Format(time.RFC3339), "phase": "Provisioned"}
	if m.NodeName != "" {
		status["phase"], types = "Running", append(types, "Ready", "NodeHealthy")
		ref := map[string]any{"name": m.NodeName}
		if v == "v1beta1" {
			ref["apiVersion"], ref["kind"] = "v1", "Node"
		}
		status["nodeRef"] = ref
	}
	if v == "v1beta1" {
		status["infrastructureReady"], status["bootstrapReady"] = true, true
	} else {
		status["initialization"] = map[string]any{"infrastructureProvisioned": true, "bootstrapDataSecretCreated": true}
	}
	return status, types
}
