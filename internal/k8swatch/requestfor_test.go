package k8swatch

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fenced/fenced/internal/k8swatch/client"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
)

// A request that another Machine owns, or of another namespace, is not for a Machine of the same name.
func TestRequestOfAnotherMachineOfThatName(t *testing.T) {
	target := remediate.Target{MachineAPI: policy.ClusterAPIV1Beta2, Namespace: "team-a", Machine: "worker-0", MachineUID: "a", Node: "worker-0"}
	theirs := policy.Request{Kind: "Metal3Remediation", Namespace: "team-b", Name: "worker-0", OnManagementAPI: true,
		Owners: []policy.Owner{{Kind: "Machine", Name: "worker-0", UID: "b"}}}
	assert.False(t, isFor(&theirs, target))
	theirs.NodeName, theirs.Owners = "worker-0", nil // a Node of another workload cluster
	assert.False(t, isFor(&theirs, target))
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
		st := &store{source: source{Resource: client.Resource{Kind: "Reboot", Group: "example.com", AnyVersion: true}, request: true}, gvr: schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "reboots"}}
		s.add(st)
		list, err := (&looker{c: c}).requestsNow(t.Context(), st, "ns")
		require.NoError(t, err)
		require.Len(t, list, 1)
		assert.Equal(t, apart, list[0].OnManagementAPI, s.Name)
		assert.Equal(t, !apart, isFor(&list[0], remediate.Target{Node: "worker-0"}), s.Name)
	}
}

// Only where a request may be for the target is it read. So many of one kind that a list of them has
// no end delay nothing elsewhere, and whoever is delayed is told in which namespace they are. // I22
func TestRequestsOfAnybodyDelayNobody(t *testing.T) {
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Path)
		more, name := "", "other"
		switch {
		case strings.Contains(r.URL.Path, "/namespaces/many/"):
			more = "there is more"
		case strings.Contains(r.URL.Path, "/namespaces/admins/"):
			name = "w-2"
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"kind":"RebootList","apiVersion":"example.com/v1","metadata":{"resourceVersion":"7","continue":%q},"items":[{"kind":"Reboot","apiVersion":"example.com/v1",
			"metadata":{"namespace":"x","name":%q}}]}`, more, name)
	}))
	t.Cleanup(server.Close)
	ask := func(cfg Config, namespace string) (string, error) {
		asked = nil
		cfg.Name, cfg.Kubeconfig, cfg.FreshEvery = "test", kubeconfigFor(t, server.URL), time.Second
		c, err := New(cfg, zap.NewNop())
		require.NoError(t, err)
		st := &store{source: source{Resource: client.Resource{Kind: "Reboot", Group: "example.com", AnyVersion: true}, request: true}, gvr: schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "reboots"},
			synced: true, reached: 7, proven: time.Now()}
		c.work.add(st)
		c.requests.stores[requestKind{c.work, schema.GroupKind{Group: "example.com", Kind: "Reboot"}}] = st
		l := &looker{c: c, run: remediate.Run{Target: remediate.Target{Machine: "m", Namespace: namespace, Node: "w-2"}}}
		l.look.FreshMachine = &policy.Machine{APIVersion: policy.OpenShiftMachineAPI, Namespace: namespace, Name: "m"}
		l.look.FreshNode = &policy.Node{Name: "w-2", OpenShiftMachine: namespace + "/m"}
		return l.foreignRequest(t.Context())
	}
	who, err := ask(Config{}, "prod")
	require.NoError(t, err)
	assert.Empty(t, who)
	assert.Equal(t, []string{"/apis/example.com/v1/namespaces/prod/reboots"}, asked)
	who, err = ask(Config{RequestNamespaces: []string{"admins"}}, "prod")
	require.NoError(t, err)
	assert.Contains(t, who, "asks another remediator")
	_, err = ask(Config{}, "many")
	assert.ErrorContains(t, err, "list the requests of kind Reboot in namespace many: there are more than 500")
}

func isFor(q *policy.Request, t remediate.Target) bool {
	return q.IsFor(t.Namespace, t.Machine, t.MachineUID, t.Node)
}
