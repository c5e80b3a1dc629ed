package k8swatch

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/fenced/fenced/internal/policy"
)

// offline is a Cluster that nobody connected: its stores are filled by hand.
func offline(namespaces ...string) *Cluster {
	return newCluster(Config{Namespaces: namespaces}, zap.NewNop())
}

func (c *Cluster) allStores() []*store {
	var all []*store
	for _, s := range c.sides() {
		all = append(all, s.watched()...)
	}
	return all
}

// storeOf is the first store of a kind: OpenShift's of those that both API families have.
func (c *Cluster) storeOf(kind string) *store {
	for _, s := range c.allStores() {
		if s.Kind == kind {
			return s
		}
	}
	return nil
}

func told(c *Cluster) bool {
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
	s.noteNotInstalled(time.Now())
	assert.True(t, told(c))
	assert.Empty(t, seen(c).hosts())
	s.noteNotInstalled(time.Now())
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
