package k8swatch

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/fenced/fenced/internal/manifest"
	"github.com/fenced/fenced/internal/policy"
)

// The kinds that are not built into Kubernetes. Each may be missing.
var (
	machineGVR = schema.GroupVersionResource{Group: "machine.openshift.io", Version: "v1beta1", Resource: "machines"}
	checkGVR   = schema.GroupVersionResource{Group: "machine.openshift.io", Version: "v1beta1", Resource: "machinehealthchecks"}
	hostGVR    = schema.GroupVersionResource{Group: "metal3.io", Version: "v1alpha1", Resource: "baremetalhosts"}
)

// newStores makes the stores of a cluster, Nodes first.
func newStores(namespaces []string, changed func()) []*store {
	if len(namespaces) == 0 {
		namespaces = []string{metav1.NamespaceAll}
	}
	stores := []*store{{kind: "Node", convert: convertNode}}
	for _, ns := range namespaces {
		stores = append(stores,
			&store{kind: "Machine", gvr: machineGVR, namespace: ns, convert: decoded(manifest.Machine)},
			&store{kind: "MachineHealthCheck", gvr: checkGVR, namespace: ns,
				convert: decoded(func(f map[string]any) (policy.Check, error) { return manifest.MachineHealthCheck(f), nil })},
			&store{kind: "BareMetalHost", gvr: hostGVR, namespace: ns, convert: decoded(manifest.BareMetalHost)})
	}
	for _, s := range stores {
		s.items = map[string]entry{}
		s.changed = changed
	}
	return stores
}

// decoded makes a store's converter from one of manifest's decoders, the same
// that read files.
func decoded[T any](decode func(map[string]any) (T, error)) func(any) (any, error) {
	return func(obj any) (any, error) {
		u, ok := obj.(*unstructured.Unstructured)
		if !ok {
			return nil, fmt.Errorf("a %T came from a dynamic watch", obj)
		}
		return decode(u.Object)
	}
}

// startReflectors lists and watches every kind until ctx ends.
func (c *Cluster) startReflectors(ctx context.Context, g *sync.WaitGroup) {
	cl := c.api()
	for _, s := range c.stores {
		var expected any = &unstructured.Unstructured{}
		if s.gvr.Empty() {
			expected = &corev1.Node{}
		}
		r := cache.NewReflectorWithOptions(cl.listWatch(s), expected, s, cache.ReflectorOptions{Name: c.cfg.Name + "/" + s.kind})
		g.Go(func() { r.RunWithContext(ctx) })
	}
}

// listWatch lists and watches a store's kind and notes how that goes. A kind
// that is not installed is an empty kind; the reflector goes on asking.
func (cl *clients) listWatch(s *store) *cache.ListWatch {
	note := func(err error) {
		switch {
		case err == nil:
			s.fail("")
		case apierrors.IsNotFound(err) && !s.gvr.Empty():
			s.absent()
		default:
			s.fail(err.Error())
		}
	}
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := cl.list(ctx, s, o)
			note(err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.AllowWatchBookmarks = true
			var w watch.Interface
			var err error
			if s.gvr.Empty() {
				w, err = cl.typed.CoreV1().Nodes().Watch(ctx, o)
			} else {
				w, err = cl.dynamic.Resource(s.gvr).Namespace(s.namespace).Watch(ctx, o)
			}
			note(err)
			return w, err
		},
	}
}

func (cl *clients) list(ctx context.Context, s *store, o metav1.ListOptions) (runtime.Object, error) {
	if s.gvr.Empty() {
		return cl.typed.CoreV1().Nodes().List(ctx, o)
	}
	return cl.dynamic.Resource(s.gvr).Namespace(s.namespace).List(ctx, o)
}
