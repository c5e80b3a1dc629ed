package write

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fenced/fenced/internal/k8swatch/client"
	"github.com/fenced/fenced/internal/remediate"
)

// saved is what the Node should still get according to a run's backups.
type saved struct {
	labels, annotations map[string]string
	taints              []corev1.Taint
	unschedulable       bool
}

// The names of keys in the record of a run; see remediate.Run.Restored.
const cordonKey = "cordon"

func labelKey(key string) string      { return "label " + key }
func annotationKey(key string) string { return "annotation " + key }
func taintKey(t corev1.Taint) string  { return "taint " + t.Key + ":" + string(t.Effect) }

// mergeBackups merges the saved Nodes of one run, oldest first, for the live Node of
// a UID. A Node that was saved in a later attempt may not have been restored yet, so
// missing keys come from earlier backups. If both have a key, the newer value counts.
//
// A key that was read back on a Node is its owner's from then on: only what was saved
// of that Node, or later, tells whether it is still wanted, and nothing does while
// that is the live one. So is one that was saved of the live Node: in taint mode that
// was never deleted, and lost nothing. // I21
func mergeBackups(backups [][]byte, restored map[string]string, live types.UID, never neverRestore) (saved, error) {
	nodes := make([]corev1.Node, len(backups))
	for i, b := range backups {
		if err := json.Unmarshal(b, &nodes[i]); err != nil {
			return saved{}, fmt.Errorf("read the backup of the Node: %w", err)
		}
	}
	s := saved{labels: map[string]string{}, annotations: map[string]string{}}
	stays := map[string]bool{}
	for _, n := range nodes {
		if n.UID == live {
			for _, key := range (saved{n.Labels, n.Annotations, n.Spec.Taints, n.Spec.Unschedulable}).on(&n) {
				stays[key] = true
			}
		}
	}
	for i, n := range nodes {
		wanted := func(key string) bool { return !stays[key] && i >= firstThatCounts(nodes, restored[key], live) }
		for k, v := range n.Labels {
			if !never.label(k) && wanted(labelKey(k)) {
				s.labels[k] = v
			}
		}
		for k, v := range n.Annotations {
			if !never.annotation(k) && wanted(annotationKey(k)) {
				s.annotations[k] = v
			}
		}
		for _, t := range n.Spec.Taints {
			if !never.taint(t.Key) && wanted(taintKey(t)) {
				s.taints = slices.DeleteFunc(s.taints, func(older corev1.Taint) bool { return older.MatchTaint(&t) })
				s.taints = append(s.taints, t)
			}
		}
		s.unschedulable = s.unschedulable || n.Spec.Unschedulable && wanted(cordonKey)
	}
	return s, nil
}

// firstThatCounts is the index of the first saved Node that counts for a key that was
// last read back on the Node of a UID, "" if it was on none.
func firstThatCounts(nodes []corev1.Node, readBackOn string, live types.UID) int {
	switch readBackOn {
	case "":
		return 0
	case string(live):
		return len(nodes)
	}
	for i := len(nodes) - 1; i > 0; i-- {
		if string(nodes[i].UID) == readBackOn {
			return i
		}
	}
	return 0 // nobody has saved that Node, which went away: its owner had no say
}

// on lists what of it is on a Node, whatever its value there. // I21
func (s saved) on(n *corev1.Node) (keys []string) {
	for k := range s.labels {
		if _, is := n.Labels[k]; is {
			keys = append(keys, labelKey(k))
		}
	}
	for k := range s.annotations {
		if _, is := n.Annotations[k]; is {
			keys = append(keys, annotationKey(k))
		}
	}
	for _, t := range s.taints {
		if client.HasTaint(n.Spec.Taints, t) {
			keys = append(keys, taintKey(t))
		}
	}
	if s.unschedulable && n.Spec.Unschedulable {
		keys = append(keys, cordonKey)
	}
	slices.Sort(keys)
	return keys
}

// change is what a live Node lacks of what was saved.
type change struct {
	labels, annotations map[string]string
	taints              []corev1.Taint // the whole new list; nil = unchanged
	cordon              bool
}

func (c change) empty() bool {
	return len(c.labels) == 0 && len(c.annotations) == 0 && c.taints == nil && !c.cordon
}

// parts returns the change in pieces that can be written independently.
func (c change) parts() []change {
	var list []change
	for _, part := range []change{{taints: c.taints, cordon: c.cordon}, {labels: c.labels}, {annotations: c.annotations}} {
		if !part.empty() {
			list = append(list, part)
		}
	}
	return list
}

// missing compares the live Node with what was saved. An existing value always
// takes precedence. In taint mode it also removes our own taint. An empty result
// means that the restore is complete. // I21
func missing(s saved, n *corev1.Node, isolation remediate.Isolation) change {
	c := change{labels: missingKeys(s.labels, n.Labels), annotations: missingKeys(s.annotations, n.Annotations)}
	c.cordon = s.unschedulable && !n.Spec.Unschedulable
	c.taints = missingTaints(s.taints, n.Spec.Taints, isolation)
	return c
}

// missingTaints returns the whole list of taints that the Node should have; nil
// if it has it.
func missingTaints(want, have []corev1.Taint, isolation remediate.Isolation) []corev1.Taint {
	list, changed := []corev1.Taint{}, false // not nil: an empty list may be a change
	for _, t := range have {
		if isolation == remediate.IsolateTaint && t.MatchTaint(&client.OutOfService) {
			changed = true
			continue
		}
		list = append(list, t)
	}
	for _, t := range want {
		if !client.HasTaint(list, t) {
			list, changed = append(list, t), true
		}
	}
	if !changed {
		return nil
	}
	return list
}

func missingKeys(want, have map[string]string) map[string]string {
	out := map[string]string{}
	for k, v := range want {
		if _, ok := have[k]; !ok {
			out[k] = v
		}
	}
	return out
}

// patch is the change as a JSON merge patch, with the UID and resourceVersion of
// the Node as preconditions. // I2
func (c change) patch(n *corev1.Node) ([]byte, error) {
	meta := map[string]any{"uid": n.UID, "resourceVersion": n.ResourceVersion}
	if len(c.labels) > 0 {
		meta["labels"] = c.labels
	}
	if len(c.annotations) > 0 {
		meta["annotations"] = c.annotations
	}
	spec := map[string]any{}
	if c.taints != nil {
		spec["taints"] = c.taints
	}
	if c.cordon {
		spec["unschedulable"] = true
	}
	return json.Marshal(map[string]any{"metadata": meta, "spec": spec})
}

// Restored compares the live Node of a run with its backups: which saved keys are on it, and whether
// nothing is missing. // I21
func (w *Runs) Restored(run remediate.Run, backups [][]byte, live *corev1.Node) (readBack []string, all bool, err error) {
	s, err := mergeBackups(backups, run.Restored, live.UID, w.never)
	if err != nil {
		return nil, false, err
	}
	return s.on(live), missing(s, live, run.Isolation).empty(), nil
}

// Restore gives the new Node what the old one had. A conflict is an error, remediate.ErrChanged; the
// next step finds what is still missing. It returns the saved keys that an answer of
// the API server showed on the Node, also beside an error: their owner may take them
// off before the next look. // I21
func (w *Runs) Restore(ctx context.Context, run remediate.Run, backups [][]byte) (readBack []string, err error) {
	cl := w.servers.Work.API()
	n, err := nodeAgain(ctx, cl, run.Target.Node)
	if err != nil {
		return nil, fmt.Errorf("restore Node %s: %w", run.Target.Node, err)
	}
	if string(n.UID) != run.NewNodeUID {
		return nil, fmt.Errorf("restore Node %s: its UID is not that of the Node that registered", run.Target.Node)
	}
	s, err := mergeBackups(backups, run.Restored, n.UID, w.never)
	if err != nil {
		return nil, err
	}
	if ch := missing(s, n, run.Isolation); !ch.empty() {
		n, err = restoreNode(ctx, cl, n, ch)
	}
	if apierrors.IsConflict(err) {
		err = changedMeanwhile{err}
	}
	return s.on(n), err
}

// changedMeanwhile is the error of a conflict.
type changedMeanwhile struct{ error }

// Is makes it a remediate.ErrChanged.
func (changedMeanwhile) Is(target error) bool { return target == remediate.ErrChanged }

func (c changedMeanwhile) Unwrap() error { return c.error }

// restoreNode writes a change, and returns the Node as the last answer showed it.
func restoreNode(ctx context.Context, cl *client.Conn, n *corev1.Node, ch change) (*corev1.Node, error) {
	changed, err := patchNode(ctx, cl, n, ch, "restore")
	switch {
	case err == nil:
		return changed, nil
	case mayWriteParts(ctx, err):
		n, partly := restoreParts(ctx, cl, n, ch.parts())
		if apierrors.IsConflict(partly) { // the kubelet has changed the Node meanwhile: what the API server has refused says more
			return n, err
		}
		return n, partly
	}
	return n, err
}

// restoreParts writes the parts of a change one by one after the whole was
// refused or timed out. An admission webhook that forbids one annotation, or does
// not answer, must not cost the Node its labels.
func restoreParts(ctx context.Context, cl *client.Conn, n *corev1.Node, parts []change) (*corev1.Node, error) {
	var errs []error
	for _, part := range parts {
		changed, err := patchNode(ctx, cl, n, part, "restore")
		errs = append(errs, err)
		if err == nil {
			n = changed
		}
	}
	return n, errors.Join(errs...)
}

// mayWriteParts reports whether to try the parts of a write after the whole
// failed: the API server or a webhook refused it, or did not finish in time. ctx
// is that of all parts.
func mayWriteParts(ctx context.Context, err error) bool {
	return client.IsRefused(err) || apierrors.IsInternalError(err) || apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) ||
		errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil
}

// What the kubelet or a controller writes on a Node by itself is not restored: it
// describes the old Node, and its owner describes the new one. These lists are all
// that fenced knows of it; the configuration adds to them (clusters[].neverRestore). managedFields,
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
	return matches(key, more, ownedKeys, networkKeys, networkPrefixes, stateKeys, client.MarkKeys)
}

func (more neverRestore) taint(key string) bool { return matches(key, more, stateTaints) }

// matches says whether a key is one of some lists. In these * stands for any text without a slash.
func matches(key string, lists ...[]string) bool {
	return slices.ContainsFunc(slices.Concat(lists...), func(pattern string) bool {
		is, err := path.Match(pattern, key)
		return is && err == nil
	})
}
