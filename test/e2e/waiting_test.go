package e2e

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/scene"
)

// Nobody is called for what heals: a BMC that is silent for 90 s right after the Off, a password that
// is mended in the Secret, and a right that is taken away and given back. No order is given. // L5
func TestWhatHealsEndsByItself(t *testing.T) {
	t.Parallel()
	s := set(t, scene.Options{
		Workers: []scene.Spec{
			{Name: "silent", Protocol: scene.IPMI}, {Name: "password", Protocol: scene.Redfish, Metal3: true},
			{Name: "healthy-1", Protocol: scene.IPMI}, {Name: "healthy-2", Protocol: scene.IPMI},
		},
		Checks: []rig.Check{scene.Metal("2s")},
		Set:    []string{"power.offDeadline=15s", "power.retryInterval=5s"},
		// A run that waits brings the host back. It goes on before the host has booted.
		BootDelay: 20 * time.Second,
	})
	ctx := within(t)
	_, err := s.StartDaemon(ctx)
	require.NoError(t, err)
	silent, password := s.Worker("silent"), s.Worker("password")

	silent.Kubelet.Hang()
	awaitOff(t, silent)
	require.NoError(t, goBMC(t, silent).Hang(true))
	hung := time.Now()
	r := awaitRun(ctx, t, s, silent.Name, result(wire.ResultWaiting))
	assert.Equal(t, "BMCUnreachable", r.Reason)
	assert.Equal(t, "transient", r.Class)
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		assert.Contains(c, describedNode(ctx, t, s.Cluster, silent.Name), "Warning RemediationWaiting")
	}, patience, 200*time.Millisecond)

	setPassword(ctx, t, s, password, "not-this-one")
	password.Kubelet.Hang()
	awaitRefusal(ctx, t, s, password.Name, "BMCAuth")
	setPassword(ctx, t, s, password, scene.Password)
	awaitRun(ctx, t, s, password.Name, result(wire.ResultDone))
	requireBack(ctx, t, s, password)

	time.Sleep(time.Until(hung.Add(90 * time.Second))) // the other story took a part of it
	awaitRun(ctx, t, s, silent.Name, result(wire.ResultWaiting))
	requireNoDeletion(t, s, silent)
	require.NoError(t, goBMC(t, silent).Hang(false))
	awaitRun(ctx, t, s, silent.Name, result(wire.ResultDone))
	requireBack(ctx, t, s, silent)
	requireOneDeletion(t, s, silent)
	untouched(ctx, t, s, s.Worker("healthy-1"))
}

// Without the right to delete Nodes a run waits, and does not switch the host off again and
// again. Once the right is back it goes on. // L5
func TestRightThatIsGivenBack(t *testing.T) {
	t.Parallel()
	s := set(t, scene.Options{
		Workers: []scene.Spec{
			{Name: "forbidden", Protocol: scene.IPMI}, {Name: "healthy-1", Protocol: scene.IPMI}, {Name: "healthy-2", Protocol: scene.IPMI},
		},
		Checks: []rig.Check{scene.Metal("2s")},
		Set:    []string{"power.apiTimeout=10s", "power.retryInterval=2s"},
	})
	ctx := within(t)
	giveBack := forbidDeletion(ctx, t, s)
	_, err := s.StartDaemon(ctx)
	require.NoError(t, err)
	w := s.Worker("forbidden")
	w.Kubelet.Hang()
	r := awaitRun(ctx, t, s, w.Name, result(wire.ResultWaiting))
	assert.Contains(t, []string{"APIForbidden", "IsolationFailed"}, r.Reason)
	require.Eventually(t, w.BMC.Power, patience, 100*time.Millisecond, "the host is brought back")
	_, err = s.Cluster.WaitNode(ctx, w.Name, scene.IsReady)
	require.NoError(t, err)
	w.Kubelet.Hang() // otherwise the run would end: the host works
	offs := goBMC(t, w).Counts().Off
	time.Sleep(20 * time.Second)
	assert.Equal(t, offs, goBMC(t, w).Counts().Off, "the host is not switched off in vain")
	assert.True(t, w.BMC.Power())

	giveBack()
	awaitRun(ctx, t, s, w.Name, result(wire.ResultDone))
	requireBack(ctx, t, s, w)
	requireOneDeletion(t, s, w)
}

// forbidDeletion takes the right to delete Nodes from fenced, and returns what gives it back.
func forbidDeletion(ctx context.Context, t *testing.T, s *scene.Scene) (giveBack func()) {
	t.Helper()
	roles := s.Cluster.Client().RbacV1().ClusterRoles()
	role, err := roles.Get(ctx, "fenced", metav1.GetOptions{})
	require.NoError(t, err)
	all := role.DeepCopy()
	for i := range role.Rules {
		for _, kind := range role.Rules[i].Resources {
			if kind == "nodes" {
				role.Rules[i].Verbs = []string{"get", "list", "watch", "patch"}
			}
		}
	}
	_, err = roles.Update(ctx, role, metav1.UpdateOptions{})
	require.NoError(t, err)
	return func() {
		now, err := roles.Get(ctx, "fenced", metav1.GetOptions{})
		require.NoError(t, err)
		now.Rules = all.Rules
		_, err = roles.Update(ctx, now, metav1.UpdateOptions{})
		require.NoError(t, err)
	}
}

// setPassword changes the password in the Secret of a worker's BareMetalHost.
func setPassword(ctx context.Context, t *testing.T, s *scene.Scene, w *scene.Worker, password string) {
	t.Helper()
	patch := []byte(`{"stringData":{"password":"` + password + `"}}`)
	_, err := s.Management.Client().CoreV1().Secrets(rig.Namespace).Patch(ctx, w.Name+"-bmc", types.MergePatchType, patch, metav1.PatchOptions{})
	require.NoError(t, err)
}
