package scene

import (
	"context"
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/fenced/fenced/test/rig"
)

// standInEvery is how often a stand-in looks at the cluster.
const standInEvery = 300 * time.Millisecond

// standIn is a stand-in for a controller of OpenShift or medik8s, which are no Go modules
// that a test could build. It is a user of its own, so that the audit log shows what it
// did. A call that fails is repeated at the next tick, as controllers do.
type standIn struct {
	typed   kubernetes.Interface
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
	if c.typed, err = kubernetes.NewForConfig(admin); err != nil {
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
		every := time.NewTicker(standInEvery)
		defer every.Stop()
		for {
			select {
			case <-s.life.Done():
				return
			case <-every.C:
				tick(s.life, c)
			}
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

// selectorOf is spec.selector of a check.
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
