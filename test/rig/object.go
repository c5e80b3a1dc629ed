package rig

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

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

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// createWithStatus creates obj, and then writes its status: the API server ignores the status in a
// create.
func (c *ControlPlane) createWithStatus(ctx context.Context, obj *unstructured.Unstructured, status map[string]any,
) (*unstructured.Unstructured, error) {
	client, err := c.clientFor(obj)
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
	client, err := c.clientOf(r)
	if err != nil {
		return err
	}
	if _, err := patchWhileBusy(ctx, client, name, change, sub...); err != nil {
		return fmt.Errorf("change %s %s: %w", r.Resource, name, err)
	}
	return nil
}
