package rig

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"
)

// Apply creates or updates every document of a YAML file, as the administrator
// would with kubectl. An object without a namespace goes into Namespace.
func (c *ControlPlane) Apply(ctx context.Context, manifest []byte) error {
	objs, err := documents(manifest)
	if err != nil {
		return err
	}
	for _, obj := range objs {
		if err := c.apply(ctx, obj); err != nil {
			return err
		}
	}
	return nil
}

func (c *ControlPlane) apply(ctx context.Context, obj *unstructured.Unstructured) error {
	client, err := c.clientFor(obj)
	if err != nil {
		return err
	}
	opts := metav1.ApplyOptions{FieldManager: "rig", Force: true}
	err = WhileBusy(ctx, func() error {
		_, err := client.Apply(ctx, obj.GetName(), obj, opts)
		return err
	})
	if err != nil {
		return fmt.Errorf("apply %s %s: %w", obj.GetKind(), obj.GetName(), err)
	}
	return nil
}

func documents(manifest []byte) ([]*unstructured.Unstructured, error) {
	var objs []*unstructured.Unstructured
	r := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(manifest)))
	for {
		doc, err := r.Read()
		if errors.Is(err, io.EOF) {
			return objs, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read a manifest: %w", err)
		}
		obj := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(doc, &obj.Object); err != nil {
			return nil, fmt.Errorf("decode a manifest: %w", err)
		}
		if len(obj.Object) > 0 { // a document may hold comments only
			objs = append(objs, obj)
		}
	}
}

func (c *ControlPlane) clientFor(obj *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	gvk := obj.GroupVersionKind()
	m, err := c.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return nil, fmt.Errorf("find the resource of %s: %w", gvk, err)
	}
	if m.Scope.Name() == meta.RESTScopeNameRoot {
		return c.dynamic.Resource(m.Resource), nil
	}
	if obj.GetNamespace() == "" {
		obj.SetNamespace(Namespace)
	}
	return c.dynamic.Resource(m.Resource).Namespace(obj.GetNamespace()), nil
}

// clientOf returns a client for the objects of a resource in Namespace, or for all of them if the
// resource is not namespaced.
func (c *ControlPlane) clientOf(r schema.GroupVersionResource) (dynamic.ResourceInterface, error) {
	gvk, err := c.mapper.KindFor(r)
	if err != nil {
		return nil, fmt.Errorf("find the kind of %s: %w", r, err)
	}
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(gvk)
	return c.clientFor(obj)
}

// secretsBinding is what configs/rbac.yaml tells the administrator to create in each namespace of BareMetalHosts.
const secretsBinding = `apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: fenced-secrets, namespace: ` + Namespace + `}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: fenced-secrets}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: ` + FencedUser + `}]
`

// ApplyRBAC gives FencedUser the rights of configs/rbac.yaml, which is part of the product, with the binding
// that it asks for in Namespace, and no other rights.
func (c *ControlPlane) ApplyRBAC(ctx context.Context) error {
	if err := c.ApplyConfig(ctx, "rbac.yaml"); err != nil {
		return err
	}
	return c.Apply(ctx, []byte(secretsBinding))
}

// InstallMedik8s creates the namespace in which medik8s keeps its Leases on Nodes, and gives
// FencedUser the rights of configs/rbac-medik8s.yaml there. Its controllers are not part of the rig.
func (c *ControlPlane) InstallMedik8s(ctx context.Context) error {
	if err := c.CreateNamespace(ctx, "medik8s-leases"); err != nil {
		return err
	}
	return c.ApplyConfig(ctx, "rbac-medik8s.yaml")
}

// ApplyConfig applies a manifest of configs/, which is part of the product.
func (c *ControlPlane) ApplyConfig(ctx context.Context, name string) error {
	root, err := Root()
	if err != nil {
		return err
	}
	manifest, err := os.ReadFile(filepath.Join(root, "configs", name))
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	return c.Apply(ctx, manifest)
}

// CreateNamespace creates a namespace if it does not exist.
func (c *ControlPlane) CreateNamespace(ctx context.Context, name string) error {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	err := WhileBusy(ctx, func() error {
		_, err := c.client.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{})
		return err
	})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create namespace %s: %w", name, err)
	}
	return nil
}
