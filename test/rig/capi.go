package rig

import (
	"context"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/retry"
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

func (c *ControlPlane) capi() (capi, error) {
	m, err := c.mapper.RESTMapping(schema.GroupKind{Group: capiGroup, Kind: "Machine"})
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

// createCAPI creates obj with its status and the conditions in both lists.
func (c *ControlPlane) createCAPI(ctx context.Context, v capi, obj *unstructured.Unstructured, status map[string]any,
	conditions []CAPICondition,
) (*unstructured.Unstructured, error) {
	obj.Object["status"] = status
	if err := v.setConditions(obj, conditions); err != nil {
		return nil, err
	}
	return c.createWithStatus(ctx, obj, status)
}

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

// CAPIMachine is a Machine of Cluster API to create.
type CAPIMachine struct {
	Name, Cluster string
	// MachineSet or ControlPlane is the controller of the Machine, and must exist; empty for
	// none.
	MachineSet, ControlPlane string
	// Host is the BareMetalHost that providerID names.
	Host string
	// ProviderID is for a Machine without Host.
	ProviderID string
	// NodeName is the Node in status.nodeRef. It need not exist. If it does, it is in the workload
	// cluster.
	NodeName string
	// Phase is status.phase. If empty, it is "Running", or "Provisioned" without a Node.
	Phase string
	// Conditions are added to InfrastructureReady and, with a Node, to Ready and NodeHealthy.
	// Those become True now if they are not in the list.
	Conditions          []CAPICondition
	Labels, Annotations map[string]string
}

// NamesCAPIMachine are the annotations with which the Cluster API writes into a Node which Machine is its.
func NamesCAPIMachine(machine string) map[string]string {
	return map[string]string{"cluster.x-k8s.io/cluster-namespace": Namespace, "cluster.x-k8s.io/machine": machine}
}

// CreateCAPIMachine creates a Machine with its status, as the controllers of Cluster API leave it, in
// the shape of the served version.
func (c *ControlPlane) CreateCAPIMachine(ctx context.Context, m CAPIMachine) (*unstructured.Unstructured, error) {
	v, err := c.capi()
	if err != nil {
		return nil, err
	}
	obj := v.object("Machine", m.Name, m.Labels, m.Annotations)
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
	if m.ProviderID != "" {
		spec["providerID"] = m.ProviderID
	}
	obj.Object["spec"] = spec
	status, conditions := m.status(v)
	return c.createCAPI(ctx, v, obj, status, conditions)
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

func (m CAPIMachine) status(v capi) (map[string]any, []CAPICondition) {
	phase, types := "Provisioned", []string{"InfrastructureReady"}
	status := map[string]any{"lastUpdated": time.Now().UTC().Format(time.RFC3339)}
	if m.NodeName != "" {
		phase, types = "Running", append(types, "Ready", "NodeHealthy")
		ref := map[string]any{"name": m.NodeName}
		if v == "v1beta1" {
			ref["apiVersion"], ref["kind"] = "v1", "Node"
		}
		status["nodeRef"] = ref
	}
	status["phase"] = orElse(m.Phase, phase)
	conditions := withDefaults(m.Conditions, types...)
	ready := isTrue(conditions, "InfrastructureReady")
	if v == "v1beta1" {
		status["infrastructureReady"], status["bootstrapReady"] = ready, true
	} else {
		status["initialization"] = map[string]any{"infrastructureProvisioned": ready, "bootstrapDataSecretCreated": true}
	}
	return status, conditions
}

// CAPICondition is a condition of a Cluster or of a Machine. The rig writes it into both lists of such
// an object, as the controllers of Cluster API do.
type CAPICondition struct {
	Type string
	// Status is True, False or Unknown; empty removes the condition.
	Status          string
	Since           time.Time // now if zero
	Reason, Message string
}

// lists returns the paths of the two lists of conditions: the old one of Cluster API, with a severity,
// and the standard one of Kubernetes.
func (v capi) lists() (old, standard []string) {
	if v == "v1beta1" {
		return []string{"status", "conditions"}, []string{"status", "v1beta2", "conditions"}
	}
	return []string{"status", "deprecated", "v1beta1", "conditions"}, []string{"status", "conditions"}
}

// setConditions puts conditions into both lists of obj. Each replaces the condition of its type.
func (v capi) setConditions(obj *unstructured.Unstructured, conditions []CAPICondition) error {
	old, standard := v.lists()
	for _, cond := range conditions {
		if err := setInList(obj, old, cond.Type, cond.old()); err != nil {
			return err
		}
		if err := setInList(obj, standard, cond.Type, cond.standard()); err != nil {
			return err
		}
	}
	return nil
}

func setInList(obj *unstructured.Unstructured, path []string, kind string, cond map[string]any) error {
	list, _, err := unstructured.NestedSlice(obj.Object, path...)
	if err != nil {
		return fmt.Errorf("read the conditions of %s: %w", obj.GetName(), err)
	}
	list = slices.DeleteFunc(list, func(c any) bool {
		m, _ := c.(map[string]any)
		return m["type"] == kind
	})
	if cond != nil {
		list = append(list, cond)
	}
	if err := unstructured.SetNestedSlice(obj.Object, list, path...); err != nil {
		return fmt.Errorf("set the conditions of %s: %w", obj.GetName(), err)
	}
	return nil
}

func (k CAPICondition) standard() map[string]any {
	if k.Status == "" {
		return nil
	}
	since := k.Since
	if since.IsZero() {
		since = time.Now()
	}
	return map[string]any{
		"type": k.Type, "status": k.Status, "lastTransitionTime": since.UTC().Format(time.RFC3339),
		"reason": orElse(k.Reason, "Rig"), "message": k.Message,
	}
}

// old is the condition in the form of the old list: without an empty message, and with a severity if
// it is False.
func (k CAPICondition) old() map[string]any {
	m := k.standard()
	if m == nil {
		return nil
	}
	if k.Message == "" {
		delete(m, "message")
	}
	if k.Status == "False" {
		m["severity"] = "Warning"
	}
	return m
}

// SetCAPIConditions puts conditions into both lists of an object in Namespace. It leaves the other
// conditions as they are. The plural is "machines" or "clusters".
func (c *ControlPlane) SetCAPIConditions(ctx context.Context, plural, name string, conditions ...CAPICondition) error {
	v, err := c.capi()
	if err != nil {
		return err
	}
	client := c.dynamic.Resource(CAPIResource(string(v), plural)).Namespace(Namespace)
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error { // a fenced under test writes conditions as well
		obj, err := client.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if err := v.setConditions(obj, conditions); err != nil {
			return err
		}
		_, err = client.UpdateStatus(ctx, obj, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("set conditions of %s %s: %w", plural, name, err)
	}
	return nil
}
