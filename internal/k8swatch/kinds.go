package k8swatch

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fenced/fenced/internal/k8swatch/client"
	"github.com/fenced/fenced/internal/manifest"
	"github.com/fenced/fenced/internal/policy"
)

// controlPlanePods is where the Pods of a namespace that are of the control plane are found. There are a few of them for
// each control-plane host, whatever else runs in the cluster.
func controlPlanePods(s policy.PodSpace) source {
	return source{Resource: client.Resource{Kind: "Pod"}, namespace: s.Namespace, labels: fmt.Sprintf("%s in (%s)", s.Label, strings.Join(s.Values(), ","))}
}

// addStores creates the stores of everything that is always watched. What runs in
// the cluster itself is on the workload API. So is OpenShift's Machine API: on a
// management API it would describe the Nodes of the management cluster.
func (c *Cluster) addStores() {
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
func (c *Cluster) addClusterAPI(namespace string) {
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
func (c *Cluster) managed() []string {
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

// sideOf returns the API server with the objects of an API version.
func (c *Cluster) sideOf(apiVersion string) *side {
	group, _, _ := strings.Cut(apiVersion, "/")
	switch group {
	case client.ClusterGroup, client.HostGroup:
		return c.manage
	}
	return c.work
}
