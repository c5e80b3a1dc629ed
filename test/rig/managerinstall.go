package rig

import (
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// clusterAPIPrefix is before the names of the manifests, as in a release of the Cluster API.
const clusterAPIPrefix = "capi-"

// install creates the CRDs and the rights, from the manifests of the module.
func (a *ClusterAPI) install(ctx context.Context) error {
	if err := a.on.CreateNamespace(ctx, ClusterAPINamespace); err != nil {
		return err
	}
	defs, err := a.manifests("crd/bases/*.yaml")
	if err != nil {
		return err
	}
	for _, def := range defs {
		setDefault(def, "cluster.x-k8s.io/provider", "cluster-api")
		conversion := map[string]any{
			"strategy": "Webhook",
			"webhook":  map[string]any{"conversionReviewVersions": []any{"v1", "v1beta1"}, "clientConfig": a.client("/convert")},
		}
		if err := unstructured.SetNestedMap(def.Object, conversion, "spec", "conversion"); err != nil {
			return fmt.Errorf("give CRD %s its webhook: %w", def.GetName(), err)
		}
	}
	if err := a.on.installDefinitions(ctx, defs); err != nil {
		return err
	}
	rights, err := a.manifests("rbac/*role*.yaml", "rbac/service_account.yaml")
	if err != nil {
		return err
	}
	for _, obj := range rights {
		if err := a.on.apply(ctx, released(obj)); err != nil {
			return err
		}
	}
	return nil
}

// installWebhooks makes the API server ask the manager at each write. It must run by then.
func (a *ClusterAPI) installWebhooks(ctx context.Context) error {
	objs, err := a.manifests("webhook/manifests.yaml")
	if err != nil {
		return err
	}
	for _, obj := range objs {
		hooks, _, err := unstructured.NestedSlice(obj.Object, "webhooks")
		if err != nil {
			return fmt.Errorf("read the webhooks of the Cluster API: %w", err)
		}
		for _, h := range hooks {
			hook, _ := h.(map[string]any)
			path, _, _ := unstructured.NestedString(hook, "clientConfig", "service", "path")
			hook["clientConfig"] = a.client(path)
			hook["timeoutSeconds"] = int64(30) // the longest; a manager may be busy
		}
		obj.Object["webhooks"] = hooks
		if err := a.on.apply(ctx, released(obj)); err != nil {
			return err
		}
	}
	return nil
}

// client is how the API server reaches a webhook of the manager.
func (a *ClusterAPI) client(path string) map[string]any {
	return map[string]any{"url": "https://" + a.webhook + path, "caBundle": base64.StdEncoding.EncodeToString(a.on.ca.pem)}
}

// manifests returns the objects in files of the module's directory config.
func (a *ClusterAPI) manifests(patterns ...string) (objs []*unstructured.Unstructured, err error) {
	for _, pattern := range patterns {
		files, err := filepath.Glob(filepath.Join(a.bin, clusterAPIManifests, pattern))
		if err != nil || len(files) == 0 {
			return nil, fmt.Errorf("find the manifests %s of the Cluster API: %d files, %w", pattern, len(files), err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				return nil, fmt.Errorf("read a manifest of the Cluster API: %w", err)
			}
			found, err := documents(text)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			objs = append(objs, found...)
		}
	}
	return objs, nil
}

// released is a manifest as a release of the Cluster API has it: with names, namespace and the
// aggregated role of the kustomizations in config/default.
func released(obj *unstructured.Unstructured) *unstructured.Unstructured {
	obj = obj.DeepCopy()
	name := obj.GetName()
	obj.SetName(clusterAPIPrefix + name)
	if !strings.HasPrefix(obj.GetKind(), "Cluster") && !strings.HasSuffix(obj.GetKind(), "Configuration") {
		obj.SetNamespace(ClusterAPINamespace)
	}
	if name == "manager-role" {
		setDefault(obj, "cluster.x-k8s.io/aggregate-to-manager", "true")
	}
	if ref, ok := obj.Object["roleRef"].(map[string]any); ok {
		role, _ := ref["name"].(string)
		if role == "manager-role" {
			role = "aggregated-manager-role"
		}
		ref["name"] = clusterAPIPrefix + role
		obj.Object["subjects"] = []any{map[string]any{"kind": "ServiceAccount", "name": clusterAPIPrefix + "manager", "namespace": ClusterAPINamespace}}
	}
	return obj
}
