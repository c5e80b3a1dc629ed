package rig_test

import (
	"context"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/rig/rigtest"
)

// A client that is killed in the middle of a request leaves it to the API server,
// which carries some out and logs them as failed: they were deletions all the same.
func TestDeletionsWithoutAnAnswer(t *testing.T) {
	c, ctx := rigtest.Shared(t), rigtest.Context(t, 2*time.Minute)
	nodes := c.Client().CoreV1().Nodes()
	uids := map[string]string{}
	for i := range 60 {
		n, err := c.CreateNode(ctx, rig.Node{Name: rigtest.Name("cut")})
		require.NoError(t, err)
		uids[n.Name] = string(n.UID)
		short, cancel := context.WithTimeout(ctx, time.Duration(i)*200*time.Microsecond)
		err = nodes.Delete(short, n.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &n.UID}})
		cancel()
		assert.True(t, err == nil || short.Err() != nil, err)
	}
	// What is under way ends at some time, and then its line is in the log.
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		missing, done, cutOff := without(t, ctx, nodes, uids), map[string]string{}, 0
		all, err := c.AllNodeDeletions()
		require.NoError(t, err)
		for _, d := range all {
			if uids[d.Name] != "" {
				require.NotContains(t, done, d.Name, "deleted once")
				done[d.Name] = d.UID
				if d.CutOff {
					cutOff++
				}
			}
		}
		require.Equal(t, missing, done, "%d without an answer", cutOff)
	}, time.Minute, time.Second)
}

// without are those of uids, UID by name, whose Node is there no more.
func without(t require.TestingT, ctx context.Context, nodes corev1client.NodeInterface, uids map[string]string) map[string]string {
	list, err := nodes.List(ctx, metav1.ListOptions{})
	require.NoError(t, err)
	left := maps.Clone(uids)
	for _, n := range list.Items {
		delete(left, n.Name)
	}
	return left
}
