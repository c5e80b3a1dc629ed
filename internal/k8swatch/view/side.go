package view

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/k8swatch/client"
	"github.com/fenced/fenced/internal/manifest"
	"github.com/fenced/fenced/internal/policy"
)

// side is one API server of a cluster, with the kinds that are watched there.
type side struct {
	*client.Server
	c      *Cache
	listed chan struct{} // a full list was received: keepFresh reads at once

	mu     sync.Mutex
	stores []*store
	// begin starts the watch of a store; nil while no watches run.
	begin func(*store)
}

func newSide(c *Cache, name, kubeconfig string, apart bool, log *zap.Logger) *side {
	return &side{c: c, Server: client.NewServer(name, kubeconfig, apart, c.cfg.Guard, log), listed: make(chan struct{}, 1)}
}

// watched returns the current stores of this side.
func (s *side) watched() []*store {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.stores)
}

// add starts to watch a kind.
func (s *side) add(st *store) {
	st.side, st.log, st.items, st.marks = s, s.Log, map[objectName]entry{}, map[objectName]event.RunMark{}
	st.added = time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stores = append(s.stores, st)
	if s.begin != nil {
		s.begin(st)
	}
}

// drop stops watching a kind and removes its objects from the view.
func (s *side) drop(st *store) {
	s.mu.Lock()
	s.stores = slices.DeleteFunc(s.stores, func(o *store) bool { return o == st })
	if st.stop != nil {
		st.stop()
	}
	s.mu.Unlock()
	st.close()
}

// run watches until ctx ends. It starts over when the kubeconfig was replaced or
// the API went back in time.
func (s *side) run(ctx context.Context) {
	for ctx.Err() == nil {
		watching, stop := context.WithCancel(ctx)
		var g sync.WaitGroup
		s.mu.Lock()
		s.begin = func(st *store) {
			var one context.Context
			one, st.stop = context.WithCancel(watching)
			st.watch(one, s.API(), &g)
		}
		for _, st := range s.stores {
			s.begin(st)
		}
		s.mu.Unlock()
		g.Go(func() { s.keepFresh(watching, stop) })
		s.UntilReplaced(watching, s.c.cfg.FreshEvery)
		s.mu.Lock()
		s.begin = nil
		s.mu.Unlock()
		stop()
		g.Wait()
	}
}

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

// controlPlanePods is where the Pods of a namespace that are of the control plane are found. There are a few of them for
// each control-plane host, whatever else runs in the cluster.
func controlPlanePods(s policy.PodSpace) source {
	return source{Resource: client.Resource{Kind: "Pod"}, namespace: s.Namespace, labels: fmt.Sprintf("%s in (%s)", s.Label, strings.Join(s.Values(), ","))}
}

// addStores creates the stores of everything that is always watched. What runs in
// the cluster itself is on the workload API. So is OpenShift's Machine API: on a
// management API it would describe the Nodes of the management cluster.
func (c *Cache) addStores() {
	c.work.add(&store{source: source{Resource: client.Resource{Kind: "Node"}}, convert: convertNode})
	for _, s := range policy.PodSpaces {
		c.work.add(&store{source: controlPlanePods(s), convert: convertPod})
	}
	c.work.add(custom(client.NodeCheckGVR, policy.NodeHealthCheckKind, source{checks: true}, checkConverter(manifest.NodeHealthCheck)))
	c.work.add(custom(client.UpgradeGVR, "ClusterVersion", source{fields: "metadata.name=version"}, convertUpgrade))
	for _, ns := range orAll(c.cfg.Namespaces) {
		in := source{namespace: ns}
		c.work.add(custom(client.MachineGVR, "Machine", in, convertMachine(manifest.Machine)))
		c.work.add(custom(client.CheckGVR, policy.MachineHealthCheckKind, source{namespace: ns, checks: true}, checkConverter(manifest.MachineHealthCheck)))
	}
	for _, ns := range c.managed() {
		c.manage.add(custom(client.HostGVR, "BareMetalHost", source{namespace: ns}, convertHost(c.manage != c.work)))
		c.addClusterAPI(ns)
	}
}

// addClusterAPI creates the stores of the Cluster API, restricted to one Cluster
// if one is named.
func (c *Cache) addClusterAPI(namespace string) {
	machines, clusters := source{namespace: namespace}, source{namespace: namespace}
	var ours func(any) bool
	if name := c.cfg.Management.ClusterName; name != "" {
		machines.labels, clusters.fields = client.ClusterLabel+"="+name, "metadata.name="+name
		ours = func(v any) bool {
			check := v.(*policy.Check)
			return check.ClusterName == name || check.ClusterName == "" // a check that could not be read stays, as Invalid
		}
	}
	checks := custom(client.ClusterGVR("machinehealthchecks"), policy.MachineHealthCheckKind,
		source{namespace: namespace, checks: true}, checkConverter(manifest.MachineHealthCheck))
	checks.keep = ours
	c.manage.add(custom(client.ClusterGVR("machines"), "Machine", machines, convertMachine(manifest.Machine)))
	c.manage.add(checks)
	c.manage.add(custom(client.ClusterGVR("clusters"), "Cluster", clusters, converter(manifest.Cluster)))
}

// custom is the store of a kind that may be missing. It is read where it is
// expected; discovery is used only if it is not there.
func custom(gvr schema.GroupVersionResource, kind string, s source, convert func(any) (any, error)) *store {
	s.Kind, s.Group, s.Plural, s.Versions = kind, gvr.Group, gvr.Resource, []string{gvr.Version}
	if gvr.Group == client.ClusterGroup {
		s.Versions = client.ClusterVersions
	}
	return &store{source: s, gvr: gvr, convert: convert}
}

// managed returns the namespaces of the management API.
func (c *Cache) managed() []string {
	if ns := c.cfg.Management.Namespace; ns != "" {
		return []string{ns}
	}
	return orAll(c.cfg.Namespaces)
}

func orAll(namespaces []string) []string {
	if len(namespaces) == 0 {
		return []string{metav1.NamespaceAll}
	}
	return namespaces
}

// served is where a resource of the Cluster API was found last.
func (c *Cache) served(resource string) schema.GroupVersionResource {
	for _, s := range c.manage.watched() {
		if s.Group == client.ClusterGroup && s.Plural == resource {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.gvr
		}
	}
	return client.ClusterGVR(resource)
}

// NotOlder returns the options of a list that is at least as new as the view of a
// kind on an API server; without a view, or if the view was not proven for a minute, the newest: what keeps the
// watch back, the API server's cache, keeps such a list back, too. // I22
func (c *Cache) NotOlder(at *client.Server, kind, group, namespace string) metav1.ListOptions {
	o := metav1.ListOptions{Limit: client.PageSize}
	s := c.work
	if at == c.manage.Server {
		s = c.manage
	}
	for _, st := range s.watched() {
		if st.Kind == kind && st.Group == group && (st.namespace == "" || st.namespace == namespace) {
			if proven, _ := st.state(); time.Since(proven) > outageAfter {
				continue
			}
			if v := st.version(); v > 0 {
				o.ResourceVersion, o.ResourceVersionMatch = strconv.FormatUint(v, 10), metav1.ResourceVersionMatchNotOlderThan
			}
		}
	}
	return o
}

// sideOf returns the API server with the objects of an API version.
func (c *Cache) sideOf(apiVersion string) *side {
	if c.servers.Of(apiVersion) == c.servers.Manage {
		return c.manage
	}
	return c.work
}
