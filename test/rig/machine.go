package rig

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Namespace is where OpenShift keeps its Machines, checks and hosts.
const Namespace = "openshift-machine-api"

// The resources that the rig creates.
var (
	MachineResource    = machineAPI("machines")
	MachineSetResource = machineAPI("machinesets")
	CheckResource      = machineAPI("machinehealthchecks")
	HostResource       = schema.GroupVersionResource{Group: "metal3.io", Version: "v1alpha1", Resource: "baremetalhosts"}
)

const (
	roleLabel = "machine.openshift.io/cluster-api-machine-role"
	setLabel  = "machine.openshift.io/cluster-api-machineset"
)

func machineAPI(plural string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "machine.openshift.io", Version: "v1beta1", Resource: plural}
}

// Machine is a Machine to create.
type Machine struct {
	Name string
	// Role is the value of the role label; "worker" if empty, "master" for the control plane.
	Role string
	// MachineSet is the controller of the Machine, and must exist; empty for none.
	MachineSet string
	// Host is the BareMetalHost that the annotation and providerID name.
	Host string
	// ProviderID is for a Machine without Host.
	ProviderID string
	// NodeName is the Node in status.nodeRef. It need not exist.
	NodeName string
	// Phase is status.phase; "Running" if empty.
	Phase       string
	Labels      map[string]string
	Annotations map[string]string
}

// CreateMachine creates a Machine with its status, as the machine controller leaves it.
func (c *ControlPlane) CreateMachine(ctx context.Context, m Machine) (*unstructured.Unstructured, error) {
	obj := object("machine.openshift.io/v1beta1", "Machine", m.Name, m.Labels, m.Annotations)
	setDefault(obj, roleLabel, orElse(m.Role, "worker"))
	if m.MachineSet != "" {
		set, err := c.dynamic.Resource(MachineSetResource).Namespace(Namespace).Get(ctx, m.MachineSet, metav1.GetOptions{})
		if err != nil {
			return nil, fmt.Errorf("find the owner of Machine %s: %w", m.Name, err)
		}
		setDefault(obj, setLabel, m.MachineSet)
		obj.SetOwnerReferences(controllerRef(set))
	}
	spec := map[string]any{}
	if m.Host != "" {
		annotations := obj.GetAnnotations()
		annotations["metal3.io/BareMetalHost"] = Namespace + "/" + m.Host
		obj.SetAnnotations(annotations)
		spec["providerID"] = "baremetalhost:///" + Namespace + "/" + m.Host
	}
	if m.ProviderID != "" {
		spec["providerID"] = m.ProviderID
	}
	obj.Object["spec"] = spec
	status := map[string]any{
		"phase":       orElse(m.Phase, "Running"),
		"lastUpdated": time.Now().UTC().Format(time.RFC3339),
	}
	if m.NodeName != "" {
		status["nodeRef"] = map[string]any{"kind": "Node", "name": m.NodeName}
	}
	return c.createWithStatus(ctx, obj, status)
}

// NamesMachine are the annotations with which OpenShift's nodelink controller writes into a Node which
// Machine is its.
func NamesMachine(machine string) map[string]string {
	return map[string]string{"machine.openshift.io/machine": Namespace + "/" + machine}
}

// CreateMachineSet creates a MachineSet without Machines. It replaces nothing, because no controller
// runs.
func (c *ControlPlane) CreateMachineSet(ctx context.Context, name string) (*unstructured.Unstructured, error) {
	obj := object("machine.openshift.io/v1beta1", "MachineSet", name, nil, nil)
	labels := map[string]any{setLabel: name}
	obj.Object["spec"] = map[string]any{
		"replicas": int64(1),
		"selector": map[string]any{"matchLabels": labels},
		"template": map[string]any{"metadata": map[string]any{"labels": labels}, "spec": map[string]any{}},
	}
	return c.createWithStatus(ctx, obj, nil)
}
