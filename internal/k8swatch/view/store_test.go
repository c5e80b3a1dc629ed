package view

import (
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"pgregory.net/rapid"

	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/k8swatch/client"
	"github.com/fenced/fenced/internal/k8swatch/k8stest"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/test/law"
	"github.com/fenced/fenced/test/must"
)

// offline is a Cache that nobody connected: its stores are filled by hand.
func offline(namespaces ...string) *Cache {
	return newCache(Config{Namespaces: namespaces}, zap.NewNop())
}

func (c *Cache) allStores() []*store {
	var all []*store
	for _, s := range c.sides() {
		all = append(all, s.watched()...)
	}
	return all
}

// storeOf is the first store of a kind: OpenShift's of those that both API families have.
func (c *Cache) storeOf(kind string) *store {
	for _, s := range c.allStores() {
		if s.Kind == kind {
			return s
		}
	}
	return nil
}

func told(c *Cache) bool {
	select {
	case <-c.Changed():
		return true
	default:
		return false
	}
}

func apiNode(name, version string, ready corev1.ConditionStatus) *corev1.Node {
	n := &corev1.Node{}
	n.Name, n.UID, n.ResourceVersion = name, "uid-"+"1", version
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}
	return n
}

func apiObject(kind, name, version string, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "machine.openshift.io/v1beta1", "kind": kind, "spec": spec,
		"metadata": map[string]any{"namespace": "ns", "name": name, "uid": "u-" + name, "resourceVersion": version},
	}}
}

func TestOnlyNewsIsTold(t *testing.T) {
	c := offline()
	s := c.storeOf("Node")
	require.NoError(t, s.Add(apiNode("a", "1", "True")))
	assert.True(t, told(c), "a new Node")
	require.NoError(t, s.Update(apiNode("a", "2", "True")))
	assert.False(t, told(c), "a status that was only confirmed")
	require.NoError(t, s.Update(apiNode("a", "3", "Unknown")))
	assert.True(t, told(c), "another condition")
	assert.Equal(t, "Unknown", k8stest.Seen(c).Node("a").Conditions[0].Condition().Status)
	require.NoError(t, s.Delete(apiNode("a", "4", "Unknown")))
	assert.True(t, told(c), "a deletion")
	assert.Equal(t, []policy.Change{{ID: policy.ObjectID{APIVersion: "v1", Kind: "Node", Name: "a"}}}, c.Changes())
	assert.Empty(t, c.Changes(), "each is given once")
}

func TestUndecodableIsNeitherJudgedNorAbsent(t *testing.T) {
	c := offline()
	machines := c.storeOf("Machine")
	require.NoError(t, machines.Add(apiObject("Machine", "good", "1", nil)))
	bad := apiObject("Machine", "bad", "1", map[string]any{"providerID": int64(7)})
	require.NoError(t, machines.Add(bad))
	id := policy.ObjectID{APIVersion: policy.OpenShiftMachineAPI, Kind: "Machine", Namespace: "ns", Name: "bad"}
	v := k8stest.Seen(c)
	require.NotNil(t, v.Machine("good"))
	require.Nil(t, v[id].Value)
	assert.ErrorContains(t, v[id].Err, "providerID")

	told(c)
	require.NoError(t, machines.Update(bad))
	assert.False(t, told(c), "the same mistake again")
	require.NoError(t, machines.Update(apiObject("Machine", "bad", "2", nil)))
	assert.True(t, told(c), "a mistake mended")
	assert.NotNil(t, k8stest.Seen(c).Machine("bad"))
}

func TestInvalidCheckHidesNoOther(t *testing.T) { // I18
	c := offline()
	s := c.storeOf("MachineHealthCheck")
	require.NoError(t, s.Replace([]any{
		apiObject("MachineHealthCheck", "bad", "1", map[string]any{"nodeStartupTimeout": "foo10m"}),
		apiObject("MachineHealthCheck", "good", "1", map[string]any{"nodeStartupTimeout": "5m"}),
	}, "9"))
	v := k8stest.Seen(c)
	assert.NotEmpty(t, v.Check("bad").Invalid)
	assert.Empty(t, v.Check("good").Invalid)
}

func TestKindThatIsNotInstalledIsEmpty(t *testing.T) {
	c := offline()
	s := c.storeOf("BareMetalHost")
	require.NoError(t, s.Replace([]any{apiObject("BareMetalHost", "h", "1", nil)}, "3"))
	require.Len(t, k8stest.Seen(c).Hosts(), 1)
	told(c)
	s.recordNotInstalled(time.Now())
	assert.True(t, told(c))
	assert.Empty(t, k8stest.Seen(c).Hosts())
	s.recordNotInstalled(time.Now())
	assert.False(t, told(c), "still not installed")
}

func TestNamespacesHaveTheirOwnStores(t *testing.T) {
	c := offline("a", "b")
	assert.Len(t, c.allStores(), 6+2*6, "what knows no namespace once, the other kinds per namespace")
}

func TestListAsAStreamIsNotWatchedForLong(t *testing.T) { // I16
	s := offline().storeOf("Node")
	w := watch.NewFake()
	s.streamed(w)
	require.NoError(t, s.Replace(nil, "5"))
	select {
	case <-w.ResultChan():
	case <-time.After(watchBeyond + time.Minute):
		t.Fatal("the streamed list goes on as a watch without bookmarks")
	}
	assert.True(t, w.IsStopped())
}

// Whatever comes and goes, and whenever somebody asks: the changes add up to
// what the store was last told, and each is told only if it is one.
func TestChangesAddUp(t *testing.T) {
	law.Check(t, func(t *rapid.T) {
		c := offline()
		s, told := c.storeOf("Machine"), k8stest.Objects{}
		want := map[string]string{} // name -> phase
		object := func(name string) *unstructured.Unstructured {
			u := apiObject("Machine", name, fmt.Sprint(rapid.IntRange(1, 1000).Draw(t, "version")), nil)
			want[name] = rapid.SampledFrom([]string{"Running", "Failed"}).Draw(t, "phase")
			u.Object["status"] = map[string]any{"phase": want[name]}
			return u
		}
		names := rapid.SampledFrom([]string{"a", "b", "c", "d"})
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			switch rapid.SampledFrom([]string{"put", "delete", "replace", "ask"}).Draw(t, "step") {
			case "put":
				require.NoError(t, s.Update(object(names.Draw(t, "name"))))
			case "delete":
				name := names.Draw(t, "name")
				require.NoError(t, s.Delete(object(name)))
				delete(want, name)
			case "replace":
				clear(want)
				var list []any
				for _, name := range rapid.SliceOfDistinct(names, rapid.ID[string]).Draw(t, "names") {
					list = append(list, object(name))
				}
				require.NoError(t, s.Replace(list, "9"))
			case "ask":
				require.True(t, told.Take(c.Changes()), "removals come first")
			}
		}
		require.True(t, told.Take(c.Changes()), "removals come first")
		require.Len(t, told, len(want))
		for name, phase := range want {
			assert.Equal(t, phase, told.Machine(name).Phase)
		}
		require.Empty(t, c.Changes())
	})
}

// Machines with the same labels have one map of them. A large map is the object's own: somebody who writes another one each time
// makes the daemon keep none that is gone.
func TestMapsThatRepeatAreStoredOnce(t *testing.T) {
	same := func(a, b map[string]string) bool { return reflect.ValueOf(a).Pointer() == reflect.ValueOf(b).Pointer() }
	set := func(size int) map[string]string {
		return map[string]string{"set": strings.Repeat("a", size), "zone": "b"}
	}
	first := sharedMap(set(1))
	assert.True(t, same(first, sharedMap(set(1))))
	assert.Equal(t, set(2), sharedMap(set(2)))
	assert.False(t, same(first, sharedMap(set(2))))
	large := sharedMap(set(maxSharedMapSize))
	assert.Equal(t, set(maxSharedMapSize), large)
	assert.False(t, same(large, sharedMap(set(maxSharedMapSize))))
	for i := range maxSharedMaps + 1 {
		sharedMap(map[string]string{"each": fmt.Sprint(i)})
	}
	assert.LessOrEqual(t, len(sharedMaps.maps), maxSharedMaps)
}

// A list at another version of the kind replaces what was read at the old one.
func TestMoveToAnotherVersion(t *testing.T) {
	c := offline()
	s := clusterMachines(c)
	at := func(version string) *unstructured.Unstructured {
		u := apiObject("Machine", "m", "1", nil)
		u.SetAPIVersion("cluster.x-k8s.io/" + version)
		return u
	}
	require.NoError(t, s.Replace([]any{at("v1beta1")}, "1"))
	require.Equal(t, policy.ClusterAPIV1Beta1, k8stest.Seen(c).Machine("m").APIVersion)
	require.NoError(t, s.Replace([]any{at("v1beta2")}, "2"))
	changes := c.Changes()
	require.Len(t, changes, 2)
	assert.Equal(t, policy.Change{ID: policy.ObjectID{APIVersion: policy.ClusterAPIV1Beta1, Kind: "Machine", Namespace: "ns", Name: "m"}}, changes[0])
	assert.Equal(t, policy.ClusterAPIV1Beta2, changes[1].ID.APIVersion)
}

// Two Clusters on one API: which of their Machines are the Nodes that we see?
func TestSeveralClustersAreNotJudged(t *testing.T) {
	c := offline()
	store := func(kind string) *store {
		for _, s := range c.allStores() {
			if s.Group == client.ClusterGroup && s.Kind == kind {
				return s
			}
		}
		return nil
	}
	object := func(kind, name string, spec map[string]any) *unstructured.Unstructured {
		u := apiObject(kind, name, "1", spec)
		u.SetAPIVersion(policy.ClusterAPIV1Beta2)
		return u
	}
	check := map[string]any{"clusterName": "blue", "selector": map[string]any{"matchLabels": map[string]any{"a": "b"}}}
	require.NoError(t, store("Machine").Add(object("Machine", "m", nil)))
	require.NoError(t, store("MachineHealthCheck").Add(object("MachineHealthCheck", "k", check)))
	require.NoError(t, store("Cluster").Add(object("Cluster", "blue", nil)))
	require.NoError(t, c.storeOf("Machine").Add(apiObject("Machine", "openshift", "1", nil)))
	assert.NotNil(t, k8stest.Seen(c).Machine("m"))
	assert.Empty(t, k8stest.Seen(c).Check("k").Invalid)

	require.NoError(t, store("Cluster").Add(object("Cluster", "green", nil)))
	v := k8stest.Seen(c)
	assert.Nil(t, v.Machine("m"))
	assert.ErrorContains(t, v[policy.ObjectID{APIVersion: policy.ClusterAPIV1Beta2, Kind: "Machine", Namespace: "ns", Name: "m"}].Err, "management.clusterName")
	assert.Contains(t, v.Check("k").Invalid, "ns/blue and ns/green")
	assert.NotNil(t, v.Machine("openshift"), "whose Nodes those are is no question")
	require.NoError(t, store("Machine").Add(object("Machine", "late", nil)))
	assert.Nil(t, k8stest.Seen(c).Machine("late"))

	require.NoError(t, store("Cluster").Delete(object("Cluster", "green", nil)))
	assert.NotNil(t, k8stest.Seen(c).Machine("m"))
	assert.NotNil(t, k8stest.Seen(c).Machine("late"))
	assert.Empty(t, k8stest.Seen(c).Check("k").Invalid)
}

// A mark changes nothing that policy reads, and goes with its object.
func TestMarkIsNoNews(t *testing.T) {
	c := offline()
	nodes, machines := c.storeOf("Node"), c.storeOf("Machine")
	require.NoError(t, nodes.Add(apiNode("a", "1", "True")))
	require.NoError(t, machines.Add(apiObject("Machine", "m", "1", nil)))
	require.Empty(t, c.Marked())
	c.Changes()
	told(c)

	marked := apiNode("a", "2", "True")
	marked.Annotations = map[string]string{client.RunAnnotation: "r-1", client.StepAnnotation: "PowerOn", client.InstanceAnnotation: strings.Repeat("f", 1000)}
	require.NoError(t, nodes.Update(marked))
	machine := apiObject("Machine", "m", "2", nil)
	machine.SetAnnotations(map[string]string{client.RunAnnotation: "r-1"})
	require.NoError(t, machines.Update(machine))
	assert.False(t, told(c))
	assert.Empty(t, c.Changes())
	require.ElementsMatch(t, []event.RunMark{
		{APIVersion: "v1", Kind: "Node", Name: "a", UID: "uid-1", Run: "r-1", Step: "PowerOn", Instance: strings.Repeat("f", client.MaxMarkValue)},
		{APIVersion: "machine.openshift.io/v1beta1", Kind: "Machine", Namespace: "ns", Name: "m", UID: "u-m", Run: "r-1"},
	}, c.Marked())

	require.NoError(t, nodes.Delete(marked))
	require.NoError(t, machines.Replace(nil, "9"))
	assert.Empty(t, c.Marked())
	require.NoError(t, nodes.Replace([]any{marked}, "9"))
	require.Len(t, c.Marked(), 1)
	require.NoError(t, nodes.Replace([]any{apiNode("a", "10", "True")}, "10"))
	assert.Empty(t, c.Marked())
}

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
	data := must.Do(n.Marshal())(tb)
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

// TestListIsNotBehindTheView: what the view has seen, a list of rivals has seen.
func TestListIsNotBehindTheView(t *testing.T) {
	now := time.Now()
	s := &side{Server: &client.Server{}, stores: []*store{
		{source: source{Resource: client.Resource{Kind: "MachineHealthCheck", Group: "a.io"}, namespace: "ns"}, synced: true, proven: now, reached: 7},
		{source: source{Resource: client.Resource{Kind: "MachineHealthCheck", Group: "b.io"}}, synced: true, proven: now, reached: 8},
		{source: source{Resource: client.Resource{Kind: "Machine", Group: "a.io"}}, synced: true, proven: now, reached: 9},
		{source: source{Resource: client.Resource{Kind: "MachineHealthCheck", Group: "c.io"}}},
		{source: source{Resource: client.Resource{Kind: "MachineHealthCheck", Group: "d.io"}}, synced: true, proven: now.Add(-61 * time.Second), reached: 10},
	}}
	c := &Cache{work: s, manage: s}
	o := c.NotOlder(s.Server, "MachineHealthCheck", "a.io", "ns")
	assert.Equal(t, "7", o.ResourceVersion)
	assert.Equal(t, metav1.ResourceVersionMatchNotOlderThan, o.ResourceVersionMatch)
	assert.Equal(t, "8", c.NotOlder(s.Server, "MachineHealthCheck", "b.io", "ns").ResourceVersion, "a store of all namespaces")
	assert.Empty(t, c.NotOlder(s.Server, "MachineHealthCheck", "a.io", "other").ResourceVersion, "nothing is known of it: as new as can be")
	assert.Empty(t, c.NotOlder(s.Server, "MachineHealthCheck", "c.io", "ns").ResourceVersion, "there is no view yet")
	assert.Empty(t, c.NotOlder(s.Server, "MachineHealthCheck", "d.io", "ns").ResourceVersion, "the watch stands still, and so may the API server's cache")
}

// An OpenShift Machine is of the cluster itself; a host of the same name may be on
// the management API, and is another one.
func TestHubHasNoHostsOfOpenShiftMachines(t *testing.T) {
	host, machine := apiObject("BareMetalHost", "h", "1", nil), apiObject("Machine", "m", "1", map[string]any{"providerID": "baremetalhost:///ns/h"})
	host.SetAPIVersion("metal3.io/v1alpha1")
	for manage, found := range map[string]bool{"": true, "manage": false} {
		c, l := newCache(Config{Kubeconfig: "work", Management: ManagementConfig{Kubeconfig: manage}}, zap.NewNop()), policy.NewLedger(policy.Rules{})
		require.NoError(t, c.storeOf("BareMetalHost").Add(host.DeepCopy()))
		require.NoError(t, c.storeOf("Machine").Add(machine.DeepCopy()))
		l.Apply(time.Now(), c.Changes()...)
		require.True(t, l.MachineIn(policy.OpenShiftMachineAPI, "ns", "m").NamesHost())
		_, err := l.HostOf(l.MachineIn(policy.OpenShiftMachineAPI, "ns", "m"))
		assert.Equal(t, found, err == nil, err)
	}
}

// The API server sends the Pods of the control plane, and no others: a cluster may have millions.
func TestOnlyPodsOfTheControlPlaneAreWatched(t *testing.T) {
	watched := map[string]*store{}
	for _, s := range offline().allStores() {
		if s.Kind == "Pod" {
			watched[s.namespace] = s
		}
	}
	require.Len(t, watched, len(policy.PodSpaces))
	for _, of := range policy.PodSpaces {
		s := watched[of.Namespace]
		selector := must.Do(labels.Parse(s.labels))(t)
		assert.False(t, selector.Matches(labels.Set{of.Label: "x"}), s.labels)
		assert.False(t, selector.Matches(labels.Set{}), s.labels)
		for _, value := range of.Values() {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: of.Namespace, Name: "p", Labels: labels.Set{of.Label: value}}, Spec: corev1.PodSpec{NodeName: "n"}}
			assert.True(t, selector.Matches(labels.Set(pod.Labels)), s.labels)
			assert.Equal(t, &policy.Pod{Namespace: of.Namespace, Name: "p", Node: "n", Member: value == of.Etcd}, must.Do(s.convert(pod))(t))
		}
	}
}

func TestOneText(t *testing.T) {
	long := strings.Repeat("0123456789", 100)
	for _, want := range [][]string{{}, {""}, {"", "", "a"}, {"ns/n-1", "n-1", "uid", "uid", ""}, {"a", "ab", "abc"}, {long, "56789012", "x" + long}} {
		got, parts := slices.Clone(want), []*string{}
		for i := range got {
			parts = append(parts, &got[i])
		}
		oneText(parts...)
		assert.Equal(t, want, got)
	}
	one, part := "openshift-machine-api/n-1", strings.Clone("n-1")
	oneText(&one, &part)
	assert.Same(t, unsafe.StringData(one[len("openshift-machine-api/"):]), unsafe.StringData(part), "what another text contains is kept once")

	huge, alone := strings.Repeat("a", maxOneText), strings.Clone("a")
	own := unsafe.StringData(alone)
	oneText(&huge, &alone)
	assert.Same(t, own, unsafe.StringData(alone), "a kubelet may write any length")
}

// While one kind cannot be read since the start, nobody reads the changes of the others: what comes and goes meanwhile is not kept.
func TestWhatNobodyWasToldOfIsForgotten(t *testing.T) {
	c := offline()
	machines := c.storeOf("Machine")
	stays := apiObject("Machine", "stays", "1", nil)
	require.NoError(t, machines.Add(stays))
	for i := range 100 {
		m := apiObject("Machine", fmt.Sprint("m-", i), "1", nil)
		require.NoError(t, machines.Add(m))
		require.NoError(t, machines.Delete(m))
	}
	assert.Len(t, c.journal.pending, 1)
	require.Len(t, c.Changes(), 1)
	require.NoError(t, machines.Delete(stays))
	list := c.Changes()
	require.Len(t, list, 1, "somebody was told of it")
	assert.Nil(t, list[0].Value)
}
