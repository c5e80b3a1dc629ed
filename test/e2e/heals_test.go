package e2e

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/must"
	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/scene"
)

// A daemon that is killed again and again leaves sessions on a BMC that has four. It never takes
// them all, and ends what it began, with no order given. // L5
func TestKilledEightTimesOnFourSessions(t *testing.T) {
	t.Parallel()
	s := onStandIn(t, scene.Options{
		Workers: []scene.Spec{{Name: "crowded", Protocol: scene.IPMI}, {Name: "healthy", Protocol: scene.IPMI}},
		Checks:  []rig.Check{scene.Metal("2s")},
		Set:     []string{"power.offDeadline=20s"},
	})
	ctx := within(t)
	d := must.Do(s.StartDaemon(ctx))(t)
	w := s.Worker("crowded")
	b := goBMC(t, w)
	var most atomic.Int64
	watch(ctx, t, func() { most.Store(max(most.Load(), int64(b.Established()))) })

	w.Kubelet.Hang()
	awaitOff(t, w)
	programs := must.Do(builds())(t)
	for i := range 8 {
		d.Kill()
		d = must.Do(s.Launch(programs.Fenced))(t)
		time.Sleep(2500 * time.Millisecond) // eight kills in twenty seconds
		if i == 0 {                         // it may open one more; those after it wait
			require.Eventually(t, func() bool { return most.Load() >= 2 }, patience, 50*time.Millisecond, "a killed daemon leaves its session behind")
		}
	}
	awaitRun(ctx, t, s, w.Name, result(wire.ResultDone))
	requireBack(ctx, t, s, w)
	requireOneDeletion(t, s, w)
	assert.LessOrEqual(t, most.Load(), int64(3), "one of four sessions is left to others")
	untouched(ctx, t, s, s.Worker("healthy"))
}

// A rack loses its power: hosts and BMCs are dead together, one of them while it is fenced. Nobody
// needs to do more than restore the power.
func TestRackWithoutPower(t *testing.T) {
	t.Parallel()
	s := onStandIn(t, scene.Options{
		Workers: []scene.Spec{
			{Name: "fenced", Protocol: scene.IPMI}, {Name: "rack-ipmi", Protocol: scene.IPMI}, {Name: "rack-redfish", Protocol: scene.Redfish},
			{Name: "healthy-1", Protocol: scene.IPMI}, {Name: "healthy-2", Protocol: scene.IPMI},
		},
		Checks: []rig.Check{scene.Metal("2s")},
		Set:    []string{"power.offDeadline=15s", "power.retryInterval=5s"},
	})
	ctx := within(t)
	must.Do(s.StartDaemon(ctx))(t)
	rack := []*scene.Worker{s.Worker("fenced"), s.Worker("rack-ipmi"), s.Worker("rack-redfish")}

	rack[0].Kubelet.Hang()
	awaitOff(t, rack[0])
	for _, w := range rack {
		require.NoError(t, w.LoseMains())
	}
	awaitRun(ctx, t, s, rack[0].Name, result(wire.ResultWaiting))
	for _, w := range rack[1:] {
		awaitRefusal(ctx, t, s, w.Name, "BMCUnreachable")
		requireNoDeletion(t, s, w)
	}
	for i, w := range rack {
		require.NoError(t, w.RestoreMains(i > 0)) // the host that was off stays off
	}
	for _, w := range rack {
		awaitWhole(ctx, t, s, w)
	}
	for _, name := range []string{"healthy-1", "healthy-2"} {
		untouched(ctx, t, s, s.Worker(name))
	}
}

// awaitWhole waits until a host runs, its Node is Ready with all that it wore, and no run of it is open.
func awaitWhole(ctx context.Context, t *testing.T, s *scene.Scene, w *scene.Worker) {
	t.Helper()
	for ctx.Err() == nil {
		st, err := s.Status(ctx)
		open := err != nil
		for _, r := range st.Runs {
			open = open || r.Node == w.Name
		}
		n, err := s.Cluster.WaitNode(ctx, w.Name, scene.IsReady)
		if err == nil && !open && w.On() && len(w.Undressed(n)) == 0 {
			return
		}
		time.Sleep(200 * time.Millisecond)
	}
	require.Fail(t, "never whole again", w.Name)
}

// watch calls f every few milliseconds until the test ends.
func watch(ctx context.Context, t *testing.T, f func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			f()
			time.Sleep(5 * time.Millisecond)
		}
	}()
	t.Cleanup(func() { cancel(); <-ended })
}

// Nobody is called for what heals: a BMC that is silent for 90 s right after the Off, a password that
// is mended in the Secret, and the right to delete Nodes, which is taken away and given back. No order is given. // L5
func TestWhatHealsEndsByItself(t *testing.T) {
	t.Parallel()
	s := set(t, scene.Options{
		Workers: []scene.Spec{
			{Name: "silent", Protocol: scene.IPMI}, {Name: "password", Protocol: scene.Redfish, Metal3: true}, {Name: "forbidden", Protocol: scene.IPMI},
			{Name: "healthy-1", Protocol: scene.IPMI}, {Name: "healthy-2", Protocol: scene.IPMI},
		},
		Checks: []rig.Check{scene.Metal("2s")},
		Set:    []string{"power.offDeadline=15s", "power.apiTimeout=10s", "power.retryInterval=5s"},
		// A run that waits brings the host back. It goes on before the host has booted.
		BootDelay: 20 * time.Second,
	})
	ctx := within(t)
	must.Do(s.StartDaemon(ctx))(t)
	silent, password, forbidden := s.Worker("silent"), s.Worker("password"), s.Worker("forbidden")

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

	giveBack := withhold(ctx, t, s, "fenced", map[string]string{"nodes": "delete"})
	forbidden.Kubelet.Hang()
	r = awaitRun(ctx, t, s, forbidden.Name, result(wire.ResultWaiting))
	assert.Contains(t, []string{"APIForbidden", "IsolationFailed"}, r.Reason)
	require.Eventually(t, forbidden.BMC.Power, patience, 100*time.Millisecond, "the host is brought back")
	must.Do(s.Cluster.WaitNode(ctx, forbidden.Name, scene.IsReady))(t)
	forbidden.Kubelet.Hang() // otherwise the run would end: the host works
	offs := goBMC(t, forbidden).Counts().Off
	time.Sleep(20 * time.Second)
	assert.Equal(t, offs, goBMC(t, forbidden).Counts().Off, "the host is not switched off in vain")
	assert.True(t, forbidden.BMC.Power())
	giveBack()

	time.Sleep(time.Until(hung.Add(90 * time.Second))) // the other stories took a part of it
	awaitRun(ctx, t, s, silent.Name, result(wire.ResultWaiting))
	requireNoDeletion(t, s, silent)
	require.NoError(t, goBMC(t, silent).Hang(false))
	for _, w := range []*scene.Worker{silent, forbidden} {
		awaitRun(ctx, t, s, w.Name, result(wire.ResultDone))
		requireBack(ctx, t, s, w)
		requireOneDeletion(t, s, w)
	}
	untouched(ctx, t, s, s.Worker("healthy-1"))
}

// withhold takes verbs on resources, separated by spaces, from a role of fenced, and returns what gives them back.
func withhold(ctx context.Context, t *testing.T, s *scene.Scene, role string, taken map[string]string) (giveBack func()) {
	t.Helper()
	roles := s.Cluster.Client().RbacV1().ClusterRoles()
	r := must.Do(roles.Get(ctx, role, metav1.GetOptions{}))(t)
	all := r.DeepCopy().Rules
	for i := range r.Rules {
		for resource, verbs := range taken {
			if rule := &r.Rules[i]; slices.Contains(rule.Resources, resource) {
				rule.Verbs = slices.DeleteFunc(rule.Verbs, func(v string) bool { return slices.Contains(strings.Fields(verbs), v) })
			}
		}
	}
	r.Rules = slices.DeleteFunc(r.Rules, func(rule rbacv1.PolicyRule) bool { return len(rule.Verbs) == 0 })
	must.Do(roles.Update(ctx, r, metav1.UpdateOptions{}))(t)
	return func() {
		now := must.Do(roles.Get(ctx, role, metav1.GetOptions{}))(t)
		now.Rules = all
		must.Do(roles.Update(ctx, now, metav1.UpdateOptions{}))(t)
	}
}

// setPassword changes the password in the Secret of a worker's BareMetalHost.
func setPassword(ctx context.Context, t *testing.T, s *scene.Scene, w *scene.Worker, password string) {
	t.Helper()
	patch := []byte(`{"stringData":{"password":"` + password + `"}}`)
	must.Do(s.Management.Client().CoreV1().Secrets(rig.Namespace).Patch(ctx, w.Name+"-bmc", types.MergePatchType, patch, metav1.PatchOptions{}))(t)
}
