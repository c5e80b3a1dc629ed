package rig

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/fenced/fenced/test/crds"
)

var crdResource = schema.GroupVersionResource{
	Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
}

// Apply creates or updates every document of a YAML file, as the administrator
// would with kubectl. An object without a namespace goes into Namespace.
func (c *ControlPlane) Apply(ctx context.Context, manifest []byte) error {
	objs, err := documents(manifest)
	if err != nil {
		return err
	}
	for _, obj := range objs {
		client, err := c.clientFor(obj)
		if err != nil {
			return err
		}
		opts := metav1.ApplyOptions{FieldManager: "rig", Force: true}
		if _, err := client.Apply(ctx, obj.GetName(), obj, opts); err != nil {
			return fmt.Errorf("apply %s %s: %w", obj.GetKind(), obj.GetName(), err)
		}
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
		if len(obj.Object) > 0 { // a document of comments only
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

// InstallCRDs installs the definitions of machine.openshift.io and metal3.io and
// waits until the API server serves them.
func (c *ControlPlane) InstallCRDs(ctx context.Context) error {
	names, err := fs.Glob(crds.Files, "*.yaml")
	if err != nil {
		return fmt.Errorf("list the CRDs: %w", err)
	}
	for _, name := range names {
		manifest, err := crds.Files.ReadFile(name)
		if err != nil {
			return fmt.Errorf("read the CRD %s: %w", name, err)
		}
		if err := c.Apply(ctx, manifest); err != nil {
			return fmt.Errorf("install %s: %w", name, err)
		}
	}
	for {
		pending, err := c.pendingCRD(ctx)
		if err != nil {
			return err
		}
		if pending == "" {
			c.mapper.Reset()
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for CRD %s to be established: %w", pending, ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// pendingCRD names a CRD that is not served yet; empty if all are.
func (c *ControlPlane) pendingCRD(ctx context.Context) (string, error) {
	list, err := c.dynamic.Resource(crdResource).List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", fmt.Errorf("list the CRDs: %w", err)
	}
	for _, crd := range list.Items {
		conditions, _, _ := unstructured.NestedSlice(crd.Object, "status", "conditions")
		served := false
		for _, cond := range conditions {
			m, _ := cond.(map[string]any)
			served = served || m["type"] == "Established" && m["status"] == "True"
		}
		if !served {
			return crd.GetName(), nil
		}
	}
	return "", nil
}

// ApplyRBAC gives FencedUser the rights of configs/rbac.yaml, which is what the
// product ships, and nothing else.
func (c *ControlPlane) ApplyRBAC(ctx context.Context) error {
	root, err := Root()
	if err != nil {
		return err
	}
	manifest, err := os.ReadFile(filepath.Join(root, "configs", "rbac.yaml"))
	if err != nil {
		return fmt.Errorf("read fenced's role: %w", err)
	}
	return c.Apply(ctx, manifest)
}

// CreateNamespace creates a namespace unless it is there.
func (c *ControlPlane) CreateNamespace(ctx context.Context, name string) error {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	_, err := c.client.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create namespace %s: %w", name, err)
	}
	return nil
}
