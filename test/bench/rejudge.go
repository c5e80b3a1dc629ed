package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fenced/fenced/internal/manifest"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/test/rig"
)

const (
	rejudgeWord = "rejudge"
	syncedWord  = "synced"
)

// rejudger is what fenced is compared with: it watches the same objects and, as
// the MachineHealthCheck controllers do, lists all targets of a check and judges
// every one at every event of a Node. It is a charitable copy: objects are
// trimmed and converted once per event, and nothing is copied out of the cache.
// Events that come while it judges are answered by one more judgement.
type rejudger struct {
	checks []policy.Check
	due    chan struct{}

	mu       sync.Mutex
	nodes    map[string]*policy.Node
	machines map[string]policy.Machine
}

// rejudge runs one until ctx ends. It says when it has judged everything once,
// and answers each line of in with the number of its judgements so far.
func rejudge(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	if len(args) != 1 {
		return fmt.Errorf("%s takes a kubeconfig", rejudgeWord)
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", args[0])
	if err != nil {
		return fmt.Errorf("read kubeconfig %s: %w", args[0], err)
	}
	r := &rejudger{due: make(chan struct{}, 1), nodes: map[string]*policy.Node{}, machines: map[string]policy.Machine{}}
	if err := r.watch(ctx, cfg); err != nil {
		return err
	}
	r.judge()
	fmt.Fprintln(out, syncedWord)
	var judged counter
	go func() {
		for lines := bufio.NewScanner(in); lines.Scan(); {
			fmt.Fprintln(out, judged.Load())
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.due:
		}
		r.judge()
		judged.Add(1)
	}
}

// watch reads the checks, and fills the caches until ctx ends.
func (r *rejudger) watch(ctx context.Context, cfg *rest.Config) error {
	dyn, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	proto := rest.CopyConfig(cfg)
	proto.ContentType, proto.AcceptContentTypes = "application/vnd.kubernetes.protobuf", "application/vnd.kubernetes.protobuf,application/json"
	typed, err := kubernetes.NewForConfig(proto)
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	list, err := dyn.Resource(rig.CheckResource).Namespace(rig.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list the checks: %w", err)
	}
	for _, item := range list.Items {
		r.checks = append(r.checks, manifest.MachineHealthCheck(item.Object))
	}
	nodes := informers.NewSharedInformerFactory(typed, 0).Core().V1().Nodes().Informer()
	machines := dynamicinformer.NewFilteredDynamicSharedInformerFactory(dyn, 0, rig.Namespace, nil).ForResource(rig.MachineResource).Informer()
	return r.follow(ctx, nodes, machines)
}

// follow keeps converted copies of what the informers hold.
func (r *rejudger) follow(ctx context.Context, nodes, machines cache.SharedIndexInformer) error {
	nodeEvents, err := nodes.AddEventHandler(handler(r.setNode, func(name string) { delete(r.nodes, name) }, r))
	if err != nil {
		return fmt.Errorf("watch Nodes: %w", err)
	}
	machineEvents, err := machines.AddEventHandler(handler(r.setMachine, func(name string) { delete(r.machines, name) }, r))
	if err != nil {
		return fmt.Errorf("watch Machines: %w", err)
	}
	if err := nodes.SetTransform(trimNode); err != nil {
		return fmt.Errorf("watch Nodes: %w", err)
	}
	go nodes.RunWithContext(ctx)
	go machines.RunWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), nodeEvents.HasSynced, machineEvents.HasSynced) {
		return fmt.Errorf("wait for the caches: %w", ctx.Err())
	}
	return nil
}

// handler calls set or remove with the lock held, and asks for a judgement.
func handler[T metav1.Object](set func(T), remove func(name string), r *rejudger) cache.ResourceEventHandler {
	change := func(f func()) {
		r.mu.Lock()
		f()
		r.mu.Unlock()
		select {
		case r.due <- struct{}{}:
		default: // it is asked for already
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { change(func() { set(obj.(T)) }) },
		UpdateFunc: func(_, obj any) { change(func() { set(obj.(T)) }) },
		DeleteFunc: func(obj any) {
			if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj); err == nil {
				_, name, _ := cache.SplitMetaNamespaceKey(key) // the key func made it
				change(func() { remove(name) })
			}
		},
	}
}

// trimNode drops what a fair rival would not keep either.
func trimNode(obj any) (any, error) {
	if n, ok := obj.(*corev1.Node); ok {
		n.ManagedFields, n.Status.Images = nil, nil
	}
	return obj, nil
}

func (r *rejudger) setNode(n *corev1.Node) {
	out := &policy.Node{Name: n.Name, UID: string(n.UID), Labels: n.Labels, Annotations: n.Annotations}
	for _, c := range n.Status.Conditions {
		out.Conditions = append(out.Conditions, policy.Condition{
			Type: string(c.Type), Status: string(c.Status), LastTransition: c.LastTransitionTime.Time,
		})
	}
	r.nodes[n.Name] = out
}

func (r *rejudger) setMachine(u *unstructured.Unstructured) {
	if m, err := manifest.Machine(u.Object); err == nil { // ours all decode
		r.machines[m.Name] = m
	}
}

// judge lists all targets and judges every one.
func (r *rejudger) judge() {
	r.mu.Lock()
	s := policy.Snapshot{Checks: r.checks, Nodes: maps.Clone(r.nodes), Machines: slices.Collect(maps.Values(r.machines))}
	r.mu.Unlock()
	policy.Decide(s, time.Now())
}
