package k8swatch

import (
	"context"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/k8swatch/client"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/rig/rigtest"
)

// marksOn are the marks of the view on the Node and the Machine of a target.
func marksOn(k *Cluster, t remediate.Target) map[string]event.RunMark {
	found := map[string]event.RunMark{}
	for _, m := range k.Marked() {
		if m.Name == t.Node || m.Name == t.Machine {
			found[m.Kind] = m
		}
	}
	return found
}

// A mark is written to an object, is seen in the view, causes no evaluation, and goes
// again, with the rights that the product ships.
func TestMarksComeAndGo(t *testing.T) {
	c, ctx := rigtest.Shared(t), rigtest.Context(t, 3*time.Minute)
	k := watching(t, c)
	r := bareMetal(t, c, rig.Host{}, rig.Node{Annotations: map[string]string{"kept": "yes"}})
	node := event.RunMark{APIVersion: "v1", Kind: "Node", Name: r.Target.Node, UID: r.Target.NodeUID, Run: "r-1", Step: "PowerOff", Instance: "f-1"}
	machine := node
	machine.APIVersion, machine.Kind, machine.Namespace, machine.Name, machine.UID = policy.OpenShiftMachineAPI, "Machine", r.Target.Namespace, r.Target.Machine, r.Target.MachineUID
	both := map[string]event.RunMark{"Node": node, "Machine": machine}
	for _, m := range both {
		require.NoError(t, k.Mark(ctx, m))
		require.NoError(t, k.Mark(ctx, m), "again")
	}
	until(t, time.Minute, "both marks are seen", func() bool { return assert.ObjectsAreEqual(both, marksOn(k, r.Target)) })
	n, err := c.Client().CoreV1().Nodes().Get(ctx, r.Target.Node, metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, []string{"r-1", "PowerOff", "f-1", "yes"},
		[]string{n.Annotations["fenced.io/run"], n.Annotations["fenced.io/step"], n.Annotations["fenced.io/instance"], n.Annotations["kept"]})

	other := node
	other.UID, other.Run = "00000000-0000-0000-0000-000000000000", ""
	require.Error(t, k.Mark(ctx, other), "another Node of this name")
	node.Run, machine.Run = "", ""
	require.NoError(t, k.Mark(ctx, node))
	require.NoError(t, k.Mark(ctx, machine))
	until(t, time.Minute, "no mark is seen", func() bool { return len(marksOn(k, r.Target)) == 0 })
	n, err = c.Client().CoreV1().Nodes().Get(ctx, r.Target.Node, metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, "yes", n.Annotations["kept"])
	for _, key := range client.MarkKeys {
		assert.NotContains(t, n.Annotations, key)
	}
	gone := node
	gone.Name = "no-such-node"
	require.NoError(t, k.Mark(ctx, gone), "nothing carries a mark")
}

// A mark takes two seconds at most, here and at the API server.
func TestMarkIsBounded(t *testing.T) {
	asked := make(chan string, 1)
	k := served(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // then the server notices that the client leaves
		asked <- r.URL.Query().Get("timeout")
		<-r.Context().Done()
	})
	err := k.Mark(t.Context(), event.RunMark{APIVersion: "v1", Kind: "Node", Name: "n", UID: "u", Run: "r-1"})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Equal(t, "2s", <-asked)
}
