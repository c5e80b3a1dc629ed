package k8swatch

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
)

// An OpenShift Machine is of the cluster itself; a host of the same name may be on
// the management API, and is another one.
func TestHubHasNoHostsOfOpenShiftMachines(t *testing.T) {
	host, machine := apiObject("BareMetalHost", "h", "1", nil), apiObject("Machine", "m", "1", map[string]any{"providerID": "baremetalhost:///ns/h"})
	host.SetAPIVersion("metal3.io/v1alpha1")
	for manage, found := range map[string]bool{"": true, "manage": false} {
		c, l := newCluster(Config{Kubeconfig: "work", Management: ManagementConfig{Kubeconfig: manage}}, zap.NewNop()), policy.NewLedger(policy.Rules{})
		require.NoError(t, c.storeOf("BareMetalHost").Add(host.DeepCopy()))
		require.NoError(t, c.storeOf("Machine").Add(machine.DeepCopy()))
		l.Apply(time.Now(), c.Changes()...)
		require.True(t, l.MachineIn(policy.OpenShiftMachineAPI, "ns", "m").NamesHost())
		_, err := l.HostOf(l.MachineIn(policy.OpenShiftMachineAPI, "ns", "m"))
		assert.Equal(t, found, err == nil, err)
	}
}

func TestHostInTheWrongPlaceIsForbidden(t *testing.T) { // I8
	one := newCluster(Config{Kubeconfig: "work"}, zap.NewNop())
	apart := newCluster(Config{Kubeconfig: "work", Management: ManagementConfig{Kubeconfig: "manage"}}, zap.NewNop())
	for name, c := range map[string]struct {
		c               *Cluster
		machineAPI, why string
		namespace       string // of the host
	}{
		"OpenShift's":                       {one, policy.OpenShiftMachineAPI, "", "ns"},
		"OpenShift's elsewhere":             {one, policy.OpenShiftMachineAPI, "", "hosts"},
		"OpenShift's of an old record":      {one, "", "", "ns"},
		"OpenShift's, a hub's host":         {apart, policy.OpenShiftMachineAPI, "is on the management API", "ns"},
		"OpenShift's of an old record, hub": {apart, "", "is on the management API", "ns"},
		"the Cluster API's":                 {apart, policy.ClusterAPIV1Beta2, "", "ns"},
		"the Cluster API's, one API":        {one, policy.ClusterAPIV1Beta1, "", "ns"},
		"the Cluster API's, a victim's":     {apart, policy.ClusterAPIV1Beta2, "in another namespace than Machine ns/m", "victim"},
	} {
		l := &looker{c: c.c, owned: &policy.Host{Namespace: c.namespace, Name: "h", Online: true},
			run: remediate.Run{Target: remediate.Target{Node: "n", Namespace: "ns", Machine: "m", MachineAPI: c.machineAPI, BareMetalHost: c.namespace + "/h"}}}
		l.powerOwner()
		if c.why == "" {
			assert.Empty(t, l.look.Seen.PowerForbidden, name)
		} else {
			assert.Contains(t, l.look.Seen.PowerForbidden, c.why, name)
		}
	}
}

// Without a Node, only the consumerRef says that a host is the Machine's. // I8
func TestHostOfAMachineWithoutANodeNamesIt(t *testing.T) {
	for name, c := range map[string]struct {
		target      remediate.Target
		consumerRef string
		forbidden   bool
	}{
		"its own":                             {remediate.Target{Namespace: "ns", Machine: "m"}, "ns/m", false},
		"nobody's":                            {remediate.Target{Namespace: "ns", Machine: "m"}, "", true},
		"another's":                           {remediate.Target{Namespace: "ns", Machine: "m"}, "ns/m-9", true},
		"nobody's, and the Node is there":     {remediate.Target{Node: "n", Namespace: "ns", Machine: "m"}, "", false},
		"nobody's, and only hardware is left": {remediate.Target{Node: "n", Namespace: "ns", Machine: "m", ByHardware: true}, "", true},
	} {
		l := &looker{c: newCluster(Config{Kubeconfig: "work"}, zap.NewNop()), run: remediate.Run{Target: c.target}, consumer: "ns/m",
			owned: &policy.Host{Namespace: "ns", Name: "h", Online: true, ConsumerRef: c.consumerRef}}
		l.powerOwner()
		assert.Equal(t, c.forbidden, l.look.Seen.PowerForbidden != "", "%s: %s", name, l.look.Seen.PowerForbidden)
	}
}
