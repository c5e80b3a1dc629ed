package k8swatch

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
)

// A request that another Machine owns, or of another namespace, is not for a Machine of the same name.
func TestRequestOfAnotherMachineOfThatName(t *testing.T) {
	target := remediate.Target{MachineAPI: policy.ClusterAPIV1Beta2, Namespace: "team-a", Machine: "worker-0", MachineUID: "a", Node: "worker-0"}
	theirs := policy.Request{Kind: "Metal3Remediation", Namespace: "team-b", Name: "worker-0", OnManagementAPI: true,
		Owners: []policy.Owner{{Kind: "Machine", Name: "worker-0", UID: "b"}}}
	assert.False(t, requestFor(&theirs, target))
	theirs.NodeName, theirs.Owners = "worker-0", nil // a Node of another workload cluster
	assert.False(t, requestFor(&theirs, target))
}

// A request that is read past the cache is where the watch shows it, too: one on a separate management
// API names a Node of that cluster.
func TestRequestsNowKnowTheirAPI(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprint(w, `{"kind":"RebootList","apiVersion":"example.com/v1","metadata":{"resourceVersion":"7"},"items":[{"kind":"Reboot","apiVersion":"example.com/v1",
			"metadata":{"namespace":"ns","name":"r","annotations":{"remediation.medik8s.io/node-name":"worker-0"}}}]}`)
	}))
	t.Cleanup(server.Close)
	file := kubeconfigFor(t, server.URL)
	c, err := New(Config{Name: "test", Kubeconfig: file, Management: ManagementConfig{Kubeconfig: file}, FreshEvery: time.Second}, zap.NewNop())
	require.NoError(t, err)
	for s, apart := range map[*side]bool{c.work: false, c.manage: true} {
		st := &store{source: source{kind: "Reboot", group: "example.com", request: true}, gvr: schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "reboots"}}
		s.add(st)
		list, err := (&looker{c: c}).requestsNow(t.Context(), st)
		require.NoError(t, err)
		require.Len(t, list, 1)
		assert.Equal(t, apart, list[0].OnManagementAPI, s.name)
		assert.Equal(t, !apart, requestFor(&list[0], remediate.Target{Node: "worker-0"}), s.name)
	}
}
