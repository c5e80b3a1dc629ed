package k8swatch

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// What the kubelet or a controller writes on a Node by itself is not restored: it
// describes the old Node, and its owner describes the new one. managedFields,
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
var networkPrefixes = []string{"k8s.ovn.org/", "network.cilium.io/", "io.cilium.network."}

// controllerTaints are prefixes of taints that describe the state of the Node:
// those of the node lifecycle controller, the cloud provider and the medik8s
// remediators.
var controllerTaints = []string{"node.kubernetes.io/", "node.cloudprovider.kubernetes.io/", "medik8s.io/"}

func ownedLabel(key string) bool { return slices.Contains(ownedKeys, key) }

func ownedAnnotation(key string) bool {
	return slices.Contains(ownedKeys, key) || slices.Contains(networkKeys, key) || slices.Contains(markKeys, key) || hasPrefix(key, networkPrefixes)
}

func ownedTaint(t corev1.Taint) bool { return hasPrefix(t.Key, controllerTaints) }

func hasPrefix(key string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(key, p) })
}
