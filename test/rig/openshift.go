package rig

import (
	"cmp"
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
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
	setDefault(obj, roleLabel, cmp.Or(m.Role, "worker"))
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
	put(spec, "providerID", m.ProviderID)
	obj.Object["spec"] = spec
	status := map[string]any{
		"phase":       cmp.Or(m.Phase, "Running"),
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

// Host is a BareMetalHost to create, with its Secret.
type Host struct {
	Name string
	// Address is spec.bmc.address, in any form that the bare-metal operator accepts.
	Address string
	// User and Password are the content of the Secret NAME-bmc. If User is empty, the host names
	// the Secret and the rig does not create it.
	User, Password string
	// Secret names another Secret instead of NAME-bmc.
	Secret string
	// Machine is the name in spec.consumerRef.
	Machine string
	// SkipVerify is spec.bmc.disableCertificateVerification.
	SkipVerify            bool
	Offline               bool // makes spec.online false
	ExternallyProvisioned bool
	DisablePowerOff       bool
	// State is status.provisioning.state; "provisioned" if empty.
	State       string
	Annotations map[string]string
}

// CreateHost creates a BareMetalHost in the state in which the bare-metal operator leaves one that a
// Machine runs on: managed, provisioned, powered on.
func (c *ControlPlane) CreateHost(ctx context.Context, h Host) (*unstructured.Unstructured, error) {
	secret := cmp.Or(h.Secret, h.Name+"-bmc")
	if h.User != "" {
		if err := c.CreateSecret(ctx, secret, map[string]string{"username": h.User, "password": h.Password}); err != nil {
			return nil, err
		}
	}
	obj := object("metal3.io/v1alpha1", "BareMetalHost", h.Name, nil, h.Annotations)
	spec := map[string]any{
		"online":                !h.Offline,
		"externallyProvisioned": h.ExternallyProvisioned,
		"disablePowerOff":       h.DisablePowerOff,
		"bmc": map[string]any{
			"address": h.Address, "credentialsName": secret, "disableCertificateVerification": h.SkipVerify,
		},
	}
	if h.Machine != "" {
		spec["consumerRef"] = map[string]any{
			"apiVersion": "machine.openshift.io/v1beta1", "kind": "Machine", "namespace": Namespace, "name": h.Machine,
		}
	}
	obj.Object["spec"] = spec
	return c.createWithStatus(ctx, obj, map[string]any{
		"poweredOn": !h.Offline, "operationalStatus": "OK", "errorCount": int64(0), "errorMessage": "",
		"provisioning": map[string]any{"ID": "", "state": cmp.Or(h.State, "provisioned")},
	})
}

func (c *ControlPlane) CreateSecret(ctx context.Context, name string, data map[string]string) error {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: Namespace}, StringData: data}
	client := c.client.CoreV1().Secrets(Namespace)
	if _, err := createWhileBusy(ctx,
		func() (*corev1.Secret, error) { return client.Create(ctx, s, metav1.CreateOptions{}) },
		func() (*corev1.Secret, error) { return client.Get(ctx, name, metav1.GetOptions{}) }); err != nil {
		return fmt.Errorf("create Secret %s: %w", name, err)
	}
	return nil
}

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
}

// UnhealthyCondition is one entry of a check.
type UnhealthyCondition struct{ Type, Status, Timeout string }

// NotReadyFor returns the two entries that nearly every check has.
func NotReadyFor(timeout string) []UnhealthyCondition {
	return []UnhealthyCondition{{"Ready", "Unknown", timeout}, {"Ready", "False", timeout}}
}

func (c *ControlPlane) CreateCheck(ctx context.Context, k Check) (*unstructured.Unstructured, error) {
	obj := object("machine.openshift.io/v1beta1", "MachineHealthCheck", k.Name, nil, nil)
	if k.Strategy != "" {
		annotations := obj.GetAnnotations()
		annotations[StrategyAnnotation] = k.Strategy
		obj.SetAnnotations(annotations)
	}
	spec := map[string]any{"selector": matchLabels(k.Match)}
	put(spec, "unhealthyConditions", unhealthyConditions(k.Conditions, "timeout"))
	put(spec, "maxUnhealthy", k.MaxUnhealthy)
	put(spec, "nodeStartupTimeout", k.NodeStartupTimeout)
	obj.Object["spec"] = spec
	return c.createWithStatus(ctx, obj, nil)
}

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

func (c *ControlPlane) CreateNodeCheck(ctx context.Context, k NodeCheck) (*unstructured.Unstructured, error) {
	obj := object("remediation.medik8s.io/v1alpha1", "NodeHealthCheck", k.Name, nil, k.Annotations)
	obj.SetNamespace("")
	spec := map[string]any{"selector": matchLabels(k.Match)}
	put(spec, "unhealthyConditions", unhealthyConditions(k.Conditions, "duration"))
	put(spec, "minHealthy", k.MinHealthy)
	put(spec, "maxUnhealthy", k.MaxUnhealthy)
	put(spec, "healthyDelay", k.HealthyDelay)
	put(spec, "stormCooldownDuration", k.StormCooldown)
	var requests, steps []any
	for _, r := range k.PauseRequests {
		requests = append(requests, r)
	}
	put(spec, "pauseRequests", requests)
	put(spec, "remediationTemplate", k.Template.orNone())
	for _, e := range k.Escalating {
		steps = append(steps, map[string]any{"order": e.Order, "timeout": e.Timeout, "remediationTemplate": e.Template.object()})
	}
	put(spec, "escalatingRemediations", steps)
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
