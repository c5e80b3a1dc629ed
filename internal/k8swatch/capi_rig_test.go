package k8swatch

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fenced/fenced/internal/k8swatch/client"
	"github.com/fenced/fenced/internal/k8swatch/k8stest"
	"github.com/fenced/fenced/internal/k8swatch/view"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/test/must"
	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/rig/rigtest"
)

// capiVersions are the versions of the Cluster API, each on a management API of
// its own.
var capiVersions = map[string]rig.CRDs{"v1beta1": rig.CAPIv1beta1, "v1beta2": rig.CAPIv1beta2}

// blue is one Cluster on a management API with a Machine whose Node is on the
// workload API.
type blue struct {
	manage, work           *rig.ControlPlane
	version                string
	cluster, machine, node string
	host                   string
	run                    remediate.Run
}

// inBothVersions runs a test against either version. fenced has on each API
// only that part of its rights which configs/rbac.yaml has for it.
func inBothVersions(t *testing.T, test func(t *testing.T, b *blue)) {
	for version, set := range capiVersions {
		t.Run(version, func(t *testing.T) {
			b := &blue{version: version}
			b.manage, b.work = rigtest.Apart(t, set, rig.Metal3)
			forget(t, b.manage, "fenced")
			forget(t, b.work, "fenced-management")
			b.create(t)
			test(t, b)
		})
	}
}

// forget takes one part of fenced's rights away.
func forget(t *testing.T, c *rig.ControlPlane, role string) {
	t.Helper()
	err := c.Client().RbacV1().ClusterRoleBindings().DeleteCollection(t.Context(), metav1.DeleteOptions{},
		metav1.ListOptions{FieldSelector: "metadata.name=" + role})
	require.NoError(t, err)
}

func (b *blue) create(t *testing.T) {
	t.Helper()
	ctx := rigtest.Context(t, 3*time.Minute)
	b.cluster, b.machine, b.node, b.host = rigtest.Name("blue"), rigtest.Name("capi-machine"), rigtest.Name("capi-node"), rigtest.Name("capi-host")
	set := rigtest.Name("capi-set")
	must.Do(b.manage.CreateCAPICluster(ctx, b.cluster))(t)
	must.Do(b.manage.CreateCAPIMachineSet(ctx, b.cluster, set))(t)
	must.Do(b.manage.CreateHost(ctx, rig.Host{Name: b.host, Address: "ipmi://192.0.2.1", User: "u", Password: "hush", Machine: b.machine}))(t)
	m := must.Do(b.manage.CreateCAPIMachine(ctx, rig.CAPIMachine{Name: b.machine, Cluster: b.cluster, MachineSet: set, Host: b.host, NodeName: b.node}))(t)
	n := must.Do(b.work.CreateNode(ctx, rig.Node{Name: b.node}))(t)
	b.run = remediate.Run{
		Strategy: remediate.PowerCycle, Step: remediate.PowerOff, Trigger: "Ready is Unknown",
		Target: remediate.Target{Node: b.node, NodeUID: string(n.UID), Namespace: rig.Namespace, Machine: b.machine,
			MachineUID: string(m.GetUID()), MachineAPI: m.GetAPIVersion(), BareMetalHost: rig.Namespace + "/" + b.host},
	}
}

// config reaches the cluster over both APIs.
func (b *blue) config(t *testing.T) Config {
	t.Helper()
	work := must.Do(b.work.Kubeconfig(rig.FencedUser))(t)
	manage := must.Do(b.manage.Kubeconfig(rig.FencedUser))(t)
	return Config{Config: view.Config{Name: b.cluster, Kubeconfig: work, FreshEvery: time.Second,
		Management: view.ManagementConfig{Kubeconfig: manage, Namespace: rig.Namespace, ClusterName: b.cluster}}}
}

// watched runs a Cluster until the test ends, and waits for its first view.
func watched(t *testing.T, cfg Config) *Cluster {
	t.Helper()
	k := must.Do(New(cfg, zap.NewNop()))(t)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- k.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
	k8stest.Until(t, "the first view", func() bool { return k.View().Synced })
	return k
}

func TestClusterAPIApart(t *testing.T) {
	inBothVersions(t, func(t *testing.T, b *blue) {
		ctx := rigtest.Context(t, 3*time.Minute)
		other, stranger, check, foreign := rigtest.Name("green"), rigtest.Name("green-machine"), rigtest.Name("blue-check"), rigtest.Name("green-check")
		must.Do(b.manage.CreateCAPICluster(ctx, other))(t)
		must.Do(b.manage.CreateCAPIMachine(ctx, rig.CAPIMachine{Name: stranger, Cluster: other}))(t)
		for name, of := range map[string]string{check: b.cluster, foreign: other} {
			must.Do(b.manage.CreateCAPICheck(ctx, rig.CAPICheck{Name: name, Cluster: of, Conditions: rig.NotReadyFor("300s"), MaxUnhealthy: "40%"}))(t)
		}
		k := watched(t, b.config(t))
		v := k8stest.Seen(k)
		require.NotNil(t, v.Machine(b.machine))
		assert.Equal(t, "cluster.x-k8s.io/"+b.version, v.Machine(b.machine).APIVersion)
		assert.Equal(t, b.node, v.Machine(b.machine).NodeName)
		assert.NotNil(t, v.Node(b.node), "from the workload API")
		require.NotNil(t, v.Check(check))
		assert.Empty(t, v.Check(check).Invalid)
		assert.Len(t, v.Check(check).Conditions, 2)
		require.NotNil(t, k8stest.Find[policy.Cluster](v, "Cluster", b.cluster))
		assert.True(t, k8stest.Find[policy.Cluster](v, "Cluster", b.cluster).ControlPlaneInitialized)
		h := must.Do(policy.HostFor(*v.Machine(b.machine), v.Hosts()))(t)
		assert.Equal(t, b.host, h.Name)
		_, password, err := k.Credentials(ctx, rig.Namespace, h.CredentialsName)
		require.NoError(t, err)
		assert.Equal(t, "hush", password.Reveal())

		assert.Nil(t, v.Machine(stranger), "of another Cluster")
		assert.Nil(t, v.Check(foreign), "of another Cluster")
		assert.Nil(t, k8stest.Find[policy.Cluster](v, "Cluster", other))
	})
}

// With the two APIs mixed up, Machines name Nodes that are nowhere. That is for
// the engine to refuse as NoNodesVisible; the view must not call it an error of
// its own, nor hide the Machines.
func TestMixedUpAPIsShowMachinesWithoutTheirNodes(t *testing.T) {
	inBothVersions(t, func(t *testing.T, b *blue) {
		admin := must.Do(b.manage.Kubeconfig("root", rig.AdminGroup))(t)
		cfg := b.config(t)
		cfg.Kubeconfig = admin // the management API in place of the workload API
		v := k8stest.Seen(watched(t, cfg))
		require.NotNil(t, v.Machine(b.machine))
		assert.Nil(t, v.Node(b.node))
	})
}

func TestMarkInPlaceOfDeletion(t *testing.T) {
	inBothVersions(t, func(t *testing.T, b *blue) {
		ctx := rigtest.Context(t, 3*time.Minute)
		k := must.Do(New(b.config(t), zap.NewNop()))(t)
		servedAt(k, b.version)
		l := lookAt(t, k, b.run)
		assert.Equal(t, remediate.Machine{Exists: remediate.Yes, UID: b.run.Target.MachineUID, Replaceable: remediate.Yes}, l.Seen.Machine)
		require.NotNil(t, l.Cluster)
		assert.True(t, l.Cluster.InfrastructureReady)
		assert.Empty(t, l.Seen.PowerForbidden, "the host's consumer is the infrastructure Machine")

		wrong := b.run
		wrong.Target.MachineUID = "00000000-0000-0000-0000-000000000000"
		require.Error(t, k.Act(ctx, wrong, remediate.DeleteTargetMachine, nil, remediate.Backup{}), "another Machine of this name") // I2
		require.False(t, lookAt(t, k, b.run).Seen.Machine.Marked)
		for range 2 {
			require.NoError(t, k.Act(ctx, b.run, remediate.DeleteTargetMachine, nil, remediate.Backup{}))
			s := lookAt(t, k, b.run).Seen.Machine
			require.True(t, s.Marked)
			require.Equal(t, remediate.Yes, s.Exists, "its owner deletes it")
		}
		u := must.Do(b.manage.Dynamic().Resource(rig.CAPIResource(b.version, "machines")).Namespace(rig.Namespace).Get(ctx, b.machine, metav1.GetOptions{}))(t)
		for which, list := range conditionsOf(u) {
			assert.Equal(t, "False", list.status("HealthCheckSucceeded"))
			assert.Equal(t, "False", list.status("OwnerRemediated"))
			assert.Equal(t, "True", list.status("InfrastructureReady"), "what others wrote stays")
			cond := list.find("OwnerRemediated")
			assert.Equal(t, "WaitingForRemediation", cond["reason"])
			assert.Equal(t, which == severe, cond["severity"] != nil)
		}

		must.Do(b.manage.Dynamic().Resource(rig.CAPIResource(b.version, "machines")).Namespace(rig.Namespace).
			Patch(ctx, b.machine, types.MergePatchType, []byte(`{"metadata": {"ownerReferences": null}}`), metav1.PatchOptions{}))(t)
		orphan := lookAt(t, k, b.run).Seen.Machine
		assert.False(t, orphan.Marked, "it was marked, but has no owner that would replace it") // I14
		assert.Equal(t, remediate.No, orphan.Replaceable)
		assert.Contains(t, orphan.Why, "no controller owns it")
	})
}

// servedAt makes a Cluster that does not run know where the Cluster API is.
func servedAt(k *Cluster, version string) {
	k.servers.Served = func(resource string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Group: client.ClusterGroup, Version: version, Resource: resource}
	}
}

func TestClusterAPIManagerIsARival(t *testing.T) { // I22
	inBothVersions(t, func(t *testing.T, b *blue) {
		ctx := rigtest.Context(t, 3*time.Minute)
		const namespace = "our-own-capi-system" // as its administrator likes
		cfg := b.config(t)
		cfg.ControllerNamespaces = []string{namespace}
		k := must.Do(New(cfg, zap.NewNop()))(t)
		servedAt(k, b.version)
		require.NoError(t, b.manage.CreateNamespace(ctx, namespace))
		require.NoError(t, b.manage.PutLease(ctx, rig.Lease{Namespace: namespace, Name: clusterAPILeader, Holder: "capi-1", Duration: 5 * time.Minute}))
		assert.Equal(t, remediate.No, lookAt(t, k, b.run).Seen.Contested, "no check of the manager's covers the Machine")

		name := rigtest.Name("rival-check")
		must.Do(b.manage.CreateCAPICheck(ctx, rig.CAPICheck{Name: name, Cluster: b.cluster, Conditions: rig.NotReadyFor("300s")}))(t)
		s := lookAt(t, k, b.run).Seen
		assert.Equal(t, remediate.Yes, s.Contested)
		assert.Contains(t, s.Contender, "capi-1")
		alive := must.Do(k.ControllerAlive(ctx, policy.CheckID{Kind: policy.MachineHealthCheckKind, APIVersion: b.run.Target.MachineAPI}))(t)
		assert.Equal(t, remediate.Yes, alive)
		paused := "true"
		require.NoError(t, b.manage.Annotate(ctx, rig.CAPIResource(b.version, "machinehealthchecks"), name, "cluster.x-k8s.io/paused", &paused))
		assert.Equal(t, remediate.No, lookAt(t, k, b.run).Seen.Contested, "paused, the manager leaves it to us")
		require.NoError(t, b.manage.Annotate(ctx, rig.CAPIResource(b.version, "machinehealthchecks"), name, "cluster.x-k8s.io/paused", nil))
		require.NoError(t, b.manage.PutLease(ctx, rig.Lease{Namespace: namespace, Name: clusterAPILeader, Holder: "capi-1",
			Duration: 5 * time.Minute, Renewed: time.Now().Add(-time.Hour)}))
		assert.Equal(t, remediate.No, lookAt(t, k, b.run).Seen.Contested, "an expired leader is dead")

		must.Do(b.work.Client().CoreV1().Nodes().Patch(ctx, b.node, types.MergePatchType,
			[]byte(`{"metadata":{"annotations":{"machine.openshift.io/machine":"ns/copy"}}}`), metav1.PatchOptions{}))(t)
		l := lookAt(t, k, b.run)
		require.NoError(t, l.Err, "no Machine of OpenShift is served")
		assert.Equal(t, remediate.No, l.Seen.Contested)
	})
}

// The health of a Machine is written on it, in both lists, where fenced evaluates; and never so
// that the owner would delete it.
func TestVerdictsAreWritten(t *testing.T) {
	inBothVersions(t, func(t *testing.T, b *blue) {
		ctx := rigtest.Context(t, 3*time.Minute)
		k := must.Do(New(b.config(t), zap.NewNop()))(t)
		servedAt(k, b.version)
		machines := b.manage.Dynamic().Resource(rig.CAPIResource(b.version, "machines")).Namespace(rig.Namespace)
		conditionsNow := func() (status, why [2]string) {
			u := must.Do(machines.Get(ctx, b.machine, metav1.GetOptions{}))(t)
			for which, list := range conditionsOf(u) {
				found := list.find("HealthCheckSucceeded")
				status[which] = list.status("HealthCheckSucceeded")
				why[which], _ = found["reason"].(string)
				assert.Equal(t, "True", list.status("InfrastructureReady"), "what others wrote stays")
			}
			return status, why
		}
		target := policy.TargetReport{Machine: rig.Namespace + "/" + b.machine, MachineUID: b.run.Target.MachineUID, MachineAPIVersion: b.run.Target.MachineAPI}
		written := map[string]string{}
		write := func(verdict policy.Verdict, code reason.Code) {
			target.Verdict, target.Reason, target.Message = verdict, code, "Ready is Unknown"
			r := policy.CheckReport{Kind: policy.MachineHealthCheckKind, APIVersion: b.run.Target.MachineAPI, UID: "check", Source: "cluster",
				State: policy.StateActive, Targets: []policy.TargetReport{target}}
			for more := true; more; {
				more = must.Do(k.WriteVerdicts(ctx, r, written))(t)
			}
		}
		write(policy.Pending, reason.NodeCondition)
		status, _ := conditionsNow()
		assert.Equal(t, [2]string{}, status, "no verdict yet")
		write(policy.Healthy, "")
		status, why := conditionsNow()
		assert.Equal(t, [2]string{"True", "True"}, status)
		assert.Equal(t, [2]string{"HealthCheckSucceeded", ""}, why)
		write(policy.Unhealthy, reason.NodeCondition)
		status, why = conditionsNow()
		assert.Equal(t, [2]string{"False", "False"}, status)
		assert.Equal(t, [2]string{"UnhealthyNode", "UnhealthyNodeCondition"}, why)
		write(policy.Healthy, "")

		another := target.MachineUID
		target.MachineUID = "00000000-0000-0000-0000-000000000000"
		write(policy.Unhealthy, reason.NodeCondition)
		status, _ = conditionsNow()
		assert.Equal(t, [2]string{"True", "True"}, status, "another Machine has the name now") // I2
		target.MachineUID = another

		require.NoError(t, k.Act(ctx, b.run, remediate.DeleteTargetMachine, nil, remediate.Backup{})) // marks it
		write(policy.Healthy, "")                                                                     // it has recovered before its owner replaced it
		write(policy.Unhealthy, reason.NodeCondition)
		status, _ = conditionsNow()
		assert.Equal(t, [2]string{"True", "True"}, status, "OwnerRemediated is still False: its owner would delete it")
	})
}

func TestStatusOfAClusterAPICheck(t *testing.T) {
	inBothVersions(t, func(t *testing.T, b *blue) {
		ctx := rigtest.Context(t, 3*time.Minute)
		k := must.Do(New(b.config(t), zap.NewNop()))(t)
		servedAt(k, b.version)
		name := rigtest.Name("told-check")
		made := must.Do(b.manage.CreateCAPICheck(ctx, rig.CAPICheck{Name: name, Cluster: b.cluster, Conditions: rig.NotReadyFor("300s")}))(t)
		read := func() *unstructured.Unstructured {
			return must.Do(b.manage.Dynamic().Resource(rig.CAPIResource(b.version, "machinehealthchecks")).Namespace(rig.Namespace).Get(ctx, name, metav1.GetOptions{}))(t)
		}
		r := policy.CheckReport{
			Kind: policy.MachineHealthCheckKind, APIVersion: made.GetAPIVersion(), Namespace: rig.Namespace, Name: name, UID: string(made.GetUID()),
			Source: "cluster", State: policy.StateActive, Expected: 2, Healthy: 1, Message: "1 of 2 targets are not healthy",
			Targets: []policy.TargetReport{{Machine: rig.Namespace + "/b"}, {Machine: rig.Namespace + "/a", Verdict: policy.Healthy}, {Verdict: policy.Skipped}},
		}
		checkStatusWrites(t, k, r, read, func(u *unstructured.Unstructured, allowed string) {
			for _, list := range conditionsOf(u) {
				assert.Equal(t, allowed, list.status("RemediationAllowed"))
			}
			targets, _, err := unstructured.NestedStringSlice(u.Object, "status", "targets")
			require.NoError(t, err)
			assert.Equal(t, []string{"a", "b"}, targets)
		})
		checkEvent(t, b.manage, k, r)
	})
}
