package rig

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

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
	secret := orElse(h.Secret, h.Name+"-bmc")
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
		"provisioning": map[string]any{"ID": "", "state": orElse(h.State, "provisioned")},
	})
}

// CreateSecret creates a Secret in Namespace.
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
