package k8swatch

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/fenced/fenced/internal/k8swatch/client"
)

// source selects the objects of a store.
type source struct {
	client.Resource
	namespace string // empty = all
	labels    string // a selector
	fields    string // a selector
	checks    bool   // the objects are checks
	request   bool   // the objects are remediation requests
}

// builtIn kinds always exist, and are read typed as protobuf.
func (s *source) builtIn() bool { return s.Group == "" }

func (s *source) options(o metav1.ListOptions) metav1.ListOptions {
	o.LabelSelector, o.FieldSelector = s.labels, s.fields
	return o
}

func (s *source) pods() bool { return s.Kind == "Pod" }

func (s *source) listAt(ctx context.Context, cl *client.Conn, gvr schema.GroupVersionResource, o metav1.ListOptions) (runtime.Object, error) {
	o, ctx = s.options(o), client.AsList(ctx)
	switch {
	case s.pods():
		return cl.Typed.Pods(s.namespace).List(ctx, o)
	case s.builtIn():
		return cl.Typed.Nodes().List(ctx, o)
	}
	return cl.Dynamic.Resource(gvr).Namespace(s.namespace).List(ctx, o)
}

func (s *source) watchAt(ctx context.Context, cl *client.Conn, gvr schema.GroupVersionResource, o metav1.ListOptions) (watch.Interface, error) {
	o = s.options(o)
	switch {
	case s.pods():
		return cl.Typed.Pods(s.namespace).Watch(ctx, o)
	case s.builtIn():
		return cl.Typed.Nodes().Watch(ctx, o)
	}
	return cl.Dynamic.Resource(gvr).Namespace(s.namespace).Watch(ctx, o)
}
