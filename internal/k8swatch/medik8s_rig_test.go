package k8swatch

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fenced/fenced/internal/k8swatch/k8stest"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/test/must"
	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/rig/rigtest"
)

// okd is OpenShift with medik8s' operators.
func okd(t *testing.T) *rig.ControlPlane {
	t.Helper()
	return rigtest.Shared(t, rig.OpenShift, rig.Metal3, rig.Medik8s, rig.ClusterVersions, rig.Metal3Remediation)
}

func nodeCheck(t *testing.T, c *rig.ControlPlane, template rig.TemplateRef) string {
	t.Helper()
	name := rigtest.Name("nhc")
	must.Do(c.CreateNodeCheck(t.Context(), rig.NodeCheck{Name: name, Match: map[string]string{"pool": name}, MinHealthy: "51%", Template: template}))(t)
	t.Cleanup(func() { dropNodeCheck(t, c, name) }) // others look for what names no template
	return name
}

func dropNodeCheck(t *testing.T, c *rig.ControlPlane, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err := c.Dynamic().Resource(rig.NodeCheckResource).Delete(ctx, name, metav1.DeleteOptions{})
	if !apierrors.IsNotFound(err) {
		require.NoError(t, err)
	}
}

// The status of a NodeHealthCheck is written where its operator is not alive; the history in it
// stays.
func TestStatusOfANodeHealthCheck(t *testing.T) {
	c, ctx := okd(t), rigtest.Context(t, 3*time.Minute)
	k := dial(t, c)
	name := nodeCheck(t, c, rig.RemediationTemplate("reboot"))
	checks := c.Dynamic().Resource(rig.NodeCheckResource)
	read := func() *unstructured.Unstructured {
		return must.Do(checks.Get(ctx, name, metav1.GetOptions{}))(t)
	}
	history := `{"status": {"unhealthyNodes": [{"name": "n-9", "remediations": [{"resource": {"apiVersion": "a/v1", "kind": "K", "name": "n-9"}, "started": "2026-01-01T00:00:00Z"}]}]}}`
	must.Do(checks.Patch(ctx, name, types.MergePatchType, []byte(history), metav1.PatchOptions{}, "status"))(t)

	r := policy.CheckReport{Kind: policy.NodeHealthCheckKind, APIVersion: policy.Medik8sAPI, Name: name, UID: string(read().GetUID()), Source: "cluster",
		State: policy.StateActive, Expected: 3, Healthy: 2, Allowed: true, Targets: []policy.TargetReport{{Node: "n-1", Verdict: policy.Indeterminate, Reason: "UnderRemediation"}}}
	require.NoError(t, k.WriteStatus(ctx, r))
	written := read()
	status := written.Object["status"].(map[string]any)
	assert.EqualValues(t, 3, status["observedNodes"])
	assert.EqualValues(t, 2, status["healthyNodes"])
	assert.Equal(t, "Remediating", status["phase"])
	assert.Len(t, status["unhealthyNodes"], 1, "the history stays")
	assert.Equal(t, "False", conditions(status["conditions"].([]any)).status("Disabled"))
	require.NoError(t, k.WriteStatus(ctx, r))
	assert.Equal(t, written.GetResourceVersion(), read().GetResourceVersion(), "nothing changed, nothing is written")

	r.State, r.Conflicting, r.Message = policy.StateDisabled, true, "MachineHealthCheck a/b may remediate the same Nodes"
	require.NoError(t, k.WriteStatus(ctx, r))
	status = read().Object["status"].(map[string]any)
	assert.Equal(t, "Disabled", status["phase"])
	assert.Contains(t, status["reason"], "MachineHealthCheck a/b", "the check that conflicts is named")
	disabled := conditions(status["conditions"].([]any)).find("Disabled")
	assert.Equal(t, "True", disabled["status"])
	assert.Equal(t, "ConflictingMachineHealthCheckDetected", disabled["reason"])
	assert.EqualValues(t, 3, status["observedNodes"])

	id := policy.CheckID{Kind: r.Kind, APIVersion: r.APIVersion, Name: name}
	alive := must.Do(k.ControllerAlive(ctx, id))(t)
	assert.Equal(t, remediate.No, alive)
	const namespace = "openshift-workload-availability"
	require.NoError(t, c.CreateNamespace(ctx, namespace))
	require.NoError(t, c.PutLease(ctx, rig.Lease{Namespace: namespace, Name: nodeCheckLeader, Holder: "nhc-1", Duration: time.Minute}))
	t.Cleanup(func() { // it would stop other tests
		assert.NoError(t, c.Client().CoordinationV1().Leases(namespace).Delete(context.Background(), nodeCheckLeader, metav1.DeleteOptions{}))
	})
	alive = must.Do(k.ControllerAlive(ctx, id))(t)
	assert.Equal(t, remediate.Yes, alive)
}

func TestNodeHealthCheckAndItsRequests(t *testing.T) {
	c, ctx := okd(t), rigtest.Context(t, 3*time.Minute)
	r := bareMetal(t, c, rig.Host{}, rig.Node{})
	k := watching(t, c)
	good := nodeCheck(t, c, rig.RemediationTemplate("reboot"))
	forbidden := rig.RemediationTemplate("x") // of a kind that is installed, and that fenced may not read
	forbidden.Kind += "Template"
	secret := nodeCheck(t, c, forbidden)
	strange := nodeCheck(t, c, rig.TemplateRef{APIVersion: "apps/v1", Kind: "DeploymentTemplate", Name: "x"})
	absent := nodeCheck(t, c, rig.TemplateRef{APIVersion: "example.com/v1", Kind: "NoneTemplate", Name: "x"})
	defer func() { // what it saw in place of that
		if t.Failed() {
			for _, name := range []string{good, secret, strange, absent} {
				t.Logf("%s: %+v", name, k8stest.Seen(k).Check(name))
			}
			t.Logf("%+v", k.View())
		}
	}()
	k8stest.Until(t, "what can be read is judged", func() bool {
		v := k8stest.Seen(k)
		return v.Check(good) != nil && v.Check(good).Invalid == "" && v.Check(absent) != nil && v.Check(absent).Invalid == "" &&
			v.Check(secret) != nil && strings.Contains(v.Check(secret).Invalid, "forbidden") && v.Check(strange) != nil
	})
	assert.Contains(t, k8stest.Seen(k).Check(strange).Invalid, "from which no remediator makes requests")
	k8stest.Until(t, "requests that cannot be read hold up nobody else", func() bool { return k.View().Age < 5*time.Second })

	machine := must.Do(c.Dynamic().Resource(rig.MachineResource).Namespace(rig.Namespace).Get(ctx, r.Target.Machine, metav1.GetOptions{}))(t)
	require.Equal(t, remediate.No, lookAt(t, k, r).Seen.Contested)
	must.Do(c.CreateRemediation(ctx, machine, "reboot"))(t)
	k8stest.Until(t, "the request is seen", func() bool {
		return k8stest.Find[policy.Request](k8stest.Seen(k), "Metal3Remediation", r.Target.Machine) != nil
	})
	s := lookAt(t, k, r).Seen
	assert.Equal(t, remediate.Yes, s.Contested, "I22")
	assert.Contains(t, s.Contender, "Metal3Remediation")

	for check, why := range map[string]string{secret: "forbidden", strange: "from which no remediator makes requests"} {
		s = lookAt(t, k, bareMetal(t, c, rig.Host{}, rig.Node{Labels: map[string]string{"pool": check}})).Seen
		assert.Equal(t, remediate.Yes, s.Contested, "whether somebody is asked to repair it cannot be read")
		assert.Contains(t, s.Contender, why)
	}
	for _, name := range []string{good, secret, strange, absent} {
		dropNodeCheck(t, c, name)
	}
	k8stest.Until(t, "no check names the kind any more", func() bool { return k8stest.Seen(k).Check(good) == nil })
	s = lookAt(t, k, r).Seen
	assert.Equal(t, remediate.Yes, s.Contested, "Metal3's provider carries it out all the same") // I22
	assert.Contains(t, s.Contender, "Metal3Remediation")
}

func TestNodeLeaseOfMedik8sIsARival(t *testing.T) { // I22
	c, ctx := okd(t), rigtest.Context(t, 3*time.Minute)
	k := dial(t, c)
	r := bareMetal(t, c, rig.Host{}, rig.Node{})
	require.NoError(t, c.InstallMedik8s(ctx))
	hold := func(holder string) remediate.Observation {
		require.NoError(t, c.PutLease(ctx, rig.Lease{Namespace: medik8sLeases, Name: "node-" + r.Target.Node, Holder: holder, Duration: 5 * time.Minute}))
		return lookAt(t, k, r).Seen
	}
	assert.Equal(t, remediate.Yes, hold("node-maintenance").Contested)
	assert.Contains(t, hold("NodeHealthCheck-gone").Contender, "NodeHealthCheck-gone")
	theirs := nodeCheck(t, c, rig.RemediationTemplate("reboot"))
	assert.Equal(t, remediate.Yes, hold("NodeHealthCheck-"+theirs).Contested)
	ours := nodeCheck(t, c, rig.TemplateRef{APIVersion: "fenced.io/v1alpha1", Kind: "FencedRemediationTemplate", Name: "x"})
	assert.Equal(t, remediate.No, hold("NodeHealthCheck-"+ours).Contested, "it asks us to do it")
	nobody := nodeCheck(t, c, rig.TemplateRef{})
	assert.Equal(t, remediate.Yes, hold("NodeHealthCheck-"+nobody).Contested, "whom it asks is not known")
}

func TestUpgradeIsSeen(t *testing.T) {
	c, ctx := okd(t), rigtest.Context(t, 3*time.Minute)
	k := watching(t, c)
	for _, progressing := range []bool{true, false} {
		require.NoError(t, c.PutClusterVersion(ctx, progressing))
		k8stest.Until(t, "the upgrade begins and ends", func() bool {
			u := k8stest.Find[policy.Upgrade](k8stest.Seen(k), "ClusterVersion", "version")
			return u != nil && (u.Why != "") == progressing
		})
	}
}

func TestEtcdMembers(t *testing.T) { // I12
	c, ctx := okd(t), rigtest.Context(t, 3*time.Minute)
	k := watching(t, c)
	r := bareMetal(t, c, rig.Host{}, rig.Node{})
	assert.False(t, lookAt(t, k, r).MembersKnown, "nobody asks about a worker")
	r.ControlPlane = true
	before := lookAt(t, k, r)
	require.True(t, before.MembersKnown)

	require.NoError(t, c.CreatePod(ctx, metav1.NamespaceSystem, "etcd-"+r.Target.Node, r.Target.Node))
	pods := c.Client().CoreV1().Pods(metav1.NamespaceSystem)
	patch := func(text string, sub ...string) {
		must.Do(pods.Patch(ctx, "etcd-"+r.Target.Node, types.MergePatchType, []byte(text), metav1.PatchOptions{}, sub...))(t)
	}
	patch(`{"metadata":{"labels":{"component":"etcd"}}}`)
	assert.Equal(t, append(before.Members, policy.Member{Node: r.Target.Node}), lookAt(t, k, r).Members, "not Ready yet")
	patch(`{"status":{"conditions":[{"type":"`+string(corev1.PodReady)+`","status":"True"}]}}`, "status")
	assert.Contains(t, lookAt(t, k, r).Members, policy.Member{Node: r.Target.Node, Healthy: true})
	k8stest.Until(t, "the member is watched, too", func() bool {
		p := k8stest.Find[policy.Pod](k8stest.Seen(k), "Pod", "etcd-"+r.Target.Node)
		return p != nil && p.Ready && p.Member && p.Node == r.Target.Node
	})
	patch(`{"metadata":{"labels":{"component":"kube-apiserver"}}}`)
	assert.NotContains(t, lookAt(t, k, r).Members, policy.Member{Node: r.Target.Node, Healthy: true}, "an API server is no member")
	k8stest.Until(t, "the API server is watched", func() bool {
		p := k8stest.Find[policy.Pod](k8stest.Seen(k), "Pod", "etcd-"+r.Target.Node)
		return p != nil && !p.Member && p.Node == r.Target.Node
	})
	patch(`{"metadata":{"labels":{"component":"etcd"}}}`)
	require.NoError(t, c.Client().CoreV1().Nodes().Delete(ctx, r.Target.Node, metav1.DeleteOptions{}))
	assert.Contains(t, lookAt(t, k, r).Members, policy.Member{Node: r.Target.Node}, "a Pod on a Node that is gone is no healthy member")
}
