package rig_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/rig/rigtest"
)

// power is a host's power switch.
type power struct{ on atomic.Bool }

func (p *power) state(context.Context) (bool, error) { return p.on.Load(), nil }

func switchedOn() *power {
	p := &power{}
	p.on.Store(true)
	return p
}

func options(name string, p *power) rig.KubeletOptions {
	return rig.KubeletOptions{
		NodeName: name, SystemUUID: "4c4c4544-0044-4210-8031-c4c04f4d3132", Power: p.state,
		BootDelay: 200 * time.Millisecond, Labels: map[string]string{"zone": "a"},
	}
}

func ready(n *corev1.Node) bool { return rig.ReadyStatus(n) == corev1.ConditionTrue }

func gone(n *corev1.Node) bool { return n == nil }

func heartbeat(t *testing.T, c *rig.ControlPlane, node string) time.Time {
	t.Helper()
	l, err := c.Client().CoordinationV1().Leases("kube-node-lease").Get(t.Context(), node, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return time.Time{}
	}
	require.NoError(t, err)
	return l.Spec.RenewTime.Time
}

func TestOnlyTheControllerManagerSetsUnknown(t *testing.T) {
	c, ctx := rigtest.Shared(t), rigtest.Context(t, 3*time.Minute)
	name := rigtest.Name("hangs")
	k := rigtest.RunKubelet(t, c, options(name, switchedOn()))
	before, err := c.WaitNode(ctx, name, ready)
	require.NoError(t, err)
	assert.Equal(t, k.BootID(), before.Status.NodeInfo.BootID)
	assert.Equal(t, "a", before.Labels["zone"])

	k.Hang()
	start := time.Now()
	node, err := c.WaitNode(ctx, name, func(n *corev1.Node) bool {
		return rig.ReadyStatus(n) == corev1.ConditionUnknown
	})
	require.NoError(t, err)
	t.Logf("Ready=Unknown %s after the hang", time.Since(start).Round(100*time.Millisecond))
	for _, cond := range node.Status.Conditions {
		if cond.Type == corev1.NodeReady {
			assert.Equal(t, "NodeStatusUnknown", cond.Reason, "the reason that node-lifecycle gives")
		}
	}
	assert.Equal(t, before.UID, node.UID)
}

func TestRunningKubeletNeverRegistersAgain(t *testing.T) {
	c, ctx := rigtest.Shared(t), rigtest.Context(t, 3*time.Minute)
	name := rigtest.Name("deleted")
	k := rigtest.RunKubelet(t, c, options(name, switchedOn()))
	_, err := c.WaitNode(ctx, name, ready)
	require.NoError(t, err)
	require.NoError(t, c.Client().CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{}))
	_, err = c.WaitNode(ctx, name, gone)
	require.NoError(t, err)

	time.Sleep(3 * time.Second) // three heartbeats: long enough to register, were it wrong
	_, err = c.Client().CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	assert.True(t, apierrors.IsNotFound(err), "got %v", err)
	assert.NotEmpty(t, k.BootID())
}

func TestZombieRenewsWithoutPower(t *testing.T) {
	c, ctx := rigtest.Shared(t), rigtest.Context(t, 3*time.Minute)
	name := rigtest.Name("zombie")
	p := switchedOn()
	k := rigtest.RunKubelet(t, c, options(name, p))
	_, err := c.WaitNode(ctx, name, ready)
	require.NoError(t, err)
	k.SetZombie(true)
	p.on.Store(false)
	at := heartbeat(t, c, name)
	require.Eventually(t, func() bool { return heartbeat(t, c, name).After(at.Add(2 * time.Second)) },
		time.Minute, 100*time.Millisecond, "a zombie goes on")

	k.SetZombie(false)
	require.Eventually(t, func() bool { return k.BootID() == "" }, time.Minute, 20*time.Millisecond)
	require.Eventually(t, func() bool { // a renewal may be under way when it dies
		last := heartbeat(t, c, name)
		time.Sleep(2500 * time.Millisecond)
		return last.Equal(heartbeat(t, c, name))
	}, time.Minute, time.Millisecond, "without power there is no heartbeat")
}
