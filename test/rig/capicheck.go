package rig

import (
	"context"
	"fmt"
	"reflect"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// CAPICheck is a MachineHealthCheck of Cluster API to create, with the fields of v1beta1. An empty
// field is left out.
type CAPICheck struct {
	Name, Cluster string
	// Match selects the Machines by label; nil selects those of the cluster.
	Match map[string]string
	// Conditions are about Nodes.
	Conditions []UnhealthyCondition
	// MaxUnhealthy is a string ("40%") or an int64 number.
	MaxUnhealthy any
	// Template names the template of an external remediation.
	Template    TemplateRef
	Annotations map[string]string
}

// TemplateRef names the template of an external remediation in Namespace. The zero value names none.
type TemplateRef struct{ APIVersion, Kind, Name string }

func (r TemplateRef) object() map[string]any {
	return map[string]any{"apiVersion": r.APIVersion, "kind": r.Kind, "name": r.Name, "namespace": Namespace}
}

// orNone is the object, or nil for none.
func (r TemplateRef) orNone() map[string]any {
	if r == (TemplateRef{}) {
		return nil
	}
	return r.object()
}

// CreateCAPICheck creates a MachineHealthCheck in the shape of the served
// version. In v1beta1 the API server gets the values as they are, even invalid ones. In v1beta2
// durations are whole seconds, as Cluster API converts them.
func (c *ControlPlane) CreateCAPICheck(ctx context.Context, k CAPICheck) (*unstructured.Unstructured, error) {
	v, err := c.capi(ctx)
	if err != nil {
		return nil, err
	}
	obj := v.object("MachineHealthCheck", k.Name, nil, k.Annotations)
	setDefault(obj, capiClusterLabel, k.Cluster)
	match := k.Match
	if match == nil {
		match = map[string]string{capiClusterLabel: k.Cluster}
	}
	spec := map[string]any{"clusterName": k.Cluster, "selector": matchLabels(match)}
	if v == "v1beta1" {
		put(spec, "unhealthyConditions", unhealthyConditions(k.Conditions, "timeout"))
		put(spec, "maxUnhealthy", k.MaxUnhealthy)
		put(spec, "remediationTemplate", k.Template.orNone())
	} else if err := k.v1beta2(spec); err != nil {
		return nil, err
	}
	obj.Object["spec"] = spec
	return c.createWithStatus(ctx, obj, nil)
}

func matchLabels(labels map[string]string) map[string]any {
	m := map[string]any{}
	for key, value := range labels {
		m[key] = value
	}
	return map[string]any{"matchLabels": m}
}

// unhealthyConditions returns the entries of a check. duration is the name of the field that holds the
// timeout.
func unhealthyConditions(conditions []UnhealthyCondition, duration string) []any {
	var list []any
	for _, u := range conditions {
		list = append(list, map[string]any{"type": u.Type, "status": u.Status, duration: u.Timeout})
	}
	return list
}

// v1beta2 allows no empty checks, remediation or triggerIf.
func (k CAPICheck) v1beta2(spec map[string]any) error {
	checks, remediation, trigger := map[string]any{}, map[string]any{}, map[string]any{}
	var err error
	if len(k.Conditions) > 0 {
		if checks["unhealthyNodeConditions"], err = inSeconds(k.Conditions); err != nil {
			return err
		}
	}
	put(trigger, "unhealthyLessThanOrEqualTo", k.MaxUnhealthy)
	ref := k.Template.orNone()
	delete(ref, "namespace") // it is the namespace of the check
	put(remediation, "templateRef", ref)
	put(remediation, "triggerIf", trigger)
	put(spec, "remediation", remediation)
	put(spec, "checks", checks)
	return nil
}

// put sets a field, unless there is nothing in it.
func put(into map[string]any, key string, value any) {
	switch v := reflect.ValueOf(value); v.Kind() {
	case reflect.Invalid: // nil
		return
	case reflect.String, reflect.Slice, reflect.Map:
		if v.Len() == 0 {
			return
		}
	}
	into[key] = value
}

func inSeconds(conditions []UnhealthyCondition) ([]any, error) {
	var list []any
	for _, u := range conditions {
		d, err := time.ParseDuration(u.Timeout)
		if err != nil {
			return nil, fmt.Errorf("write %q in seconds: %w", u.Timeout, err)
		}
		list = append(list, map[string]any{"type": u.Type, "status": u.Status, "timeoutSeconds": int64(d / time.Second)})
	}
	return list, nil
}

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
