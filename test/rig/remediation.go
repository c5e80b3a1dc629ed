package rig

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// RemediationResource is the resource of the requests that checks create from a template.
var RemediationResource = schema.GroupVersionResource{
	Group: capiInfraGroup, Version: "v1beta1", Resource: "metal3remediations",
}

// RemediationTemplate is a reference to a template that CreateTemplate made.
func RemediationTemplate(name string) TemplateRef {
	return TemplateRef{APIVersion: capiInfraGroup + "/v1beta1", Kind: "Metal3RemediationTemplate", Name: name}
}

// remediationSpec asks for one reboot.
func remediationSpec() map[string]any {
	return map[string]any{"strategy": map[string]any{"type": "Reboot", "retryLimit": int64(1), "timeout": "10m"}}
}

// CreateTemplate creates a Metal3RemediationTemplate.
func (c *ControlPlane) CreateTemplate(ctx context.Context, name string) (*unstructured.Unstructured, error) {
	obj := object(capiInfraGroup+"/v1beta1", "Metal3RemediationTemplate", name, nil, nil)
	obj.Object["spec"] = map[string]any{"template": map[string]any{"spec": remediationSpec()}}
	return c.createWithStatus(ctx, obj, nil)
}

// CreateRemediation creates the Metal3Remediation that the manager of Cluster API creates for an
// unhealthy Machine. It has the Machine's name. The Machine is its owner, but not its controller.
func (c *ControlPlane) CreateRemediation(ctx context.Context, machine *unstructured.Unstructured, template string,
) (*unstructured.Unstructured, error) {
	labels := map[string]string{capiClusterLabel: machine.GetLabels()[capiClusterLabel]}
	obj := object(capiInfraGroup+"/v1beta1", "Metal3Remediation", machine.GetName(), labels, map[string]string{
		"cluster.x-k8s.io/cloned-from-name":      template,
		"cluster.x-k8s.io/cloned-from-groupkind": "Metal3RemediationTemplate." + capiInfraGroup,
	})
	obj.SetOwnerReferences([]metav1.OwnerReference{{
		APIVersion: machine.GetAPIVersion(), Kind: machine.GetKind(), Name: machine.GetName(), UID: machine.GetUID(),
	}})
	obj.Object["spec"] = remediationSpec()
	return c.createWithStatus(ctx, obj, nil)
}
