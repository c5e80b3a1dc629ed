package view

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// bareMetalNode is as long as a Node of OpenShift is.
func bareMetalNode(i int) *corev1.Node {
	name := fmt.Sprintf("worker-%d.example.com", i)
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: types.UID(fmt.Sprintf("00000000-0000-0000-0000-%012d", i)), ResourceVersion: fmt.Sprint(i + 1),
		Labels: map[string]string{}, Annotations: map[string]string{},
	}}
	for l := range 12 {
		n.Labels[fmt.Sprintf("label.example.com/number-%d", l)] = fmt.Sprint("value-", i%10)
		n.Annotations[fmt.Sprintf("annotation.example.com/number-%d", l)] = fmt.Sprintf("a value of some length %d", i)
	}
	n.Labels[corev1.LabelHostname] = name
	n.Spec.ProviderID = "baremetalhost:///openshift-machine-api/" + name
	for _, c := range []corev1.NodeConditionType{"MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable", "Ready"} {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{
			Type: c, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now(), Message: "kubelet says so, at some length",
		})
	}
	for im := range 50 {
		n.Status.Images = append(n.Status.Images, corev1.ContainerImage{Names: []string{fmt.Sprintf("registry.example.com/image-%d@sha256:%064d", im, i)}})
	}
	n.Status.NodeInfo = corev1.NodeSystemInfo{MachineID: fmt.Sprintf("%032d", i), SystemUUID: fmt.Sprintf("11111111-0000-0000-0000-%012d", i), BootID: fmt.Sprintf("22222222-0000-0000-0000-%012d", i)}
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("10.0.%d.%d", i/256, i%256)}, {Type: corev1.NodeHostName, Address: name}}
	return n
}

// asSent is the object as it comes over the wire: with texts of its own.
func asSent(tb testing.TB, n *corev1.Node) *corev1.Node {
	data, err := n.Marshal()
	require.NoError(tb, err)
	fresh := &corev1.Node{}
	require.NoError(tb, fresh.Unmarshal(data))
	return fresh
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BenchmarkNodeKept reports the memory of one Node in the view, and the cost of
// a status update that tells nothing new.
func BenchmarkNodeKept(b *testing.B) {
	const nodes = 10_000
	c := offline()
	s := c.storeOf("Node")
	before := heap()
	for i := range nodes {
		require.NoError(b, s.Add(asSent(b, bareMetalNode(i))))
	}
	c.Changes()
	perNode := float64(heap()-before) / nodes
	again := make([]*corev1.Node, 100)
	for i := range again {
		again[i] = asSent(b, bareMetalNode(i))
	}
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		if err := s.Update(again[i%len(again)]); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(perNode, "B/Node")
	runtime.KeepAlive(c)
}
