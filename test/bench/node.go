package main

import (
	"crypto/rand"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// images is what makes up most of a Node: a kubelet reports 50.
const images = 50

// newNode is a Node as large as a real one, about 12 KB as JSON before the API
// server adds its own. Its addresses are from the range for benchmarks: never
// those of this machine, which fenced would refuse to fence.
func newNode(name, uuid string, number int) *corev1.Node {
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: nodeLabels(name), Annotations: map[string]string{
			"volumes.kubernetes.io/controller-managed-attach-detach": "true",
			"machine.openshift.io/machine":                           "openshift-machine-api/" + name,
			"machineconfiguration.openshift.io/currentConfig":        "rendered-worker-0123456789abcdef0123456789abcdef",
			"machineconfiguration.openshift.io/desiredConfig":        "rendered-worker-0123456789abcdef0123456789abcdef",
			"machineconfiguration.openshift.io/state":                "Done",
		}},
		Status: corev1.NodeStatus{
			Capacity: capacity(), Allocatable: capacity(),
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("198.18.%d.%d", number/250, 1+number%250)},
				{Type: corev1.NodeHostName, Address: name},
			},
			NodeInfo: corev1.NodeSystemInfo{
				MachineID: uuid, SystemUUID: uuid, BootID: newUUID(),
				KernelVersion: "6.12.0", OSImage: "Simulated Linux", ContainerRuntimeVersion: "cri-o://1.36.0",
				KubeletVersion: "v1.36.3", OperatingSystem: "linux", Architecture: "amd64",
			},
		},
	}
	since := metav1.NewTime(time.Now().Add(-time.Hour))
	for _, kind := range []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure} {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: kind, Status: corev1.ConditionFalse,
			Reason: "KubeletHasSufficient", Message: "kubelet has enough of it", LastHeartbeatTime: since, LastTransitionTime: since})
	}
	n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue,
		Reason: "KubeletReady", Message: "kubelet is posting ready status", LastHeartbeatTime: since, LastTransitionTime: since})
	for i := range images {
		n.Status.Images = append(n.Status.Images, corev1.ContainerImage{SizeBytes: int64(i+1) << 20, Names: []string{
			fmt.Sprintf("registry.example.com/platform/component-%02d@sha256:%064x", i, i),
			fmt.Sprintf("registry.example.com/platform/component-%02d:v4.20.%d", i, i),
		}})
	}
	return n
}

func nodeLabels(name string) map[string]string {
	return map[string]string{
		corev1.LabelHostname: name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
		"beta.kubernetes.io/os": "linux", "beta.kubernetes.io/arch": "amd64",
		"node-role.kubernetes.io/worker": "", "node.openshift.io/os_id": "rhel",
	}
}

func capacity() corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("512Gi"),
		corev1.ResourcePods: resource.MustParse("250"), corev1.ResourceEphemeralStorage: resource.MustParse("900Gi"),
	}
}

// heartbeat is the update that says nothing but that the kubelet lives.
func heartbeat(n *corev1.Node, now time.Time) {
	for i := range n.Status.Conditions {
		n.Status.Conditions[i].LastHeartbeatTime = metav1.NewTime(now)
	}
}

// turn changes a condition that no check lists: its status, its clock and its
// message. It reaches whoever judges and changes no verdict.
func turn(n *corev1.Node, now time.Time) {
	heartbeat(n, now)
	for i := range n.Status.Conditions {
		c := &n.Status.Conditions[i]
		if c.Type != corev1.NodeMemoryPressure {
			continue
		}
		if c.Status == corev1.ConditionTrue {
			c.Status, c.Reason, c.Message = corev1.ConditionFalse, "KubeletHasSufficientMemory", "kubelet has enough memory"
		} else {
			c.Status, c.Reason, c.Message = corev1.ConditionTrue, "KubeletHasInsufficientMemory", "kubelet has little memory left"
		}
		c.LastTransitionTime = metav1.NewTime(now)
	}
}

// fail makes a Node's Ready Unknown since a whole second, as the controller
// manager does when heartbeats stop.
func fail(n *corev1.Node, since time.Time) {
	for i := range n.Status.Conditions {
		c := &n.Status.Conditions[i]
		if c.Type == corev1.NodeReady {
			c.Status, c.Reason, c.Message = corev1.ConditionUnknown, "NodeStatusUnknown", "Kubelet stopped posting node status."
			c.LastTransitionTime = metav1.NewTime(since)
		}
	}
}

func newUUID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails, by its documentation
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
