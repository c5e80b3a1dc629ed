package k8swatch

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/fenced/fenced/internal/policy"
)

// convertNode keeps of a Node what policy and the guards need. Nodes come typed
// over protobuf, which is eight times cheaper than the decoder of manifests.
func convertNode(obj any) (any, error) {
	n, ok := obj.(*corev1.Node)
	if !ok {
		return nil, fmt.Errorf("a %T came from the watch on Nodes", obj)
	}
	return policyNode(n), nil
}

func policyNode(n *corev1.Node) *policy.Node {
	out := &policy.Node{
		Name: n.Name, UID: string(n.UID), ResourceVersion: n.ResourceVersion, Labels: internMap(n.Labels), Annotations: internMap(n.Annotations),
		Unschedulable: n.Spec.Unschedulable, Deleting: n.DeletionTimestamp != nil, ProviderID: n.Spec.ProviderID,
		SystemUUID: n.Status.NodeInfo.SystemUUID, BootID: n.Status.NodeInfo.BootID, MachineID: n.Status.NodeInfo.MachineID,
		ControlPlane: policy.ControlPlaneNode(n.Labels),
	}
	out.Conditions = make([]policy.Condition, 0, len(n.Status.Conditions))
	for _, c := range n.Status.Conditions {
		out.Conditions = append(out.Conditions, policy.Condition{
			Type: intern(string(c.Type)), Status: intern(string(c.Status)), LastTransition: c.LastTransitionTime.Time,
		})
	}
	for _, t := range n.Spec.Taints {
		out.Taints = append(out.Taints, policy.Taint{Key: intern(t.Key), Value: intern(t.Value), Effect: intern(string(t.Effect))})
	}
	for _, a := range n.Status.Addresses {
		out.Addresses = append(out.Addresses, a.Address)
	}
	return out
}

// convertPod keeps of an etcd member's Pod where it runs and whether it serves.
func convertPod(obj any) (any, error) {
	p, ok := obj.(*corev1.Pod)
	if !ok {
		return nil, fmt.Errorf("a %T came from the watch on Pods", obj)
	}
	return etcdPod(p), nil
}

func etcdPod(p *corev1.Pod) *policy.EtcdPod {
	out := &policy.EtcdPod{Namespace: p.Namespace, Name: p.Name, Node: p.Spec.NodeName}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			out.Ready = c.Status == corev1.ConditionTrue
		}
	}
	return out
}

// convertMachine makes the converter of Machines from one of manifest's decoders.
func convertMachine(decode func(map[string]any) (policy.Machine, error)) func(any) (any, error) {
	return decoded(func(fields map[string]any) (policy.Machine, error) {
		m, err := decode(fields)
		m.APIVersion, m.Phase, m.Namespace = intern(m.APIVersion), intern(m.Phase), intern(m.Namespace)
		m.Labels, m.Annotations = internMap(m.Labels), internMap(m.Annotations)
		for i := range m.Conditions {
			m.Conditions[i].Type, m.Conditions[i].Status = intern(m.Conditions[i].Type), intern(m.Conditions[i].Status)
		}
		return m, err
	})
}
