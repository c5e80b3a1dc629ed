package view

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"pgregory.net/rapid"

	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/k8swatch/client"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/test/law"
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
	assert.Equal(t, "Unknown", seen(c).node("a").Conditions[0].Status)
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
	v := seen(c)
	require.NotNil(t, v.machine("good"))
	require.Nil(t, v[id].Value)
	assert.ErrorContains(t, v[id].Err, "providerID")

	told(c)
	require.NoError(t, machines.Update(bad))
	assert.False(t, told(c), "the same mistake again")
	require.NoError(t, machines.Update(apiObject("Machine", "bad", "2", nil)))
	assert.True(t, told(c), "a mistake mended")
	assert.NotNil(t, seen(c).machine("bad"))
}

func TestInvalidCheckHidesNoOther(t *testing.T) { // I18
	c := offline()
	s := c.storeOf("MachineHealthCheck")
	require.NoError(t, s.Replace([]any{
		apiObject("MachineHealthCheck", "bad", "1", map[string]any{"nodeStartupTimeout": "foo10m"}),
		apiObject("MachineHealthCheck", "good", "1", map[string]any{"nodeStartupTimeout": "5m"}),
	}, "9"))
	v := seen(c)
	assert.NotEmpty(t, v.check("bad").Invalid)
	assert.Empty(t, v.check("good").Invalid)
}

func TestKindThatIsNotInstalledIsEmpty(t *testing.T) {
	c := offline()
	s := c.storeOf("BareMetalHost")
	require.NoError(t, s.Replace([]any{apiObject("BareMetalHost", "h", "1", nil)}, "3"))
	require.Len(t, seen(c).hosts(), 1)
	told(c)
	s.recordNotInstalled(time.Now())
	assert.True(t, told(c))
	assert.Empty(t, seen(c).hosts())
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
		s, told := c.storeOf("Machine"), objects{}
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
				told.apply(t, c.Changes())
			}
		}
		told.apply(t, c.Changes())
		require.Len(t, told, len(want))
		for name, phase := range want {
			assert.Equal(t, phase, told.machine(name).Phase)
		}
		require.Empty(t, c.Changes())
	})
}

// apply takes changes as the engine does.
func (v objects) apply(t require.TestingT, changes []policy.Change) {
	removals := true
	for _, ch := range changes {
		gone := ch.Value == nil && ch.Err == nil
		require.True(t, removals || !gone, "removals come first")
		removals = gone
		if gone {
			delete(v, ch.ID)
		} else {
			v[ch.ID] = ch
		}
	}
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
	require.Equal(t, policy.ClusterAPIV1Beta1, seen(c).machine("m").APIVersion)
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
	assert.NotNil(t, seen(c).machine("m"))
	assert.Empty(t, seen(c).check("k").Invalid)

	require.NoError(t, store("Cluster").Add(object("Cluster", "green", nil)))
	v := seen(c)
	assert.Nil(t, v.machine("m"))
	assert.ErrorContains(t, v[policy.ObjectID{APIVersion: policy.ClusterAPIV1Beta2, Kind: "Machine", Namespace: "ns", Name: "m"}].Err, "management.clusterName")
	assert.Contains(t, v.check("k").Invalid, "ns/blue and ns/green")
	assert.NotNil(t, v.machine("openshift"), "whose Nodes those are is no question")
	require.NoError(t, store("Machine").Add(object("Machine", "late", nil)))
	assert.Nil(t, seen(c).machine("late"))

	require.NoError(t, store("Cluster").Delete(object("Cluster", "green", nil)))
	assert.NotNil(t, seen(c).machine("m"))
	assert.NotNil(t, seen(c).machine("late"))
	assert.Empty(t, seen(c).check("k").Invalid)
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
