package k8swatch

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

// source selects the objects of a store.
type source struct {
	kind, group string
	resource    string   // the plural; empty = from discovery
	versions    []string // supported versions, the best first; empty for a request: any
	namespace   string   // empty = all
	labels      string   // a selector
	fields      string   // a selector
	checks      bool     // the objects are checks
	request     bool     // the objects are remediation requests
}

// builtIn kinds always exist, and are read typed as protobuf.
func (s *source) builtIn() bool { return s.group == "" }

func (s *source) options(o metav1.ListOptions) metav1.ListOptions {
	o.LabelSelector, o.FieldSelector = s.labels, s.fields
	return o
}

func (s *source) pods() bool { return s.kind == "Pod" }

func (cl *clients) list(ctx context.Context, s *source, gvr schema.GroupVersionResource, o metav1.ListOptions) (runtime.Object, error) {
	o, ctx = s.options(o), context.WithValue(ctx, listKey{}, true)
	switch {
	case s.pods():
		return cl.typed.Pods(s.namespace).List(ctx, o)
	case s.builtIn():
		return cl.typed.Nodes().List(ctx, o)
	}
	return cl.dynamic.Resource(gvr).Namespace(s.namespace).List(ctx, o)
}

func (cl *clients) watch(ctx context.Context, s *source, gvr schema.GroupVersionResource, o metav1.ListOptions) (watch.Interface, error) {
	o = s.options(o)
	switch {
	case s.pods():
		return cl.typed.Pods(s.namespace).Watch(ctx, o)
	case s.builtIn():
		return cl.typed.Nodes().Watch(ctx, o)
	}
	return cl.dynamic.Resource(gvr).Namespace(s.namespace).Watch(ctx, o)
}
