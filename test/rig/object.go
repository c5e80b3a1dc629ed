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
)

// object is an empty one in Namespace; the maps are copied.
func object(apiVersion, kind, name string, labels, annotations map[string]string) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind}}
	obj.SetName(name)
	obj.SetNamespace(Namespace)
	obj.SetLabels(copied(labels))
	obj.SetAnnotations(copied(annotations))
	return obj
}

// copied is never nil, so that it can be added to.
func copied(m map[string]string) map[string]string {
	out := map[string]string{}
	maps.Copy(out, m)
	return out
}

// setDefault sets a label that the caller did not.
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

// createWithStatus creates obj and then writes its status, which the API server
// drops from a create.
func (c *ControlPlane) createWithStatus(ctx context.Context, obj *unstructured.Unstructured, status map[string]any,
) (*unstructured.Unstructured, error) {
	client, err := c.clientFor(obj)
	if err != nil {
		return nil, err
	}
	made, err := client.Create(ctx, obj, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("create %s %s: %w", obj.GetKind(), obj.GetName(), err)
	}
	if status == nil {
		return made, nil
	}
	made.Object["status"] = status
	made, err = client.UpdateStatus(ctx, made, metav1.UpdateOptions{})
	if err != nil {
		return nil, fmt.Errorf("write the status of %s %s: %w", obj.GetKind(), obj.GetName(), err)
	}
	return made, nil
}

// Annotate sets an annotation of an object in Namespace, or of one that has no
// namespace; a nil value removes it.
func (c *ControlPlane) Annotate(ctx context.Context, r schema.GroupVersionResource, name, key string, value *string) error {
	return c.merge(ctx, r, name, map[string]any{"metadata": map[string]any{"annotations": map[string]any{key: value}}})
}

// SetStatus merges fields into the status of an object in Namespace, or of one
// that has no namespace.
func (c *ControlPlane) SetStatus(ctx context.Context, r schema.GroupVersionResource, name string, fields map[string]any) error {
	return c.merge(ctx, r, name, map[string]any{"status": fields}, "status")
}

func (c *ControlPlane) merge(ctx context.Context, r schema.GroupVersionResource, name string, change any, sub ...string) error {
	patch, err := json.Marshal(change)
	if err != nil {
		return fmt.Errorf("encode a change of %s %s: %w", r.Resource, name, err)
	}
	client, err := c.clientOf(r)
	if err != nil {
		return err
	}
	if _, err := client.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}, sub...); err != nil {
		return fmt.Errorf("change %s %s: %w", r.Resource, name, err)
	}
	return nil
}
