package rig

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// register creates the Node, or takes over the Node with its name. A kubelet that finds its Node keeps
// the UID, labels, taints and cordon. As in a real cluster, the API server (admission) adds the taint
// not-ready, and the controller manager removes it.
func (b *boot) register(ctx context.Context) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name:        b.opts.NodeName,
		Labels:      copied(b.opts.Labels),
		Annotations: map[string]string{"volumes.kubernetes.io/controller-managed-attach-detach": "true"},
	}}
	maps.Copy(node.Annotations, b.opts.Annotations)
	maps.Copy(node.Labels, map[string]string{
		corev1.LabelHostname: b.opts.NodeName, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
		"beta.kubernetes.io/os": "linux", "beta.kubernetes.io/arch": "amd64",
	})
	node.Spec.ProviderID = b.opts.ProviderID
	b.fillStatus(&node.Status, corev1.ConditionFalse, "container runtime network not ready")
	_, err := b.client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return b.report(ctx, corev1.ConditionFalse, "container runtime network not ready")
	}
	if err != nil {
		return fmt.Errorf("register Node %s: %w", b.opts.NodeName, err)
	}
	return nil
}

// reportReady writes the periodic status. It overwrites what the controller manager wrote while
// heartbeats were missing. If the Node is gone, it does nothing.
func (b *boot) reportReady(ctx context.Context) error {
	return b.report(ctx, corev1.ConditionTrue, "kubelet is posting ready status")
}

func (b *boot) report(ctx context.Context, ready corev1.ConditionStatus, message string) error {
	nodes := b.client.CoreV1().Nodes()
	node, err := nodes.Get(ctx, b.opts.NodeName, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get Node %s: %w", b.opts.NodeName, err)
	}
	before := node.Status.DeepCopy()
	b.fillStatus(&node.Status, ready, message)
	if equality.Semantic.DeepEqual(before, &node.Status) {
		return nil // like a kubelet, which then posts only every 5 minutes
	}
	if _, err := nodes.UpdateStatus(ctx, node, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("report the status of Node %s: %w", b.opts.NodeName, err)
	}
	return nil
}

// fillStatus sets the fields that a kubelet knows, and leaves the others.
func (b *boot) fillStatus(s *corev1.NodeStatus, ready corev1.ConditionStatus, message string) {
	s.Capacity = corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("8"), corev1.ResourceMemory: resource.MustParse("32Gi"),
		corev1.ResourcePods: resource.MustParse("110"),
	}
	s.Allocatable = s.Capacity.DeepCopy()
	s.Addresses = []corev1.NodeAddress{
		{Type: corev1.NodeInternalIP, Address: b.opts.Address}, {Type: corev1.NodeHostName, Address: b.opts.NodeName},
	}
	s.NodeInfo = corev1.NodeSystemInfo{
		MachineID: machineID(b.opts), SystemUUID: b.opts.SystemUUID, BootID: b.bootID,
		KernelVersion: "6.12.0", OSImage: "Simulated Linux", ContainerRuntimeVersion: "cri-o://1.36.0",
		KubeletVersion: kubernetesVersion, OperatingSystem: "linux", Architecture: "amd64",
	}
	setCondition(s, corev1.NodeReady, ready, "KubeletReady", message)
	for kind, reason := range map[corev1.NodeConditionType]string{
		corev1.NodeMemoryPressure: "KubeletHasSufficientMemory",
		corev1.NodeDiskPressure:   "KubeletHasNoDiskPressure",
		corev1.NodePIDPressure:    "KubeletHasSufficientPID",
	} {
		setCondition(s, kind, corev1.ConditionFalse, reason, "kubelet has enough of it")
	}
}

// setCondition changes lastTransitionTime only if the status changes: health checks count from it.
func setCondition(s *corev1.NodeStatus, kind corev1.NodeConditionType, status corev1.ConditionStatus, reason, message string) {
	now := metav1.Now()
	if kind == corev1.NodeReady && status != corev1.ConditionTrue {
		reason = "KubeletNotReady"
	}
	for i := range s.Conditions {
		c := &s.Conditions[i]
		if c.Type != kind {
			continue
		}
		if c.Status == status {
			return
		}
		*c = corev1.NodeCondition{
			Type: kind, Status: status, Reason: reason, Message: message, LastHeartbeatTime: now, LastTransitionTime: now,
		}
		return
	}
	s.Conditions = append(s.Conditions, corev1.NodeCondition{
		Type: kind, Status: status, Reason: reason, Message: message, LastHeartbeatTime: now, LastTransitionTime: now,
	})
}
