package k8swatch

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

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
func (c *Cluster) newStores(namespaces []string) []*store {
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
		s.items, s.log = map[string]entry{}, c.log
		s.changed, s.moved = c.notify, func() { c.settle(time.Now()) }
		s.listed = func() {
			select {
			case c.listed <- struct{}{}:
			default: // it is known already
			}
		}
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

const (
	pageSize = 500 // of lists that the API server cannot stream
	retryMin = 250 * time.Millisecond
	retryMax = 5 * time.Second
	// watchBeyond is how much longer a watch lives than one round of freshness
	// reads. An API server sends a bookmark 2 s before a watch ends and else only
	// once a minute, so short watches tell in every round how far they are, also
	// of a kind where nothing happens. // I16
	watchBeyond = 2 * time.Second
)

// startReflectors lists and watches every kind until ctx ends.
func (c *Cluster) startReflectors(ctx context.Context, g *sync.WaitGroup) {
	ctx = klog.NewContext(ctx, klog.Logger{}) // the stores keep what matters of the errors
	cl := c.api()
	for _, s := range c.stores {
		var expected any = &unstructured.Unstructured{}
		if s.gvr.Empty() {
			expected = &corev1.Node{}
		}
		r := cache.NewReflectorWithOptions(cl.listWatch(s, c.cfg.FreshEvery), expected, s, cache.ReflectorOptions{
			Name: c.cfg.Name + "/" + s.kind, Logger: &klog.Logger{},
			Backoff: &wait.Backoff{Duration: retryMin, Factor: 2, Jitter: 0.5, Steps: 6, Cap: retryMax},
		})
		r.WatchListPageSize = pageSize
		g.Go(func() { r.RunWithContext(ctx) })
	}
}

// listWatch lists and watches a store's kind and notes how that goes. A kind
// that is not installed is an empty kind; the reflector goes on asking.
func (cl *clients) listWatch(s *store, freshEvery time.Duration) *cache.ListWatch {
	turn := int64((freshEvery + watchBeyond).Round(time.Second).Seconds())
	note := func(err error, asked time.Time) {
		switch {
		case err == nil, errors.Is(err, context.Canceled):
		case apierrors.IsNotFound(err) && !s.gvr.Empty():
			s.absent(asked)
			s.moved()
		default:
			s.fail(err.Error())
		}
	}
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			if o.ResourceVersion == "0" { // the API server's own cache, whole and of any age
				o.ResourceVersion = ""
			}
			asked := time.Now()
			list, err := cl.list(ctx, s, o)
			note(err, asked)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			streams := o.SendInitialEvents != nil && *o.SendInitialEvents
			if !streams {
				o.TimeoutSeconds = &turn
			}
			asked := time.Now()
			w, err := cl.watch(ctx, s, o)
			note(err, asked)
			if streams && err == nil {
				s.streamed(w)
			}
			return w, err
		},
	}
}

func (cl *clients) watch(ctx context.Context, s *store, o metav1.ListOptions) (watch.Interface, error) {
	if s.gvr.Empty() {
		return cl.typed.CoreV1().Nodes().Watch(ctx, o)
	}
	return cl.dynamic.Resource(s.gvr).Namespace(s.namespace).Watch(ctx, o)
}

func (cl *clients) list(ctx context.Context, s *store, o metav1.ListOptions) (runtime.Object, error) {
	if s.gvr.Empty() {
		return cl.typed.CoreV1().Nodes().List(ctx, o)
	}
	return cl.dynamic.Resource(s.gvr).Namespace(s.namespace).List(ctx, o)
}
