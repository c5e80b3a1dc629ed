package k8swatch

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fenced/fenced/internal/manifest"
	"github.com/fenced/fenced/internal/policy"
)

// The API groups whose kinds are watched or written.
const (
	machineGroup = "machine.openshift.io"
	clusterGroup = "cluster.x-k8s.io"
	hostGroup    = "metal3.io"
	medik8sGroup = "remediation.medik8s.io"
	configGroup  = "config.openshift.io"
	fencedGroup  = "fenced.io"
)

// Kinds that have only one version.
var (
	machineGVR   = schema.GroupVersionResource{Group: machineGroup, Version: "v1beta1", Resource: "machines"}
	checkGVR     = schema.GroupVersionResource{Group: machineGroup, Version: "v1beta1", Resource: "machinehealthchecks"}
	hostGVR      = schema.GroupVersionResource{Group: hostGroup, Version: "v1alpha1", Resource: "baremetalhosts"}
	nodeCheckGVR = schema.GroupVersionResource{Group: medik8sGroup, Version: "v1alpha1", Resource: "nodehealthchecks"}
	requestGVR   = schema.GroupVersionResource{Group: fencedGroup, Version: "v1alpha1", Resource: "fencedremediations"}
	upgradeGVR   = schema.GroupVersionResource{Group: configGroup, Version: "v1", Resource: "clusterversions"}
)

// clusterVersions are the supported versions of the Cluster API, the best first.
var clusterVersions = []string{"v1beta2", "v1beta1"}

const clusterLabel = "cluster.x-k8s.io/cluster-name"

// controlPlanePods is where the Pods of a namespace that are of the control plane are found. There are a few of them for
// each control-plane host, whatever else runs in the cluster.
func controlPlanePods(s policy.PodSpace) source {
	return source{kind: "Pod", namespace: s.Namespace, labels: fmt.Sprintf("%s in (%s)", s.Label, strings.Join(s.Values(), ","))}
}

// addStores creates the stores of everything that is always watched. What runs in
// the cluster itself is on the workload API. So is OpenShift's Machine API: on a
// management API it would describe the Nodes of the management cluster.
func (c *Cluster) addStores() {
	c.work.add(&store{source: source{kind: "Node"}, convert: convertNode})
	for _, s := range policy.PodSpaces {
		c.work.add(&store{source: controlPlanePods(s), convert: convertPod})
	}
	c.work.add(custom(nodeCheckGVR, policy.NodeHealthCheckKind, source{checks: true}, checkConverter(manifest.NodeHealthCheck)))
	c.work.add(custom(upgradeGVR, "ClusterVersion", source{fields: "metadata.name=version"}, convertUpgrade))
	for _, ns := range orAll(c.cfg.Namespaces) {
		in := source{namespace: ns}
		c.work.add(custom(machineGVR, "Machine", in, convertMachine(manifest.Machine)))
		c.work.add(custom(checkGVR, policy.MachineHealthCheckKind, source{namespace: ns, checks: true}, checkConverter(manifest.MachineHealthCheck)))
	}
	for _, ns := range c.managed() {
		c.manage.add(custom(hostGVR, "BareMetalHost", source{namespace: ns}, convertHost(c.manage != c.work)))
		c.addClusterAPI(ns)
	}
}

// addClusterAPI creates the stores of the Cluster API, restricted to one Cluster
// if one is named.
func (c *Cluster) addClusterAPI(namespace string) {
	machines, clusters := source{namespace: namespace}, source{namespace: namespace}
	var ours func(any) bool
	if name := c.cfg.Management.ClusterName; name != "" {
		machines.labels, clusters.fields = clusterLabel+"="+name, "metadata.name="+name
		ours = func(v any) bool {
			check := v.(*policy.Check)
			return check.ClusterName == name || check.ClusterName == "" // a check that could not be read stays, as Invalid
		}
	}
	checks := custom(clusterGVR("machinehealthchecks"), policy.MachineHealthCheckKind,
		source{namespace: namespace, checks: true}, checkConverter(manifest.MachineHealthCheck))
	checks.keep = ours
	c.manage.add(custom(clusterGVR("machines"), "Machine", machines, convertMachine(manifest.Machine)))
	c.manage.add(checks)
	c.manage.add(custom(clusterGVR("clusters"), "Cluster", clusters, converter(manifest.Cluster)))
}

// custom is the store of a kind that may be missing. It is read where it is
// expected; discovery is used only if it is not there.
func custom(gvr schema.GroupVersionResource, kind string, s source, convert func(any) (any, error)) *store {
	s.kind, s.group, s.resource, s.versions = kind, gvr.Group, gvr.Resource, []string{gvr.Version}
	if gvr.Group == clusterGroup {
		s.versions = clusterVersions
	}
	return &store{source: s, gvr: gvr, convert: convert}
}

func clusterGVR(resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: clusterGroup, Version: clusterVersions[0], Resource: resource}
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
	case clusterGroup, hostGroup:
		return c.manage
	}
	return c.work
}
