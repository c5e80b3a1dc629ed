package rig

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	capiGroup           = "cluster.x-k8s.io"
	capiInfraGroup      = "infrastructure.cluster.x-k8s.io"
	capiControlPlane    = "controlplane.cluster.x-k8s.io"
	capiClusterLabel    = "cluster.x-k8s.io/cluster-name"
	capiRoleLabel       = "cluster.x-k8s.io/control-plane"
	capiControllerLabel = "cluster.x-k8s.io/control-plane-name"
	capiSetLabel        = "cluster.x-k8s.io/set-name"
)

// CAPIResource is a resource of cluster.x-k8s.io: "machines", "clusters".
func CAPIResource(version, plural string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: capiGroup, Version: version, Resource: plural}
}

// capi is the served version of Cluster API, and knows its shapes.
type capi string

func (c *ControlPlane) capi() (capi, error) {
	m, err := c.mapper.RESTMapping(schema.GroupKind{Group: capiGroup, Kind: "Machine"})
	if err != nil {
		return "", fmt.Errorf("find the version of Cluster API: %w", err)
	}
	return capi(m.Resource.Version), nil
}

// object returns a new object of cluster.x-k8s.io in Namespace.
func (v capi) object(kind, name string, labels, annotations map[string]string) *unstructured.Unstructured {
	return object(capiGroup+"/"+string(v), kind, name, labels, annotations)
}

// ref returns a reference to an object in Namespace. In v1beta1 it has the object's version and
// namespace, in v1beta2 neither.
func (v capi) ref(group, kind, name string) map[string]any {
	if v == "v1beta1" {
		return map[string]any{"apiVersion": group + "/v1beta1", "kind": kind, "name": name, "namespace": Namespace}
	}
	return map[string]any{"apiGroup": group, "kind": kind, "name": name}
}

// createCAPI creates obj with its status and the conditions in both lists.
func (c *ControlPlane) createCAPI(ctx context.Context, v capi, obj *unstructured.Unstructured, status map[string]any,
	conditions []CAPICondition,
) (*unstructured.Unstructured, error) {
	obj.Object["status"] = status
	if err := v.setConditions(obj, conditions); err != nil {
		return nil, err
	}
	return c.createWithStatus(ctx, obj, status)
}
