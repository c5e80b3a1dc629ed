package write

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fenced/fenced/internal/k8swatch/client"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
)

// draft is a request before it is made. The rules are those of the controllers of the
// three API families: a request of the Cluster API and of OpenShift is named as its
// Machine, and the Machine owns it; one of medik8s is named as its Node, and the check
// owns it.
type draft struct {
	check     *policy.Check
	target    remediate.Target
	from      policy.Template
	namespace string

	live     *unstructured.Unstructured // the check; nil if it is from a file
	machine  *unstructured.Unstructured // nil if there is none
	template *unstructured.Unstructured
	// together: the Machine is on the API server of the request.
	together bool
}

// The annotation of a template whose requests for one Node have names of their own,
// and the label of those for control-plane Nodes.
const (
	severalTemplates    = "remediation.medik8s.io/multiple-templates-support"
	controlPlaneRequest = "remediation.medik8s.io/isControlPlaneNode"
)

// request returns the object to create.
func (d draft) request(controlPlane bool) (*unstructured.Unstructured, error) {
	body, found, err := unstructured.NestedMap(d.template.Object, "spec", "template")
	if size, _ := json.Marshal(body); err != nil || !found || len(size) > maxTemplate {
		return nil, fmt.Errorf("%s %s/%s has no spec.template, or one of more than %d bytes", d.from.Kind, d.namespace, d.from.Name, maxTemplate)
	}
	obj := &unstructured.Unstructured{Object: map[string]any{"apiVersion": d.from.APIVersion, "kind": strings.TrimSuffix(d.from.Kind, "Template")}}
	if spec, is := body["spec"]; is {
		obj.Object["spec"] = spec
	}
	labels, annotations := map[string]string{}, map[string]string{}
	for field, into := range map[string]map[string]string{"labels": labels, "annotations": annotations} {
		own, _, err := unstructured.NestedStringMap(body, "metadata", field)
		if err != nil {
			return nil, fmt.Errorf("%s %s/%s: spec.template.metadata.%s: %w", d.from.Kind, d.namespace, d.from.Name, field, err)
		}
		maps.Copy(into, own)
	}
	if d.check.SelectsNodes {
		d.forNode(labels, annotations, controlPlane)
	} else {
		d.forMachine(labels, annotations)
	}
	obj.SetNamespace(d.namespace)
	obj.SetName(d.name())
	obj.SetLabels(labels)
	obj.SetAnnotations(annotations)
	obj.SetOwnerReferences(d.owners())
	return obj, nil
}

// forNode adds what medik8s writes on its requests.
func (d draft) forNode(labels, annotations map[string]string, controlPlane bool) {
	annotations["remediation.medik8s.io/node-name"] = d.target.Node
	annotations["remediation.medik8s.io/template-name"] = d.from.Name
	if d.live != nil {
		labels["app.kubernetes.io/part-of"] = "node-healthcheck-controller"
	}
	if controlPlane {
		labels[controlPlaneRequest] = ""
	}
}

// forMachine adds what the Cluster API and OpenShift write on their requests.
func (d draft) forMachine(labels, annotations map[string]string) {
	group := "machine.openshift.io"
	if client.GroupOf(d.target.MachineAPI) == client.ClusterGroup {
		group = client.ClusterGroup
		labels[client.ClusterLabel] = d.machine.GetLabels()[client.ClusterLabel]
	}
	annotations[group+"/cloned-from-name"] = d.from.Name
	annotations[group+"/cloned-from-groupkind"] = d.from.Kind + "." + client.GroupOf(d.from.APIVersion)
	if d.live == nil { // a FencePolicy tells its requests apart by their template
		annotations["remediation.medik8s.io/template-name"] = d.from.Name
	}
}

// name is the same each time, so that a target never has two requests from one
// template.
func (d draft) name() string {
	if !d.check.SelectsNodes {
		return d.target.Machine
	}
	if _, several := d.template.GetAnnotations()[severalTemplates]; several {
		sum := fnv.New32a()
		_, _ = sum.Write([]byte(d.template.GetUID())) // never fails
		return d.target.Node + "-" + hex.EncodeToString(sum.Sum(nil))[:5]
	}
	return d.target.Node
}

// owners are the objects with which a request goes: the check of medik8s, and the
// Machine, if that is in the namespace of the request.
func (d draft) owners() []metav1.OwnerReference {
	var list []metav1.OwnerReference
	add := func(u *unstructured.Unstructured) {
		list = append(list, metav1.OwnerReference{APIVersion: u.GetAPIVersion(), Kind: u.GetKind(), Name: u.GetName(), UID: u.GetUID()})
	}
	if d.live != nil && d.check.SelectsNodes {
		add(d.live)
	}
	if d.machine != nil && d.together && d.machine.GetNamespace() == d.namespace {
		add(d.machine)
	}
	return list
}
