package rig_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
	time.Sleep(3 * time.Second) // what is under way ends
	list, err := nodes.List(ctx, metav1.ListOptions{})
	require.NoError(t, err)
	there := map[string]bool{}
	for _, n := range list.Items {
		there[n.Name] = true
	}
	done, gone, cutOff := map[string]string{}, map[string]string{}, 0
	all, err := c.AllNodeDeletions()
	require.NoError(t, err)
	for _, d := range all {
		if uids[d.Name] != "" {
			assert.NotContains(t, done, d.Name, "deleted once")
			done[d.Name] = d.UID
			if d.CutOff {
				cutOff++
			}
		}
	}
	for name, uid := range uids {
		if !there[name] {
			gone[name] = uid
		}
	}
	t.Logf("%d of %d Nodes are gone, %d of them without an answer", len(gone), len(uids), cutOff)
	assert.Equal(t, gone, done)
}
