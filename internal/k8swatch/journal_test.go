package k8swatch

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"pgregory.net/rapid"

	"github.com/fenced/fenced/internal/k8swatch/client"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/test/law"
)

// Whatever comes and goes, and whenever somebody asks: the changes add up to
// what the store was last told, and each is told only if it is one.
func TestChangesAddUp(t *testing.T) {
	law.Check(t, func(t *rapid.T) {
		c := offline()
		s, told := c.storeOf("Machine"), view{}
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
func (v view) apply(t require.TestingT, changes []policy.Change) {
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
