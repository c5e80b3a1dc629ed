package k8swatch

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/k8swatch/client"
)

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
