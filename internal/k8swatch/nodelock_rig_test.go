package k8swatch

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fenced/fenced/internal/k8swatch/client"
	"github.com/fenced/fenced/internal/k8swatch/k8stest"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/test/must"
	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/rig/rigtest"
)

// The Lease of medik8s on a Node, as others know it.
const (
	medik8sLeases    = "medik8s-leases"
	nodeLease        = "node-"
	medik8sHolder    = "NodeHealthCheck-"
	nodeLockDuration = 5 * time.Minute
)

// theLease reads medik8s' Lease on the Node of a run; nil if there is none.
func theLease(t *testing.T, c *rig.ControlPlane, r remediate.Run) *coordinationv1.Lease {
	t.Helper()
	l, err := c.Client().CoordinationV1().Leases(medik8sLeases).Get(t.Context(), nodeLease+r.Target.Node, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(t, err)
	return l
}

// renewed waits until a lock renews the Lease: the API server's time has whole seconds.
func renewed(t *testing.T, before *coordinationv1.Lease, lock func() *coordinationv1.Lease) {
	t.Helper()
	k8stest.Until(t, "the Lease is renewed", func() bool {
		l := lock()
		require.Equal(t, before.UID, l.UID, "it is the same Lease")
		require.Equal(t, *before.Spec.AcquireTime, *l.Spec.AcquireTime)
		return l.Spec.RenewTime.After(before.Spec.RenewTime.Time)
	})
}

// Where medik8s is not installed, there is nothing to take, and no right is needed.
func TestNoNodeLockWithoutMedik8s(t *testing.T) { // I22
	c := rigtest.Own(t, rig.Options{CRDs: []rig.CRDs{rig.OpenShift, rig.Metal3}})
	k := dial(t, c)
	r := bareMetal(t, c, rig.Host{}, rig.Node{})
	binds, foreign, err := k.LockNode(t.Context(), r)
	require.NoError(t, err)
	assert.Zero(t, binds)
	assert.Empty(t, foreign)
	require.NoError(t, k.UnlockNode(t.Context(), r))
	assert.Equal(t, remediate.No, lookAt(t, k, r).Seen.Contested)

	ctx := rigtest.Context(t, 3*time.Minute)
	roles := c.Client().RbacV1().ClusterRoles()
	role := must.Do(roles.Get(ctx, "fenced", metav1.GetOptions{}))(t)
	for i, rule := range role.Rules { // the right to read that of medik8s is missing
		if len(rule.Resources) == 1 && rule.Resources[0] == "namespaces" {
			role.Rules[i].ResourceNames = []string{client.IdentityNamespace}
		}
	}
	role = must.Do(roles.Update(ctx, role, metav1.UpdateOptions{}))(t)
	k8stest.Until(t, "the namespace cannot be read any more", func() bool {
		_, err := k.servers.Work.API().Typed.Namespaces().Get(ctx, medik8sLeases, metav1.GetOptions{})
		return apierrors.IsForbidden(err)
	})
	_, _, err = k.LockNode(ctx, r)
	require.NoError(t, err, "the API serves no NodeHealthChecks either")
	assert.Equal(t, remediate.No, lookAt(t, k, r).Seen.Contested)

	forget(t, c, "fenced-management")
	for i, rule := range role.Rules { // nor may fenced read which cluster this is: it does nothing, and says what is missing // I27
		if len(rule.Resources) == 1 && rule.Resources[0] == "namespaces" {
			role.Rules[i].ResourceNames = []string{medik8sLeases}
		}
	}
	must.Do(roles.Update(ctx, role, metav1.UpdateOptions{}))(t)
	k8stest.Until(t, "the cluster cannot be told any more", func() bool {
		_, err := k.servers.Work.API().Identity(ctx)
		return apierrors.IsForbidden(err)
	})
	l := k.Look(ctx, r, nil)
	require.ErrorContains(t, l.Err, "apply rbac.yaml")
	assert.Equal(t, remediate.APIForbidden, l.Seen.API)
	assert.Empty(t, l.Seen.ClusterUID)
}

// The Leases of others are held by a stand-in for medik8s' controllers.
func TestNodeLock(t *testing.T) { // I22
	c, ctx := okd(t), rigtest.Context(t, 3*time.Minute)
	require.NoError(t, c.InstallMedik8s(ctx))
	k := dialAs(t, c, "store-1")
	r := bareMetal(t, c, rig.Host{}, rig.Node{})
	r.ID = "run-1"
	theirs := func(holder string, age time.Duration) {
		t.Helper()
		require.NoError(t, c.PutLease(ctx, rig.Lease{Namespace: medik8sLeases, Name: nodeLease + r.Target.Node, Holder: holder,
			Duration: 10 * time.Minute, Renewed: time.Now().Add(-age)}))
	}
	locked := func() {
		t.Helper()
		binds, foreign, err := k.LockNode(ctx, r)
		require.NoError(t, err)
		require.Empty(t, foreign)
		require.Equal(t, nodeLockDuration, binds)
	}
	locked()
	first := theLease(t, c, r)
	require.NotNil(t, first)
	assert.Equal(t, "fenced-store-1", *first.Spec.HolderIdentity)
	assert.Equal(t, int32(300), *first.Spec.LeaseDurationSeconds)
	assert.Empty(t, first.OwnerReferences, "the deletion of the Node would delete it")
	assert.Equal(t, remediate.No, lookAt(t, k, r).Seen.Contested, "our own lock is no rival")

	other := dialAs(t, c, "store-2")
	assert.Contains(t, lookAt(t, other, r).Seen.Contender, "fenced-store-1", "it is one for another installation")
	_, foreign, err := other.LockNode(ctx, r)
	require.NoError(t, err)
	assert.Contains(t, foreign, "fenced-store-1")

	require.NoError(t, c.Client().CoreV1().Nodes().Delete(ctx, r.Target.Node, metav1.DeleteOptions{}))
	renewed(t, first, func() *coordinationv1.Lease { locked(); return theLease(t, c, r) })

	later := r
	later.ID = "run-2"
	require.NoError(t, k.UnlockNode(ctx, later))
	assert.NotNil(t, theLease(t, c, r), "that of another run is left alone")
	require.NoError(t, k.UnlockNode(ctx, r))
	assert.Nil(t, theLease(t, c, r))
	require.NoError(t, k.UnlockNode(ctx, r), "it is gone")

	theirs("NodeHealthCheck-x", 0)
	_, foreign, err = k.LockNode(ctx, r)
	require.NoError(t, err)
	assert.Contains(t, foreign, "NodeHealthCheck-x holds the Lease")
	assert.Equal(t, "NodeHealthCheck-x", *theLease(t, c, r).Spec.HolderIdentity)
	require.NoError(t, k.UnlockNode(ctx, r))
	assert.NotNil(t, theLease(t, c, r), "that of somebody else is left alone")

	theirs("NodeHealthCheck-x", time.Hour)
	owner := bareMetal(t, c, rig.Host{}, rig.Node{}).Target // that exists: the garbage collector leaves the Lease alone
	owned := theLease(t, c, r)                              // as medik8s makes it
	owned.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: owner.Node, UID: types.UID(owner.NodeUID)}}
	must.Do(c.Client().CoordinationV1().Leases(medik8sLeases).Update(ctx, owned, metav1.UpdateOptions{}))(t)
	locked()
	taken := theLease(t, c, r)
	assert.Equal(t, "fenced-store-1", *taken.Spec.HolderIdentity)
	assert.Empty(t, taken.OwnerReferences)

	ours := nodeCheck(t, c, rig.TemplateRef{APIVersion: "fenced.io/v1alpha1", Kind: "FencedRemediationTemplate", Name: "x"})
	theirs("NodeHealthCheck-"+ours, 0)
	binds, foreign, err := k.LockNode(ctx, r)
	require.NoError(t, err)
	assert.Empty(t, foreign, "it holds the Lease to have fenced do it")
	assert.Positive(t, binds)
	assert.Equal(t, "NodeHealthCheck-"+ours, *theLease(t, c, r).Spec.HolderIdentity, "and keeps it")
}

// At the steps that bring back, only what fenced holds is renewed.
func TestNodeLockIsOnlyRenewedOnTheWayBack(t *testing.T) {
	c, ctx := okd(t), rigtest.Context(t, 3*time.Minute)
	require.NoError(t, c.InstallMedik8s(ctx))
	k := dial(t, c)
	r := bareMetal(t, c, rig.Host{}, rig.Node{})
	r.Step = remediate.AwaitNode
	binds, foreign, err := k.LockNode(ctx, r)
	require.NoError(t, err)
	assert.Zero(t, binds)
	assert.Empty(t, foreign)
	assert.Nil(t, theLease(t, c, r))

	r.Step = remediate.DeleteNode
	_, _, err = k.LockNode(ctx, r)
	require.NoError(t, err)
	r.Step = remediate.AwaitNode
	renewed(t, theLease(t, c, r), func() *coordinationv1.Lease {
		_, _, err := k.LockNode(ctx, r)
		require.NoError(t, err)
		return theLease(t, c, r)
	})
	require.NoError(t, k.UnlockNode(ctx, r))
}

// What fenced holds for a remediator that it asks itself, it holds as for a run: against every other holder,
// also without the Node, until its own record gives it back.
func TestNodeLockForAnotherRemediator(t *testing.T) { // I22
	c, ctx := okd(t), rigtest.Context(t, 3*time.Minute)
	require.NoError(t, c.InstallMedik8s(ctx))
	k, other := dialAs(t, c, "store-1"), dialAs(t, c, "store-2")
	target := bareMetal(t, c, rig.Host{}, rig.Node{}).Target
	r := remediate.Run{ID: "record-1", Target: target, Step: remediate.PowerOff}
	binds, foreign, err := k.LockNode(ctx, r)
	require.NoError(t, err)
	require.Empty(t, foreign)
	assert.Equal(t, nodeLockDuration, binds)
	assert.Equal(t, "record-1", theLease(t, c, r).Annotations[client.RunAnnotation])
	_, foreign, err = other.LockNode(ctx, r)
	require.NoError(t, err)
	assert.Contains(t, foreign, "fenced-store-1")
	require.NoError(t, c.Client().CoreV1().Nodes().Delete(ctx, target.Node, metav1.DeleteOptions{}))
	renewed(t, theLease(t, c, r), func() *coordinationv1.Lease { // its remediator has deleted the Node
		_, foreign, err := k.LockNode(ctx, r)
		require.NoError(t, err)
		require.Empty(t, foreign)
		return theLease(t, c, r)
	})
	require.NoError(t, k.UnlockNode(ctx, remediate.Run{ID: "record-2", Target: target}))
	require.NotNil(t, theLease(t, c, r), "another record's")
	require.NoError(t, k.UnlockNode(ctx, r))
	assert.Nil(t, theLease(t, c, r))
}

// Where medik8s is installed, a run does not begin without the right to take its
// Lease, and says which file gives it.
func TestNodeLockNeedsItsRight(t *testing.T) { // I22
	c := rigtest.Own(t, rig.Options{CRDs: []rig.CRDs{rig.OpenShift, rig.Metal3, rig.Medik8s}})
	ctx := rigtest.Context(t, 3*time.Minute)
	require.NoError(t, c.CreateNamespace(ctx, medik8sLeases)) // and not its Role
	k := dial(t, c)
	r := bareMetal(t, c, rig.Host{}, rig.Node{})
	_, _, err := k.LockNode(ctx, r)
	require.True(t, apierrors.IsForbidden(err), "%v", err)
	l := k.Look(ctx, r, nil)
	assert.Equal(t, remediate.CannotTell, l.Seen.Contested)
	assert.ErrorContains(t, l.Err, "rbac-medik8s.yaml")
	r.Intervened = true
	assert.NoError(t, k.Look(ctx, r, nil).Err, "it is asked before a run begins")
}

// A check that escalates holds the Node for whoever it asks now: for fenced only while its
// request to fenced is the one that counts.
func TestNodeLockOfTheCheckThatAsked(t *testing.T) { // I22
	c, ctx := okd(t), rigtest.Context(t, 3*time.Minute)
	require.NoError(t, c.InstallMedik8s(ctx))
	require.NoError(t, c.InstallCRDs(ctx, rig.Fenced))
	k := dial(t, c)
	r := bareMetal(t, c, rig.Host{}, rig.Node{})
	check := nodeCheck(t, c, rig.TemplateRef{APIVersion: "self-node-remediation.medik8s.io/v1alpha1", Kind: "SelfNodeRemediationTemplate", Name: "next"})
	live := must.Do(c.Dynamic().Resource(client.NodeCheckGVR).Get(ctx, check, metav1.GetOptions{}))(t)
	q := askedFor(t, c, r.Target)
	requests := c.Dynamic().Resource(client.RequestGVR).Namespace(rig.Namespace)
	u := must.Do(requests.Get(ctx, q.Name, metav1.GetOptions{}))(t)
	u.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: live.GetAPIVersion(), Kind: live.GetKind(), Name: check, UID: live.GetUID()}})
	must.Do(requests.Update(ctx, u, metav1.UpdateOptions{}))(t)
	require.NoError(t, c.PutLease(ctx, rig.Lease{Namespace: medik8sLeases, Name: nodeLease + r.Target.Node, Holder: medik8sHolder + check,
		Duration: 10 * time.Minute, Renewed: time.Now()}))

	_, foreign, err := k.LockNode(ctx, r)
	require.NoError(t, err)
	assert.Contains(t, foreign, medik8sHolder+check, "it asks somebody else")
	r.Request = &q
	binds, foreign, err := k.LockNode(ctx, r)
	require.NoError(t, err)
	assert.Empty(t, foreign)
	assert.Positive(t, binds)
	assert.Equal(t, medik8sHolder+check, *theLease(t, c, r).Spec.HolderIdentity, "it keeps the Lease")

	at := time.Now().UTC().Format(time.RFC3339)
	require.NoError(t, c.Annotate(ctx, client.RequestGVR, q.Name, "remediation.medik8s.io/nhc-timed-out", &at))
	_, foreign, err = k.LockNode(ctx, r)
	require.NoError(t, err)
	assert.Contains(t, foreign, medik8sHolder+check, "it has given up on fenced")
}
