package scene

import (
	"context"
	"encoding/json"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/fenced/fenced/test/kube"
	"github.com/fenced/fenced/test/rig"
)

// standInEvery is how often a stand-in looks at the cluster.
const standInEvery = 300 * time.Millisecond

// standIn is a stand-in for a controller of OpenShift or medik8s, which are no Go modules
// that a test could build. It is a user of its own, so that the audit log shows what it
// did. A call that fails is repeated at the next tick, as controllers do.
type standIn struct {
	typed   *kube.Client
	dynamic dynamic.Interface
	// requests is the client for requests that a remediator carries out.
	requests dynamic.Interface
}

// runStandIn calls tick until the scene ends, as a user of this name. asks are the groups
// of the user that makes the requests; those of an administrator if there are none.
func (s *Scene) runStandIn(name string, asks []string, tick func(context.Context, standIn)) error {
	admin, err := s.Management.RESTConfig(name, rig.AdminGroup)
	if err != nil {
		return err
	}
	var c standIn
	if c.typed, err = kube.NewForConfig(admin); err != nil {
		return err
	}
	if c.dynamic, err = dynamic.NewForConfig(admin); err != nil {
		return err
	}
	c.requests = c.dynamic
	if len(asks) > 0 {
		requester, err := s.Management.RESTConfig(name, asks...)
		if err != nil {
			return err
		}
		if c.requests, err = dynamic.NewForConfig(requester); err != nil {
			return err
		}
	}
	s.wg.Go(func() {
		for rig.Sleep(s.life, standInEvery) {
			tick(s.life, c)
		}
	})
	return nil
}

// list returns the objects of a resource in all namespaces that have these labels; none
// and false if the list fails.
func (c standIn) list(ctx context.Context, r schema.GroupVersionResource, match labels.Selector) ([]unstructured.Unstructured, bool) {
	l, err := c.dynamic.Resource(r).List(ctx, metav1.ListOptions{LabelSelector: match.String()})
	if err != nil {
		return nil, false
	}
	return l.Items, true
}

// annotate merges annotations into an object in rig.Namespace. nil removes one.
func annotate(ctx context.Context, client dynamic.Interface, r schema.GroupVersionResource, name string, notes map[string]any) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": notes}})
	if err != nil {
		return err
	}
	_, err = client.Resource(r).Namespace(rig.Namespace).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

func selectorOf(check unstructured.Unstructured) labels.Selector {
	match, _, _ := unstructured.NestedStringMap(check.Object, "spec", "selector", "matchLabels")
	return labels.SelectorFromSet(match)
}

// unhealthySince reports whether a Node has had a condition of the list for longer than
// the time that the list gives under this key.
func unhealthySince(node *corev1.Node, check unstructured.Unstructured, key string) bool {
	list, _, _ := unstructured.NestedSlice(check.Object, "spec", "unhealthyConditions")
	for _, item := range list {
		want, _ := item.(map[string]any)
		text, _ := want[key].(string)
		timeout, err := time.ParseDuration(text)
		if err != nil {
			continue
		}
		for _, has := range node.Status.Conditions {
			if string(has.Type) == want["type"] && string(has.Status) == want["status"] && has.LastTransitionTime.Add(timeout).Before(time.Now()) {
				return true
			}
		}
	}
	return false
}

// clone makes the request that a controller makes from a template: an object of the
// template's kind without "Template", whose spec is spec.template.spec.
func (c standIn) clone(ctx context.Context, ref map[string]any, name string, dress func(*unstructured.Unstructured)) error {
	kind, _ := ref["kind"].(string)
	apiVersion, _ := ref["apiVersion"].(string)
	from, _ := ref["name"].(string)
	template, err := c.requests.Resource(resourceOf(apiVersion, kind)).Namespace(rig.Namespace).Get(ctx, from, metav1.GetOptions{})
	if err != nil {
		return err
	}
	spec, _, err := unstructured.NestedMap(template.Object, "spec", "template", "spec")
	if err != nil {
		return err
	}
	kind = kind[:len(kind)-len("Template")]
	obj := &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind, "spec": spec}}
	obj.SetName(name)
	dress(obj)
	_, err = c.requests.Resource(resourceOf(apiVersion, kind)).Namespace(rig.Namespace).Create(ctx, obj, metav1.CreateOptions{})
	return err
}

// resourceOf guesses the resource of a kind, as the controllers do.
func resourceOf(apiVersion, kind string) schema.GroupVersionResource {
	gv, _ := schema.ParseGroupVersion(apiVersion) // the API server refuses what is none
	plural, _ := meta.UnsafeGuessKindToResource(gv.WithKind(kind))
	return plural
}

// ActuatorUser is the user of the stand-in for OpenShift's bare-metal actuator.
const ActuatorUser = "stand-in-actuator"

// Requested is the annotation on a Machine with which OpenShift's MachineHealthCheck asks for a
// power cycle.
const Requested = "host.metal3.io/external-remediation"

// What the actuator writes on a Machine, and on its BareMetalHost.
const (
	poweredOff        = "remediation.metal3.io/powered-off-for-remediation"
	annotationsBackup = "remediation.metal3.io/node-annotations-backup"
	labelsBackup      = "remediation.metal3.io/node-labels-backup"
	requestsPowerOff  = "reboot.metal3.io/capbm-requested-power-off"
)

// RunActuator runs a stand-in for OpenShift's bare-metal actuator (cluster-api-provider-baremetal f2b0db1) until the scene ends. It holds
// the actuator's leader Lease, and carries out the annotation Requested in the actuator's steps:
// it asks the bare-metal operator to switch the host off, saves and deletes the Node, lets the
// host go on, and restores labels and annotations. It has no deadlines. It needs RunMetal3.
func (s *Scene) RunActuator(ctx context.Context) error {
	if err := s.leads(ctx, "controller-leader-election-capbm", ActuatorUser); err != nil {
		return err
	}
	return s.runStandIn(ActuatorUser, nil, func(ctx context.Context, c standIn) {
		machines, _ := c.list(ctx, rig.MachineResource, labels.Everything())
		for _, m := range machines {
			if _, requested := m.GetAnnotations()[Requested]; requested && m.GetAnnotations()["metal3.io/BareMetalHost"] != "" {
				_ = c.powerCycle(ctx, m) // at the next tick again
			}
		}
	})
}

// powerCycle does the next step for a Machine. What was done stands in the annotations.
func (c standIn) powerCycle(ctx context.Context, m unstructured.Unstructured) error {
	name, done := m.GetName(), m.GetAnnotations()
	host, err := c.dynamic.Resource(rig.HostResource).Namespace(rig.Namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	nodes := c.typed.CoreV1().Nodes()
	node, err := nodes.Get(ctx, name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	gone := err != nil
	on, _, _ := unstructured.NestedBool(host.Object, "status", "poweredOn")
	_, asked := host.GetAnnotations()[requestsPowerOff]
	_, wasOff := done[poweredOff]
	_, saved := done[annotationsBackup]
	switch {
	case !wasOff && !asked:
		return annotate(ctx, c.dynamic, rig.HostResource, name, map[string]any{requestsPowerOff: `{"mode":"hard"}`})
	case !wasOff && on:
		return nil // waits
	case !wasOff && !gone && !saved:
		return annotate(ctx, c.dynamic, rig.MachineResource, name, map[string]any{annotationsBackup: encoded(node.Annotations), labelsBackup: encoded(node.Labels)})
	case !wasOff && !gone:
		return nodes.Delete(ctx, name, metav1.DeleteOptions{})
	case !wasOff:
		return annotate(ctx, c.dynamic, rig.MachineResource, name, map[string]any{poweredOff: ""})
	case asked:
		return annotate(ctx, c.dynamic, rig.HostResource, name, map[string]any{requestsPowerOff: nil})
	case gone:
		return nil // waits
	case saved:
		node.Annotations = merged(done[annotationsBackup], node.Annotations)
		node.Labels = merged(done[labelsBackup], node.Labels)
		if _, err := nodes.Update(ctx, node, metav1.UpdateOptions{}); err != nil {
			return err
		}
		return annotate(ctx, c.dynamic, rig.MachineResource, name, map[string]any{annotationsBackup: nil, labelsBackup: nil})
	}
	return annotate(ctx, c.dynamic, rig.MachineResource, name, map[string]any{poweredOff: nil, Requested: nil})
}

func encoded(m map[string]string) string {
	b, _ := json.Marshal(m) // a map of strings can be encoded
	return string(b)
}

// merged is what was saved, with what the Node has by now before it.
func merged(saved string, now map[string]string) map[string]string {
	all := map[string]string{}
	_ = json.Unmarshal([]byte(saved), &all) // encoded made it
	maps.Copy(all, now)
	return all
}

// MachineDeletionUser is the user of the stand-in for medik8s' MachineDeletionRemediation.
const MachineDeletionUser = "stand-in-machine-deletion"

// RunMachineDeletions runs a stand-in for medik8s' MachineDeletionRemediation (34285c7) until the scene ends.
// It deletes the Machine of the Node that a request names, if a controller owns the Machine.
func (s *Scene) RunMachineDeletions() error {
	return s.runStandIn(MachineDeletionUser, nil, func(ctx context.Context, c standIn) {
		requests, _ := c.list(ctx, rig.MachineDeletionResource, labels.Everything())
		machines, _ := c.list(ctx, rig.MachineResource, labels.Everything())
		for _, r := range requests {
			for _, m := range machines {
				node, _, _ := unstructured.NestedString(m.Object, "status", "nodeRef", "name")
				if node == r.GetAnnotations()[ofNode] && metav1.GetControllerOf(&m) != nil {
					_ = c.dynamic.Resource(rig.MachineResource).Namespace(rig.Namespace).Delete(ctx, m.GetName(), metav1.DeleteOptions{})
				}
			}
		}
	})
}
