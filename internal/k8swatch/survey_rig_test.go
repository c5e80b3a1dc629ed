package k8swatch

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenced/fenced/internal/k8swatch/client"
	"github.com/fenced/fenced/internal/k8swatch/look"
	"github.com/fenced/fenced/internal/k8swatch/view"
	"github.com/fenced/fenced/internal/k8swatch/write"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/rig/rigtest"
)

func surveyedKind(t *testing.T, s Survey, group, kind string) view.SurveyedKind {
	t.Helper()
	i := slices.IndexFunc(s.Kinds, func(k view.SurveyedKind) bool { return k.Group == group && k.Kind == kind })
	require.GreaterOrEqual(t, i, 0, "%s of %s in %v", kind, group, s.Kinds)
	return s.Kinds[i]
}

// One look says what is served, who is alive, what exists, and who would act on a Machine.
func TestSurvey(t *testing.T) { // I22
	ctx := rigtest.Context(t, 5*time.Minute)
	c := rigtest.Own(t, rig.Options{CRDs: []rig.CRDs{rig.OpenShift, rig.Metal3, rig.Medik8s, rig.Metal3Remediation}})
	require.NoError(t, c.InstallMedik8s(ctx))
	node, err := c.CreateNode(ctx, rig.Node{Name: "worker-1"})
	require.NoError(t, err)
	_, err = c.CreateMachine(ctx, rig.Machine{Name: "worker-1", NodeName: "worker-1", Labels: map[string]string{"pool": "metal"}})
	require.NoError(t, err)
	_, err = c.CreateCheck(ctx, rig.Check{Name: "metal", Strategy: rig.BareMetalStrategy, Match: map[string]string{"pool": "metal"}, Conditions: rig.NotReadyFor("300s")})
	require.NoError(t, err)
	for _, lease := range []string{checkLeader, powerCycleLeader} {
		require.NoError(t, c.PutLease(ctx, rig.Lease{Namespace: machineAPINamespace, Name: lease, Holder: "holds-" + lease, Duration: time.Hour}))
	}
	require.NoError(t, c.PutLease(ctx, rig.Lease{Namespace: "default", Name: nodeCheckLeader, Holder: "nobody", Duration: time.Hour}))
	k := dial(t, c)
	s, err := TakeSurvey(ctx, k, "fenced")
	require.NoError(t, err)

	require.Len(t, s.Servers, 1)
	assert.Equal(t, c.URL(), s.Servers[0].URL)
	assert.Regexp(t, `^v1\.\d+\.\d+$`, s.Servers[0].Version)
	assert.Contains(t, s.Servers[0].Groups, client.MachineGroup)
	assert.NotContains(t, s.Servers[0].Groups, client.ClusterGroup)
	assert.Equal(t, view.SurveyedKind{Kind: "Node", Served: true, Objects: 1}, surveyedKind(t, s, "", "Node"))
	assert.Equal(t, view.SurveyedKind{Group: client.MachineGroup, Kind: "Machine", Served: true, Objects: 1}, surveyedKind(t, s, client.MachineGroup, "Machine"))
	assert.Equal(t, view.SurveyedKind{Group: client.HostGroup, Kind: "BareMetalHost", Served: true}, surveyedKind(t, s, client.HostGroup, "BareMetalHost"))
	assert.Equal(t, view.SurveyedKind{Group: client.ClusterGroup, Kind: "Machine"}, surveyedKind(t, s, client.ClusterGroup, "Machine"))
	assert.True(t, slices.ContainsFunc(s.Changes, func(ch policy.Change) bool {
		check, ok := ch.Value.(*policy.Check)
		return ok && check.Name == "metal"
	}))
	assert.ErrorContains(t, s.Servers[0].NamespaceErr, "forbidden", "fenced itself may not read it, and need not")
	require.NoError(t, c.CreateNamespace(ctx, "fenced"))
	kubeconfig, err := c.Kubeconfig("an-administrator", "system:masters")
	require.NoError(t, err)
	server, err := look.Identify(ctx, connected(t, kubeconfig).servers.Work, "fenced")
	require.NoError(t, err)
	require.NoError(t, server.NamespaceErr)
	ns, err := c.Client().CoreV1().Namespaces().Get(ctx, "fenced", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, string(ns.UID), server.NamespaceUID)
	assert.True(t, s.Medik8s)
	require.NoError(t, s.Medik8sErr)
	alive := map[string]string{}
	for _, o := range s.Controllers {
		require.NoError(t, o.Err)
		alive[o.Lease] = o.Holder
		assert.Equal(t, o.Lease == nodeCheckLeader, slices.Equal(o.Elsewhere, []string{"default"}), "%s: %s", o.Lease, o.Elsewhere)
	}
	assert.Len(t, alive, 4, "no Cluster API is served")
	assert.Contains(t, alive[powerCycleLeader], "holds-"+powerCycleLeader)
	assert.Contains(t, alive[checkLeader], "holds-"+checkLeader)
	assert.Empty(t, alive[nodeCheckLeader])
	assert.Empty(t, alive[write.OwnLease])

	machine := policy.Machine{}
	for _, ch := range s.Changes {
		if m, ok := ch.Value.(*policy.Machine); ok {
			machine = *m
		}
	}
	target := remediate.Target{Cluster: "rig", Node: node.Name, NodeUID: string(node.UID), Namespace: machine.Namespace, Machine: machine.Name, MachineUID: machine.UID, MachineAPI: machine.APIVersion}
	who := Contenders(ctx, k, []remediate.Target{target, {Cluster: "rig", Node: node.Name, NodeUID: string(node.UID)}})
	require.NoError(t, who[0].Err)
	assert.Contains(t, who[0].Who, "holds-"+powerCycleLeader, "it would act on the Machine")
	assert.Equal(t, look.Contender{}, who[1], "nobody acts on a Node without a Machine")
}

// A user who may read nothing learns what was not seen, and the survey ends by itself.
func TestSurveyOfAUserWithoutRights(t *testing.T) {
	ctx := rigtest.Context(t, 5*time.Minute)
	c := okd(t)
	kubeconfig, err := c.Kubeconfig("nobody-in-particular")
	require.NoError(t, err)
	s, err := TakeSurvey(ctx, connected(t, kubeconfig), "fenced")
	require.NoError(t, err)
	for _, k := range []view.SurveyedKind{surveyedKind(t, s, "", "Node"), surveyedKind(t, s, client.MachineGroup, "Machine"), surveyedKind(t, s, client.HostGroup, "BareMetalHost")} {
		assert.Contains(t, k.Problem, "forbidden", k.Kind)
		assert.True(t, k.Served, k.Kind)
	}
	assert.Empty(t, surveyedKind(t, s, client.ClusterGroup, "Machine").Problem, "what is not served is not missing")
	for _, o := range s.Controllers {
		assert.ErrorContains(t, o.Err, "forbidden", o.Lease)
	}
	assert.ErrorContains(t, s.Medik8sErr, "forbidden")
	assert.ErrorContains(t, s.Servers[0].NamespaceErr, "forbidden")
}

// An API server that cannot be reached, or that does not know the user, is an error that names it.
func TestSurveyWithoutAServer(t *testing.T) {
	ctx := rigtest.Context(t, 5*time.Minute)
	c := rigtest.Own(t, rig.Options{Bare: true, NoManager: true})
	kubeconfig, err := c.Kubeconfig("an-administrator", "system:masters")
	require.NoError(t, err)
	k := connected(t, kubeconfig)
	c.StopAPIServer()
	_, err = TakeSurvey(ctx, k, "fenced")
	require.ErrorContains(t, err, "ask the workload API server "+c.URL())
	assert.ErrorContains(t, err, kubeconfig)
}
