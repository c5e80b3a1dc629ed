package k8swatch

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/fenced/fenced/internal/policy"
)

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
