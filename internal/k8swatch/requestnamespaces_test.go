package k8swatch

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fenced/fenced/internal/k8swatch/client"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
)

// infraMachines are no requests. Every Machine of Metal3 owns one, and a check can name the kind's template.
var infraMachines = schema.GroupVersionResource{Group: "infrastructure.cluster.x-k8s.io", Version: "v1beta1", Resource: "metal3machines"}

// checkOfInfraMachines is a check in a namespace, of medik8s without one, that says they are requests.
func checkOfInfraMachines(namespace string) *unstructured.Unstructured {
	k := checkWith(infraMachines.GroupVersion().String(), "Metal3MachineTemplate")
	k.SetNamespace(namespace)
	if namespace == "" {
		k.SetAPIVersion(policy.Medik8sAPI)
		k.SetKind(policy.NodeHealthCheckKind)
	}
	return k
}

func infraMachine(namespace, name string) *unstructured.Unstructured {
	u := apiObject("Metal3Machine", name, "1", nil)
	u.SetAPIVersion(infraMachines.GroupVersion().String())
	u.SetNamespace(namespace)
	return u
}

// What only the checks of a namespace call a request is one in that namespace, wherever fenced may read the kind.
// Whoever names it, and no longer names it, changes what is told of the others. // I2
func TestKindOfANamespacesChecksIsToldOfThatNamespace(t *testing.T) {
	c := offline()
	checks, clusterWide := c.storeOf(policy.MachineHealthCheckKind), c.storeOf(policy.NodeHealthCheckKind)
	told := func() (list []string) {
		c.adjustRequests()
		for id := range seen(c) {
			if id.Kind == "Metal3Machine" {
				list = append(list, id.Namespace+"/"+id.Name)
			}
		}
		return list
	}
	require.NoError(t, checks.Add(checkOfInfraMachines("tenant")))
	require.Empty(t, told())
	require.NoError(t, c.storeOf("Metal3Machine").Replace([]any{infraMachine("tenant", "m"), infraMachine("prod", "m"), infraMachine("other", "m")}, "5"))
	assert.ElementsMatch(t, []string{"tenant/m"}, told())
	bad := infraMachine("prod", "bad")
	bad.SetResourceVersion("not a number")
	require.NoError(t, c.storeOf("Metal3Machine").Add(bad))
	assert.ElementsMatch(t, []string{"tenant/m"}, told(), "nor does one raise doubt that cannot be read")
	require.NoError(t, c.storeOf("Metal3Machine").Delete(bad))

	require.NoError(t, checks.Add(checkOfInfraMachines("prod")))
	assert.ElementsMatch(t, []string{"tenant/m", "prod/m"}, told())
	require.NoError(t, clusterWide.Add(checkOfInfraMachines("")))
	assert.ElementsMatch(t, []string{"tenant/m", "prod/m", "other/m"}, told(), "an administrator names the kind")
	require.NoError(t, clusterWide.Delete(checkOfInfraMachines("")))
	require.NoError(t, checks.Delete(checkOfInfraMachines("prod")))
	assert.ElementsMatch(t, []string{"tenant/m"}, told())
	require.NoError(t, checks.Delete(checkOfInfraMachines("tenant")))
	assert.Empty(t, told())
}

// A namespace is one of one API server: who names a kind in one makes none a request in its namesake on the other. // I2
func TestKindOfANamespacesChecksIsOfOneAPI(t *testing.T) {
	c := newCluster(Config{Kubeconfig: "work", Management: ManagementConfig{Kubeconfig: "manage"}}, zap.NewNop())
	put := func(s *side, group string, u *unstructured.Unstructured) {
		at := slices.IndexFunc(s.watched(), func(st *store) bool { return st.Kind == u.GetKind() && st.Group == group })
		require.NoError(t, s.watched()[at].Add(u))
	}
	ofCluster := checkOfInfraMachines("managed")
	ofCluster.SetAPIVersion(policy.ClusterAPIV1Beta1)
	require.NoError(t, unstructured.SetNestedField(ofCluster.Object, "blue", "spec", "clusterName"))
	put(c.work, client.MachineGroup, checkOfInfraMachines("tenant"))
	put(c.manage, client.ClusterGroup, ofCluster)
	c.adjustRequests()
	for _, namespace := range []string{"tenant", "managed"} {
		put(c.work, infraMachines.Group, infraMachine(namespace, "m"))
		put(c.manage, infraMachines.Group, infraMachine(namespace, "m"))
	}
	var told []string
	for id := range seen(c) {
		if id.Kind == "Metal3Machine" {
			told = append(told, fmt.Sprintf("%s %t", id.Namespace, id.OnManagementAPI))
		}
	}
	assert.ElementsMatch(t, []string{"tenant false", "managed true"}, told)
}

// A look, too, reads requests of such a kind only where its checks are, or for the Machines there: the controller of
// medik8s makes those of a MachineHealthCheck in the namespace of the template. What is known of the checks counts at once. // I2 I22
func TestKindOfANamespacesChecksContestsOnlyThere(t *testing.T) {
	for name, tc := range map[string]struct {
		checks, late []string
		target       string
		asked        []string
		contested    bool
	}{
		"the Machines of others":            {checks: []string{"tenant"}, target: "prod"},
		"its own Machines":                  {checks: []string{"tenant"}, target: "tenant", asked: []string{"admins", "tenant"}, contested: true},
		"those of another check":            {checks: []string{"tenant", "prod"}, target: "prod", asked: []string{"admins", "prod"}, contested: true},
		"those of an administrator":         {checks: []string{"tenant", ""}, target: "prod", asked: []string{"admins", "ns", "prod"}, contested: true},
		"an administrator's that just came": {checks: []string{"tenant"}, late: []string{""}, target: "prod", asked: []string{"admins", "ns", "prod"}, contested: true},
		"a namespace that counts for all":   {checks: []string{"tenant", "admins"}, target: "prod", asked: []string{"admins"}},
	} {
		t.Run(name, func(t *testing.T) {
			var asked []string
			c := served(t, func(w http.ResponseWriter, r *http.Request) {
				_, in, _ := strings.Cut(r.URL.Path, "/namespaces/")
				namespace, _, _ := strings.Cut(in, "/")
				asked = append(asked, namespace)
				owner := "u-" + namespace // of the Machine there
				w.Header().Set("Content-Type", "application/json")
				_, _ = fmt.Fprintf(w, `{"kind":"Metal3MachineList","apiVersion":"infrastructure.cluster.x-k8s.io/v1beta1","metadata":{"resourceVersion":"7"},"items":[
					{"kind":"Metal3Machine","apiVersion":"infrastructure.cluster.x-k8s.io/v1beta1","metadata":{"namespace":%q,"name":"x","ownerReferences":[{"kind":"Machine","name":"m","uid":%q}]}}]}`, namespace, owner)
			})
			c.cfg.RequestNamespaces = []string{"admins"}
			add := func(namespaces []string) {
				for _, namespace := range namespaces {
					k := checkOfInfraMachines(namespace)
					require.NoError(t, c.storeOf(k.GetKind()).Add(k))
				}
			}
			add(tc.checks)
			c.adjustRequests()
			st := c.storeOf("Metal3Machine")
			st.gvr, st.synced, st.reached, st.proven = infraMachines, true, 7, time.Now()
			c.adjustRequests()
			add(tc.late)
			l := &looker{c: c, run: remediate.Run{Target: remediate.Target{Machine: "m", MachineUID: "u-" + tc.target, Namespace: tc.target, Node: "w-2"}}}
			l.look.FreshMachine = &policy.Machine{APIVersion: policy.OpenShiftMachineAPI, Namespace: tc.target, Name: "m"}
			l.look.FreshNode = &policy.Node{Name: "w-2", OpenShiftMachine: tc.target + "/m"}
			who, err := l.foreignRequest(t.Context())
			require.NoError(t, err)
			assert.Equal(t, tc.contested, who != "", who)
			assert.Equal(t, tc.asked, asked)
		})
	}
}
