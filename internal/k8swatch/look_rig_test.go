package k8swatch

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fenced/fenced/internal/k8swatch/client"
	"github.com/fenced/fenced/internal/k8swatch/k8stest"
	"github.com/fenced/fenced/internal/k8swatch/look"
	"github.com/fenced/fenced/internal/k8swatch/view"
	"github.com/fenced/fenced/internal/k8swatch/write"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/test/must"
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
	must.Do(c.CreateMachineSet(ctx, set))(t)
	must.Do(c.CreateHost(ctx, h))(t)
	m := must.Do(c.CreateMachine(ctx, rig.Machine{Name: machine, MachineSet: set, Host: h.Name, NodeName: n.Name}))(t)
	node := must.Do(c.CreateNode(ctx, n))(t)
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
	h := must.Do(c.Dynamic().Resource(rig.HostResource).Namespace(rig.Namespace).Get(ctx, hostName(r), metav1.GetOptions{}))(t)
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

	must.Do(c.Client().CoreV1().Nodes().Patch(ctx, r.Target.Node, types.StrategicMergePatchType,
		[]byte(`{"status":{"conditions":[{"type":"Ready","status":"Unknown"}]}}`), metav1.PatchOptions{}, "status"))(t)
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
		got := must.Do(k.ControllerAlive(ctx, policy.CheckID{Kind: policy.MachineHealthCheckKind, APIVersion: policy.OpenShiftMachineAPI}))(t)
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
	must.Do(c.CreateCheck(ctx, rig.Check{Name: rigtest.Name("cycles"), Strategy: rig.BareMetalStrategy, Conditions: rig.NotReadyFor("300s")}))(t)
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
	must.Do(machines.Patch(ctx, r.Target.Machine, types.MergePatchType, []byte(`{"metadata":{"labels":{"only":"`+r.Target.Machine+`"}}}`), metav1.PatchOptions{}))(t)
	require.NoError(t, c.PutLease(ctx, rig.Lease{Namespace: rig.Namespace, Name: checkLeader, Holder: "pod-y", Duration: time.Minute}))
	t.Cleanup(func() { // it would stop other tests
		err := c.Client().CoordinationV1().Leases(rig.Namespace).Delete(context.Background(), checkLeader, metav1.DeleteOptions{})
		assert.NoError(t, err)
	})
	require.Equal(t, remediate.No, lookAt(t, k, r).Seen.Contested, "no check that deletes covers the Machine")

	check := rig.Check{Name: rigtest.Name("deletes"), Match: map[string]string{"only": r.Target.Machine}, Conditions: rig.NotReadyFor("300s")}
	must.Do(c.CreateCheck(ctx, check))(t)
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
	path := must.Do(c.Kubeconfig("stranger"))(t)
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
	ns := must.Do(c.Client().CoreV1().Namespaces().Get(t.Context(), "kube-system", metav1.GetOptions{}))(t)
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
		ns := must.Do(b.manage.Client().CoreV1().Namespaces().Get(t.Context(), "kube-system", metav1.GetOptions{}))(t)
		l := lookAt(t, k, b.run)
		require.NoError(t, l.Err)
		assert.Equal(t, string(ns.UID), l.Seen.ManagementUID)
		assert.NotEqual(t, l.Seen.ClusterUID, l.Seen.ManagementUID)

		b.run.Target.ManagementUID = "of another cluster"
		l = k.Look(t.Context(), b.run, nil)
		require.ErrorContains(t, l.Err, "point it to the former again")
		assert.Equal(t, remediate.APIUnreachable, l.Seen.API)

		cfg := b.config(t) // without its rights there
		cfg.Management.Kubeconfig = must.Do(b.manage.Kubeconfig("somebody"))(t)
		k = must.Do(New(cfg, zap.NewNop()))(t)
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
	k := must.Do(New(cfg, zap.NewNop()))(t)
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
			assert.Equal(t, want, must.Do(k.ControllerAlive(ctx, c.id))(t), c.id.APIVersion+" "+when)
		}
		require.NoError(t, c.at.CreateNamespace(ctx, c.namespace))
		k8stest.Until(t, "the API server knows the rights of fenced", func() bool {
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
		timeless := must.Do(leases.Get(ctx, c.name, metav1.GetOptions{}))(t)
		timeless.Spec.RenewTime = nil
		must.Do(leases.Update(ctx, timeless, metav1.UpdateOptions{}))(t)
		judged(remediate.Yes, "with a holder and no time, while it changes")
		require.NoError(t, leases.Delete(ctx, c.name, metav1.DeleteOptions{}))
	}
	got := must.Do(k.ControllerAlive(ctx, policy.CheckID{Kind: policy.FencePolicyKind, APIVersion: policy.FencedAPI}))(t)
	assert.Equal(t, remediate.Yes, got, "nobody here writes the status of a FencePolicy")
}

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
	node := must.Do(c.CreateNode(ctx, rig.Node{Name: "worker-1"}))(t)
	must.Do(c.CreateMachine(ctx, rig.Machine{Name: "worker-1", NodeName: "worker-1", Labels: map[string]string{"pool": "metal"}}))(t)
	must.Do(c.CreateCheck(ctx, rig.Check{Name: "metal", Strategy: rig.BareMetalStrategy, Match: map[string]string{"pool": "metal"}, Conditions: rig.NotReadyFor("300s")}))(t)
	for _, lease := range []string{checkLeader, powerCycleLeader} {
		require.NoError(t, c.PutLease(ctx, rig.Lease{Namespace: machineAPINamespace, Name: lease, Holder: "holds-" + lease, Duration: time.Hour}))
	}
	require.NoError(t, c.PutLease(ctx, rig.Lease{Namespace: "default", Name: nodeCheckLeader, Holder: "nobody", Duration: time.Hour}))
	k := dial(t, c)
	s := must.Do(TakeSurvey(ctx, k, "fenced"))(t)

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
	kubeconfig := must.Do(c.Kubeconfig("an-administrator", "system:masters"))(t)
	server := must.Do(look.Identify(ctx, connected(t, kubeconfig).servers.Work, "fenced"))(t)
	require.NoError(t, server.NamespaceErr)
	assert.Equal(t, string(must.Do(c.Client().CoreV1().Namespaces().Get(ctx, "fenced", metav1.GetOptions{}))(t).UID), server.NamespaceUID)
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
	kubeconfig := must.Do(c.Kubeconfig("nobody-in-particular"))(t)
	s := must.Do(TakeSurvey(ctx, connected(t, kubeconfig), "fenced"))(t)
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
