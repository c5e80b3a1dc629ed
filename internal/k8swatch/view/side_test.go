package view

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/fenced/fenced/internal/k8swatch/client"
	"github.com/fenced/fenced/internal/policy"
)

// TestListIsNotBehindTheView: what the view has seen, a list of rivals has seen.
func TestListIsNotBehindTheView(t *testing.T) {
	s := &side{Server: &client.Server{}, stores: []*store{
		{source: source{Resource: client.Resource{Kind: "MachineHealthCheck", Group: "a.io"}, namespace: "ns"}, reached: 7},
		{source: source{Resource: client.Resource{Kind: "MachineHealthCheck", Group: "b.io"}}, reached: 8},
		{source: source{Resource: client.Resource{Kind: "Machine", Group: "a.io"}}, reached: 9},
		{source: source{Resource: client.Resource{Kind: "MachineHealthCheck", Group: "c.io"}}},
	}}
	c := &Cache{work: s, manage: s}
	o := c.NotOlder(s.Server, "MachineHealthCheck", "a.io", "ns")
	assert.Equal(t, "7", o.ResourceVersion)
	assert.Equal(t, metav1.ResourceVersionMatchNotOlderThan, o.ResourceVersionMatch)
	assert.Equal(t, "8", c.NotOlder(s.Server, "MachineHealthCheck", "b.io", "ns").ResourceVersion, "a store of all namespaces")
	assert.Empty(t, c.NotOlder(s.Server, "MachineHealthCheck", "a.io", "other").ResourceVersion, "nothing is known of it: as new as can be")
	assert.Empty(t, c.NotOlder(s.Server, "MachineHealthCheck", "c.io", "ns").ResourceVersion, "there is no view yet")
}

// An OpenShift Machine is of the cluster itself; a host of the same name may be on
// the management API, and is another one.
func TestHubHasNoHostsOfOpenShiftMachines(t *testing.T) {
	host, machine := apiObject("BareMetalHost", "h", "1", nil), apiObject("Machine", "m", "1", map[string]any{"providerID": "baremetalhost:///ns/h"})
	host.SetAPIVersion("metal3.io/v1alpha1")
	for manage, found := range map[string]bool{"": true, "manage": false} {
		c, l := newCache(Config{Kubeconfig: "work", Management: ManagementConfig{Kubeconfig: manage}}, zap.NewNop()), policy.NewLedger(policy.Rules{})
		require.NoError(t, c.storeOf("BareMetalHost").Add(host.DeepCopy()))
		require.NoError(t, c.storeOf("Machine").Add(machine.DeepCopy()))
		l.Apply(time.Now(), c.Changes()...)
		require.True(t, l.MachineIn(policy.OpenShiftMachineAPI, "ns", "m").NamesHost())
		_, err := l.HostOf(l.MachineIn(policy.OpenShiftMachineAPI, "ns", "m"))
		assert.Equal(t, found, err == nil, err)
	}
}

// The API server sends the Pods of the control plane, and no others: a cluster may have millions.
func TestOnlyPodsOfTheControlPlaneAreWatched(t *testing.T) {
	watched := map[string]*store{}
	for _, s := range offline().allStores() {
		if s.Kind == "Pod" {
			watched[s.namespace] = s
		}
	}
	require.Len(t, watched, len(policy.PodSpaces))
	for _, of := range policy.PodSpaces {
		s := watched[of.Namespace]
		selector, err := labels.Parse(s.labels)
		require.NoError(t, err)
		assert.False(t, selector.Matches(labels.Set{of.Label: "x"}), s.labels)
		assert.False(t, selector.Matches(labels.Set{}), s.labels)
		for _, value := range of.Values() {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: of.Namespace, Name: "p", Labels: labels.Set{of.Label: value}}, Spec: corev1.PodSpec{NodeName: "n"}}
			assert.True(t, selector.Matches(labels.Set(pod.Labels)), s.labels)
			found, err := s.convert(pod)
			require.NoError(t, err)
			assert.Equal(t, &policy.Pod{Namespace: of.Namespace, Name: "p", Node: "n", Member: value == of.Etcd}, found)
		}
	}
}
