package rig

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

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
