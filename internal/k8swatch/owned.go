package k8swatch

import (
	"path"
	"slices"
)

// What the kubelet or a controller writes on a Node by itself is not restored: it
// describes the old Node, and its owner describes the new one. These lists are all
// that fenced knows of it; Config.NeverRestore adds to them. managedFields,
// which record the last writer of a key, do not decide that: a label that a
// kubelet was once configured to set belongs to the Node even if the kubelet no
// longer sets it. So zone, region and instance type are restored, too: it is the
// same machine.

// ownedKeys are keys of the kubelet and of its controllers. Sources: the
// kubelet's initialNode and its reconcilers (hostname, os, arch, windows-build,
// provided-node-ip, controller-managed-attach-detach), the CSI plugin manager
// (csi nodeid), the TTL controller (ttl).
var ownedKeys = []string{
	"kubernetes.io/hostname", "kubernetes.io/os", "kubernetes.io/arch", "beta.kubernetes.io/os", "beta.kubernetes.io/arch",
	"node.kubernetes.io/windows-build", "volumes.kubernetes.io/controller-managed-attach-detach", "alpha.kubernetes.io/provided-node-ip",
	"csi.volume.kubernetes.io/nodeid", "node.alpha.kubernetes.io/ttl",
}

// networkKeys are annotations in which a network plugin stores what it assigned
// to the Node: subnets, tunnel addresses, keys. The deletion of the Node returned
// these, so an old value may now belong to another Node. Annotations that people
// set are not among them.
var networkKeys = []string{
	"flannel.alpha.coreos.com/backend-data", "flannel.alpha.coreos.com/backend-v6-data", "flannel.alpha.coreos.com/backend-type",
	"flannel.alpha.coreos.com/kube-subnet-manager", "flannel.alpha.coreos.com/public-ip", "flannel.alpha.coreos.com/public-ipv6",
	"projectcalico.org/IPv4IPIPTunnelAddr", "projectcalico.org/IPv4VXLANTunnelAddr", "projectcalico.org/IPv6VXLANTunnelAddr",
	"projectcalico.org/VXLANTunnelMACAddr", "projectcalico.org/VXLANTunnelMACAddrV6",
	"projectcalico.org/IPv4WireguardInterfaceAddr", "projectcalico.org/IPv6WireguardInterfaceAddr",
	"projectcalico.org/WireguardPublicKey", "projectcalico.org/WireguardPublicKeyV6",
	"node.antrea.io/mac-address", "node.antrea.io/transport-addresses", "node.antrea.io/wireguard-public-key",
}

// networkPrefixes belong to plugins that own all of their annotations on Nodes;
// labels with these prefixes are set by people.
var networkPrefixes = []string{"k8s.ovn.org/*", "network.cilium.io/*", "io.cilium.network.*"}

// stateKeys are annotations in which a controller notes what it has seen of the boot that
// is over: that the Node was ready once.
var stateKeys = []string{"readiness.k8s.io/*"}

// stateTaints are taints that a controller sets and takes off by the state of the Node:
// the node lifecycle controller, the cloud provider, the medik8s remediators, the
// operators of network plugins and CSI drivers, the node readiness controller, the
// Cluster API, the cluster autoscaler and Karpenter. One that was saved is of the host
// before its boot. A NoExecute one that comes back evicts pods.
var stateTaints = []string{
	"node.kubernetes.io/*", "node.cloudprovider.kubernetes.io/*", "medik8s.io/*",
	"node.cilium.io/*", "*/agent-not-ready", "readiness.k8s.io/*", "node.cluster.x-k8s.io/*",
	"ToBeDeletedByClusterAutoscaler", "DeletionCandidateOfClusterAutoscaler",
	"startup-taint.cluster-autoscaler.kubernetes.io/*", "status-taint.cluster-autoscaler.kubernetes.io/*", "ignore-taint.cluster-autoscaler.kubernetes.io/*",
	"karpenter.sh/unregistered", "karpenter.sh/disrupted", "karpenter.sh/disruption",
}

// neverRestore are the patterns that an administrator adds to those above: of labels,
// annotations and taints alike.
type neverRestore []string

func (more neverRestore) label(key string) bool { return matches(key, more, ownedKeys) }

func (more neverRestore) annotation(key string) bool {
	return matches(key, more, ownedKeys, networkKeys, networkPrefixes, stateKeys, markKeys)
}

func (more neverRestore) taint(key string) bool { return matches(key, more, stateTaints) }

// matches says whether a key is one of some lists. In these * stands for any text without a slash.
func matches(key string, lists ...[]string) bool {
	return slices.ContainsFunc(slices.Concat(lists...), func(pattern string) bool {
		is, err := path.Match(pattern, key)
		return is && err == nil
	})
}
