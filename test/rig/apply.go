package rig

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/fenced/fenced/configs"
)

// Apply creates or updates every document of a YAML file, as the administrator
// would with kubectl. An object without a namespace goes into Namespace. Rights are left out where a stand-in serves the API, as nobody checks them there.
func (c *ControlPlane) Apply(ctx context.Context, manifest []byte) error {
	objs, err := documents(manifest)
	if err != nil {
		return err
	}
	for _, obj := range objs {
		if c.standIn != nil && obj.GroupVersionKind().Group == rbacv1.GroupName {
			continue
		}
		if err := c.apply(ctx, obj); err != nil {
			return err
		}
	}
	return nil
}

func (c *ControlPlane) apply(ctx context.Context, obj *unstructured.Unstructured) error {
	client, err := c.clientFor(ctx, obj)
	if err != nil {
		return err
	}
	if c.standIn != nil { // it has no server-side apply
		return replace(ctx, client, obj)
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

func (c *ControlPlane) clientFor(ctx context.Context, obj *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	gvk := obj.GroupVersionKind()
	m, err := c.mapper.RESTMapping(ctx, gvk.GroupKind(), gvk.Version)
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
func (c *ControlPlane) clientOf(ctx context.Context, r schema.GroupVersionResource) (dynamic.ResourceInterface, error) {
	gvk, err := c.mapper.KindFor(ctx, r)
	if err != nil {
		return nil, fmt.Errorf("find the kind of %s: %w", r, err)
	}
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(gvk)
	return c.clientFor(ctx, obj)
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
	if err := c.Apply(ctx, configs.Evaluate); err != nil {
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
	return c.Apply(ctx, configs.Medik8s)
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

// busyTime is how long an API server may be too busy to answer. One that takes longer hangs.
const busyTime = 5 * time.Minute

// WhileBusy repeats a request while the API server is too busy for it. The request must be
// idempotent: the server may have carried out a request that timed out.
func WhileBusy(ctx context.Context, request func() error) error {
	ctx, cancel := context.WithTimeout(ctx, busyTime)
	defer cancel()
	for {
		err := request()
		if !busy(err) || !Sleep(ctx, time.Second) {
			return err
		}
	}
}

func busy(err error) bool {
	return apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || apierrors.IsTooManyRequests(err) ||
		apierrors.IsServiceUnavailable(err) || apierrors.IsInternalError(err)
}

// createWhileBusy creates an object. If the object exists when the request is repeated, a request that
// timed out has created it, and createWhileBusy reads it with get.
func createWhileBusy[T any](ctx context.Context, create, get func() (T, error)) (obj T, err error) {
	repeated := false
	err = WhileBusy(ctx, func() error {
		obj, err = create()
		if repeated && apierrors.IsAlreadyExists(err) {
			obj, err = get()
		}
		repeated = true
		return err
	})
	return obj, err
}

// object returns an empty object in Namespace. It copies the maps.
func object(apiVersion, kind, name string, labels, annotations map[string]string) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind}}
	obj.SetName(name)
	obj.SetNamespace(Namespace)
	obj.SetLabels(copied(labels))
	obj.SetAnnotations(copied(annotations))
	return obj
}

// copied returns a copy that is not nil, so that the caller can add to it.
func copied(m map[string]string) map[string]string {
	out := map[string]string{}
	maps.Copy(out, m)
	return out
}

// setDefault sets a label that the caller did not set.
func setDefault(obj *unstructured.Unstructured, key, value string) {
	labels := copied(obj.GetLabels())
	if _, ok := labels[key]; !ok {
		labels[key] = value
		obj.SetLabels(labels)
	}
}

// createWithStatus creates obj, and then writes its status: the API server ignores the status in a
// create.
func (c *ControlPlane) createWithStatus(ctx context.Context, obj *unstructured.Unstructured, status map[string]any,
) (*unstructured.Unstructured, error) {
	client, err := c.clientFor(ctx, obj)
	if err != nil {
		return nil, err
	}
	made, err := createWhileBusy(ctx,
		func() (*unstructured.Unstructured, error) { return client.Create(ctx, obj, metav1.CreateOptions{}) },
		func() (*unstructured.Unstructured, error) {
			return client.Get(ctx, obj.GetName(), metav1.GetOptions{})
		})
	if err != nil {
		return nil, fmt.Errorf("create %s %s: %w", obj.GetKind(), obj.GetName(), err)
	}
	if status == nil {
		return made, nil
	}
	made, err = patchWhileBusy(ctx, client, obj.GetName(), map[string]any{"status": status}, "status")
	if err != nil {
		return nil, fmt.Errorf("write the status of %s %s: %w", obj.GetKind(), obj.GetName(), err)
	}
	return made, nil
}

// patchWhileBusy merges a change into an object.
func patchWhileBusy(ctx context.Context, client dynamic.ResourceInterface, name string, change any, sub ...string) (obj *unstructured.Unstructured, err error) {
	patch, err := json.Marshal(change)
	if err != nil {
		return nil, fmt.Errorf("encode a change: %w", err)
	}
	err = WhileBusy(ctx, func() error {
		obj, err = client.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}, sub...)
		return err
	})
	return obj, err
}

// Annotate sets an annotation of an object in Namespace, or of one without a namespace. A nil value
// removes it.
func (c *ControlPlane) Annotate(ctx context.Context, r schema.GroupVersionResource, name, key string, value *string) error {
	return c.merge(ctx, r, name, map[string]any{"metadata": map[string]any{"annotations": map[string]any{key: value}}})
}

// SetStatus merges fields into the status of an object in Namespace, or of one without a namespace.
func (c *ControlPlane) SetStatus(ctx context.Context, r schema.GroupVersionResource, name string, fields map[string]any) error {
	return c.merge(ctx, r, name, map[string]any{"status": fields}, "status")
}

func (c *ControlPlane) merge(ctx context.Context, r schema.GroupVersionResource, name string, change any, sub ...string) error {
	client, err := c.clientOf(ctx, r)
	if err != nil {
		return err
	}
	if _, err := patchWhileBusy(ctx, client, name, change, sub...); err != nil {
		return fmt.Errorf("change %s %s: %w", r.Resource, name, err)
	}
	return nil
}
