package k8swatch

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fenced/fenced/internal/k8swatch/k8stest"
	"github.com/fenced/fenced/internal/k8swatch/look"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/rig/rigtest"
)

// bareMetal creates a Node, its Machine of a MachineSet and its BareMetalHost,
// and the run that targets them.
func bareMetal(t *testing.T, c *rig.ControlPlane, h rig.Host, n rig.Node) remediate.Run {
	t.Helper()
	ctx := rigtest.Context(t, 3*time.Minute)
	set, machine := rigtest.Name("set"), rigtest.Name("machine")
	n.Name, h.Name, h.Machine = rigtest.Name("node"), rigtest.Name("host"), machine
	h.Address = "ipmi://192.0.2.1"
	_, err := c.CreateMachineSet(ctx, set)
	require.NoError(t, err)
	_, err = c.CreateHost(ctx, h)
	require.NoError(t, err)
	m, err := c.CreateMachine(ctx, rig.Machine{Name: machine, MachineSet: set, Host: h.Name, NodeName: n.Name})
	require.NoError(t, err)
	node, err := c.CreateNode(ctx, n)
	require.NoError(t, err)
	return remediate.Run{
		Strategy: remediate.PowerCycle, Isolation: remediate.IsolateDelete, Step: remediate.PowerOff,
		Target: remediate.Target{Node: n.Name, NodeUID: string(node.UID), Namespace: rig.Namespace, Machine: machine,
			MachineUID: string(m.GetUID()), BareMetalHost: rig.Namespace + "/" + h.Name},
	}
}

func hostName(r remediate.Run) string { return r.Target.BareMetalHost[len(rig.Namespace)+1:] }

func lookAt(t *testing.T, k *Cluster, r remediate.Run, backups ...[]byte) look.Look {
	t.Helper()
	if backups == nil {
		backups = [][]byte{}
	}
	l := k.Look(t.Context(), r, backups)
	require.NoError(t, l.Err)
	require.Equal(t, remediate.APIReachable, l.Seen.API)
	return l
}

func TestLookSeesTheTarget(t *testing.T) {
	c, ctx := rigtest.Shared(t), rigtest.Context(t, 3*time.Minute)
	k := dial(t, c)
	r := bareMetal(t, c, rig.Host{}, rig.Node{SystemUUID: "su", BootID: "b1"})
	require.NoError(t, c.PutLease(ctx, rig.Lease{Namespace: "kube-node-lease", Name: r.Target.Node, Holder: r.Target.Node, Duration: 40 * time.Second}))

	first := lookAt(t, k, r)
	s := first.Seen
	assert.Equal(t, remediate.Node{Exists: remediate.Yes, UID: r.Target.NodeUID, ResourceVersion: s.Node.ResourceVersion,
		BootID: "b1", SystemUUID: "su", Created: s.Node.Created, Ready: remediate.Yes}, s.Node)
	assert.WithinDuration(t, time.Now(), s.Node.Created, time.Minute)
	h, err := c.Dynamic().Resource(rig.HostResource).Namespace(rig.Namespace).Get(ctx, hostName(r), metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, string(h.GetUID()), s.BareMetalHostUID)
	assert.Equal(t, remediate.Machine{Exists: remediate.Yes, UID: r.Target.MachineUID, Replaceable: remediate.Yes}, s.Machine)
	assert.True(t, s.Lease.Known)
	assert.NotEmpty(t, s.Lease.ResourceVersion)
	assert.True(t, s.Lease.KubeletReporting, "Ready is not Unknown")
	assert.Equal(t, remediate.No, s.Contested)
	assert.Equal(t, remediate.No, s.PowerLock)
	assert.Empty(t, s.PowerForbidden)
	require.NotNil(t, first.FreshNode)
	require.NotNil(t, first.FreshMachine)

	require.NoError(t, c.PutLease(ctx, rig.Lease{Namespace: "kube-node-lease", Name: r.Target.Node, Holder: r.Target.Node, Duration: 40 * time.Second}))
	assert.NotEqual(t, s.Lease.ResourceVersion, lookAt(t, k, r).Seen.Lease.ResourceVersion, "a renewal is seen at once")

	_, err = c.Client().CoreV1().Nodes().Patch(ctx, r.Target.Node, types.StrategicMergePatchType,
		[]byte(`{"status":{"conditions":[{"type":"Ready","status":"Unknown"}]}}`), metav1.PatchOptions{}, "status")
	require.NoError(t, err)
	assert.False(t, lookAt(t, k, r).Seen.Lease.KubeletReporting)
}

func TestLookSeesWhoseHostItIs(t *testing.T) {
	c, ctx := rigtest.Shared(t), rigtest.Context(t, 3*time.Minute)
	k := dial(t, c)
	forbidden := map[string]rig.Host{
		"disablePowerOff: true": {DisablePowerOff: true}, "online: false": {Offline: true},
		"is paused":           {Annotations: map[string]string{"baremetalhost.metal3.io/paused": ""}},
		`is "deprovisioning"`: {State: "deprovisioning"},
	}
	for why, h := range forbidden {
		assert.Contains(t, lookAt(t, k, bareMetal(t, c, h, rig.Node{})).Seen.PowerForbidden, why)
	}
	detached := bareMetal(t, c, rig.Host{Annotations: map[string]string{"baremetalhost.metal3.io/detached": ""}}, rig.Node{})
	assert.Empty(t, lookAt(t, k, detached).Seen.PowerForbidden, "nobody else switches it")

	external := bareMetal(t, c, rig.Host{ExternallyProvisioned: true}, rig.Node{})
	for range 30 { // Machine and host are read at the same time
		m := lookAt(t, k, external).Seen.Machine
		require.Equal(t, remediate.No, m.Replaceable, "deleting this Machine would wipe the host")
		require.Contains(t, m.Why, "externally provisioned")
	}

	stolen := bareMetal(t, c, rig.Host{}, rig.Node{})
	other := bareMetal(t, c, rig.Host{}, rig.Node{})
	stolen.Target.BareMetalHost = other.Target.BareMetalHost
	assert.Contains(t, lookAt(t, k, stolen).Seen.PowerForbidden, "belongs to "+rig.Namespace+"/"+other.Target.Machine)

	foreign := bareMetal(t, c, rig.Host{}, rig.Node{})
	hard := `{"mode":"hard"}`
	require.NoError(t, c.Annotate(ctx, rig.HostResource, hostName(foreign), "reboot.metal3.io/capbm-requested-power-off", &hard))
	s := lookAt(t, k, foreign).Seen
	assert.Equal(t, remediate.Yes, s.Contested)
	assert.Contains(t, s.Contender, "capbm-requested-power-off")
	assert.Equal(t, "reboot.metal3.io/capbm-requested-power-off", s.OtherPowerLock)
	require.NoError(t, c.Annotate(ctx, rig.HostResource, hostName(foreign), "reboot.metal3.io/capbm-requested-power-off", nil))
	require.NoError(t, c.Annotate(ctx, rig.HostResource, hostName(foreign), policy.PowerLockAnnotation, &hard))
	s = lookAt(t, k, foreign).Seen
	assert.Equal(t, []any{remediate.No, remediate.Yes, ""}, []any{s.Contested, s.PowerLock, s.OtherPowerLock}, "fenced's own is nobody else's")
}

func TestLookSeesANodeThatJoinedLate(t *testing.T) { // I4
	c, ctx := rigtest.Shared(t), rigtest.Context(t, 3*time.Minute)
	k := dial(t, c)
	r := bareMetal(t, c, rig.Host{}, rig.Node{})
	node := r.Target.Node
	r.Target.Node, r.Target.NodeUID = "", "" // the Machine had no Node at the decision
	l := lookAt(t, k, r)
	assert.Equal(t, remediate.Yes, l.Seen.Node.Exists)
	require.NotNil(t, l.FreshNode, "without it the Machine would be judged as if its Node were gone")
	assert.Equal(t, node, l.FreshNode.Name)

	require.NoError(t, c.SetStatus(ctx, rig.MachineResource, r.Target.Machine, map[string]any{"nodeRef": nil}))
	assert.Equal(t, remediate.No, lookAt(t, k, r).Seen.Node.Exists)
}

// The Leases are those of a stock OpenShift cluster, held by a stand-in.
func TestLookSeesRivals(t *testing.T) { // I22
	c, ctx := rigtest.Own(t, rig.Options{}), rigtest.Context(t, 3*time.Minute) // its Leases would stop the other tests
	k := dial(t, c)
	r := bareMetal(t, c, rig.Host{}, rig.Node{})
	other := bareMetal(t, c, rig.Host{}, rig.Node{})
	alive := func(name, holder string, age time.Duration) {
		t.Helper()
		require.NoError(t, c.PutLease(ctx, rig.Lease{Namespace: rig.Namespace, Name: name, Holder: holder,
			Duration: 5 * time.Minute, Renewed: time.Now().Add(-age)}))
	}
	evaluated := func(want remediate.Answer) {
		t.Helper()
		got, err := k.ControllerAlive(ctx, policy.CheckID{Kind: policy.MachineHealthCheckKind, APIVersion: policy.OpenShiftMachineAPI})
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
	evaluated(remediate.No)
	alive(checkLeader, "pod-c", 0)
	alive(powerCycleLeader, "pod-x", 0)
	evaluated(remediate.Yes)
	for _, strategy := range []remediate.Strategy{remediate.PowerCycle, remediate.DeleteMachine} {
		r.Strategy = strategy
		require.Equal(t, remediate.No, lookAt(t, k, r).Seen.Contested, "both are alive, and neither would act on this Machine")
	}

	requested := ""
	require.NoError(t, c.Annotate(ctx, rig.MachineResource, r.Target.Machine, "host.metal3.io/external-remediation", &requested))
	s := lookAt(t, k, r).Seen
	assert.Equal(t, remediate.Yes, s.Contested, "the actuator acts on this Machine")
	assert.Contains(t, s.Contender, "pod-x")
	assert.Equal(t, remediate.No, lookAt(t, k, other).Seen.Contested, "and on no other")
	alive(powerCycleLeader, "pod-x", 10*time.Minute)
	assert.Equal(t, remediate.No, lookAt(t, k, r).Seen.Contested, "an expired leader is dead")

	alive(powerCycleLeader, "pod-x", 0)
	_, err := c.CreateCheck(ctx, rig.Check{Name: rigtest.Name("cycles"), Strategy: rig.BareMetalStrategy, Conditions: rig.NotReadyFor("300s")})
	require.NoError(t, err)
	s = lookAt(t, k, other).Seen
	assert.Equal(t, remediate.Yes, s.Contested, "the controller of the check may annotate it at any moment")
	assert.Contains(t, s.Contender, "pod-x")
	alive(checkLeader, "pod-c", 10*time.Minute)
	evaluated(remediate.No)
	assert.Equal(t, remediate.No, lookAt(t, k, other).Seen.Contested, "nobody annotates it")
}

// A policy power-cycles a Node whose Machine another check deletes, and that
// check's controller is alive.
func TestLookSeesTheRivalsOfOtherChecks(t *testing.T) { // I22
	c, ctx := rigtest.Shared(t), rigtest.Context(t, 3*time.Minute)
	k := dial(t, c)
	r := bareMetal(t, c, rig.Host{}, rig.Node{})
	machines := c.Dynamic().Resource(rig.MachineResource).Namespace(rig.Namespace)
	_, err := machines.Patch(ctx, r.Target.Machine, types.MergePatchType, []byte(`{"metadata":{"labels":{"only":"`+r.Target.Machine+`"}}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	require.NoError(t, c.PutLease(ctx, rig.Lease{Namespace: rig.Namespace, Name: checkLeader, Holder: "pod-y", Duration: time.Minute}))
	t.Cleanup(func() { // it would stop other tests
		err := c.Client().CoordinationV1().Leases(rig.Namespace).Delete(context.Background(), checkLeader, metav1.DeleteOptions{})
		assert.NoError(t, err)
	})
	require.Equal(t, remediate.No, lookAt(t, k, r).Seen.Contested, "no check that deletes covers the Machine")

	check := rig.Check{Name: rigtest.Name("deletes"), Match: map[string]string{"only": r.Target.Machine}, Conditions: rig.NotReadyFor("300s")}
	_, err = c.CreateCheck(ctx, check)
	require.NoError(t, err)
	s := lookAt(t, k, r).Seen
	assert.Equal(t, remediate.Yes, s.Contested)
	assert.Contains(t, s.Contender, "pod-y holds the Lease "+rig.Namespace+"/"+checkLeader)
	paused := ""
	require.NoError(t, c.Annotate(ctx, rig.CheckResource, check.Name, "cluster.x-k8s.io/paused", &paused))
	assert.Equal(t, remediate.No, lookAt(t, k, r).Seen.Contested, "paused, it does nothing")
}

func TestLookSeesPods(t *testing.T) { // I7
	c, ctx := rigtest.Shared(t), rigtest.Context(t, 3*time.Minute)
	k := dial(t, c)
	r := bareMetal(t, c, rig.Host{}, rig.Node{})
	assert.Equal(t, remediate.CannotTell, lookAt(t, k, r).Seen.PodsGone, "nobody asks before step 3")
	r.Step = remediate.PowerOn
	assert.Equal(t, remediate.Yes, lookAt(t, k, r).Seen.PodsGone)
	require.NoError(t, c.CreateNamespace(ctx, "pods"))
	require.NoError(t, c.CreatePod(ctx, "pods", rigtest.Name("pod"), r.Target.Node))
	assert.Equal(t, remediate.No, lookAt(t, k, r).Seen.PodsGone)
}

func TestLookWithoutRights(t *testing.T) {
	c := rigtest.Shared(t)
	r := bareMetal(t, c, rig.Host{}, rig.Node{})
	path, err := c.Kubeconfig("stranger")
	require.NoError(t, err)
	l := connected(t, path).Look(context.Background(), r, nil)
	assert.Equal(t, remediate.APIForbidden, l.Seen.API)
	assert.Equal(t, remediate.CannotTell, l.Seen.Node.Exists)
	assert.ErrorContains(t, l.Err, "forbidden")
}

// A kubeconfig may lead to another cluster with equal names later. // I2, I27
func TestLookAtAnotherClusterIsNoAnswer(t *testing.T) {
	c := rigtest.Shared(t)
	k := dial(t, c)
	r := bareMetal(t, c, rig.Host{}, rig.Node{SystemUUID: "su", BootID: "b1"})
	ns, err := c.Client().CoreV1().Namespaces().Get(t.Context(), "kube-system", metav1.GetOptions{})
	require.NoError(t, err)
	r.Target.ClusterUID = string(ns.UID)
	assert.Equal(t, string(ns.UID), lookAt(t, k, r).Seen.ClusterUID)

	r.Target.ClusterUID = "of another cluster"
	l := k.Look(t.Context(), r, nil)
	require.ErrorContains(t, l.Err, "point it to the former again")
	assert.Equal(t, remediate.APIUnreachable, l.Seen.API)
}

// So may that of a separate management cluster: a Machine that another one lacks is not gone. // I2, I27
func TestLookAtAnotherManagementClusterIsNoAnswer(t *testing.T) {
	inBothVersions(t, func(t *testing.T, b *blue) {
		k := watched(t, b.config(t))
		ns, err := b.manage.Client().CoreV1().Namespaces().Get(t.Context(), "kube-system", metav1.GetOptions{})
		require.NoError(t, err)
		l := lookAt(t, k, b.run)
		require.NoError(t, l.Err)
		assert.Equal(t, string(ns.UID), l.Seen.ManagementUID)
		assert.NotEqual(t, l.Seen.ClusterUID, l.Seen.ManagementUID)

		b.run.Target.ManagementUID = "of another cluster"
		l = k.Look(t.Context(), b.run, nil)
		require.ErrorContains(t, l.Err, "point it to the former again")
		assert.Equal(t, remediate.APIUnreachable, l.Seen.API)

		cfg := b.config(t) // without its rights there
		cfg.Management.Kubeconfig, err = b.manage.Kubeconfig("somebody")
		require.NoError(t, err)
		k, err = New(cfg, zap.NewNop())
		require.NoError(t, err)
		l = k.Look(t.Context(), b.run, nil)
		require.ErrorContains(t, l.Err, "apply rbac.yaml")
		assert.Empty(t, l.Seen.ManagementUID)
	})
}

// Each API family's controller is asked on the API where it runs, with no more rights
// than fenced has there.
func TestControllerAliveFindsTheController(t *testing.T) {
	ctx := rigtest.Context(t, 3*time.Minute)
	manage, work := rigtest.Apart(t, rig.CAPIv1beta2, rig.Metal3)
	forget(t, manage, "fenced")
	forget(t, work, "fenced-management")
	cfg := (&blue{manage: manage, work: work, cluster: "judged"}).config(t)
	capi, medik8s := rigtest.Name("wherever-capi-runs"), rigtest.Name("wherever-medik8s-runs")
	cfg.ControllerNamespaces = []string{capi, medik8s}
	k, err := New(cfg, zap.NewNop())
	require.NoError(t, err)
	for _, c := range []struct {
		id              policy.CheckID
		at              *rig.ControlPlane
		namespace, name string
	}{
		{policy.CheckID{Kind: policy.MachineHealthCheckKind, APIVersion: policy.OpenShiftMachineAPI}, work, machineAPINamespace, checkLeader},
		{policy.CheckID{Kind: policy.MachineHealthCheckKind, APIVersion: policy.ClusterAPIV1Beta1}, manage, capi, clusterAPILeader},
		{policy.CheckID{Kind: policy.MachineHealthCheckKind, APIVersion: policy.ClusterAPIV1Beta2}, manage, capi, clusterAPILeader},
		{policy.CheckID{Kind: policy.NodeHealthCheckKind, APIVersion: policy.Medik8sAPI}, work, medik8s, nodeCheckLeader},
	} {
		judged := func(want remediate.Answer, when string) {
			t.Helper()
			got, err := k.ControllerAlive(ctx, c.id)
			require.NoError(t, err)
			assert.Equal(t, want, got, c.id.APIVersion+" "+when)
		}
		require.NoError(t, c.at.CreateNamespace(ctx, c.namespace))
		k8stest.Until(t, time.Minute, "the API server knows the rights of fenced", func() bool {
			_, err := k.ControllerAlive(ctx, c.id)
			return err == nil
		})
		judged(remediate.No, "without a Lease")
		lease := rig.Lease{Namespace: c.namespace, Name: c.name, Holder: "judge-1", Duration: time.Minute}
		require.NoError(t, c.at.PutLease(ctx, lease))
		judged(remediate.Yes, "while its leader lives")
		lease.Renewed = time.Now().Add(-time.Hour)
		require.NoError(t, c.at.PutLease(ctx, lease))
		judged(remediate.No, "when its leader is dead")

		leases := c.at.Client().CoordinationV1().Leases(c.namespace)
		timeless, err := leases.Get(ctx, c.name, metav1.GetOptions{})
		require.NoError(t, err)
		timeless.Spec.RenewTime = nil
		_, err = leases.Update(ctx, timeless, metav1.UpdateOptions{})
		require.NoError(t, err)
		judged(remediate.Yes, "with a holder and no time, while it changes")
		require.NoError(t, leases.Delete(ctx, c.name, metav1.DeleteOptions{}))
	}
	got, err := k.ControllerAlive(ctx, policy.CheckID{Kind: policy.FencePolicyKind, APIVersion: policy.FencedAPI})
	require.NoError(t, err)
	assert.Equal(t, remediate.Yes, got, "nobody here writes the status of a FencePolicy")
}
