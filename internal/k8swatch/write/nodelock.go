package write

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fenced/fenced/internal/k8swatch/client"
	"github.com/fenced/fenced/internal/manifest"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
)

// medik8sLeases is the namespace of medik8s' Leases on Nodes. medik8s gives such a Lease an
// ownerReference to the Node. fenced's has none: step 2 deletes the Node, and the
// garbage collector would delete the Lease with it. All instances with one store are
// one holder: each of them continues the runs of the others.
const medik8sLeases = policy.NodeLockNamespace

// nodeLockDuration is for how long the Lease keeps others away after fenced was
// killed, or lost the API server.
const nodeLockDuration = 5 * time.Minute

// NodeLocks are the Leases on Nodes of the workload API, with the holder that fenced is.
type NodeLocks struct {
	work   *client.Server
	shared *client.SharedReads
	leases *client.LeaseClock
	holder string
	// request reads the remediation request of a run; nil if it is gone.
	request func(context.Context, remediate.Request) (*policy.Request, error)
}

// NewNodeLocks returns the Leases on Nodes of a workload API. request reads the remediation request of a run.
func NewNodeLocks(work *client.Server, shared *client.SharedReads, leases *client.LeaseClock, storeID string,
	request func(context.Context, remediate.Request) (*policy.Request, error),
) *NodeLocks {
	return &NodeLocks{work: work, shared: shared, leases: leases, holder: policy.OwnLockHolder + storeID, request: request}
}

// LockNode takes or renews medik8s' Lease on the Node of a run, as a second interlock
// beside the reads of Look. binds is for how long others respect it, counted at the
// latest from the start of the call; 0 if medik8s is not installed, so that there is
// nothing to take. If somebody else holds the Lease, LockNode writes nothing and
// returns the holder as a sentence. At a step that is not destructive it only renews
// what fenced holds: a Lease that medik8s took for its request to fenced is gone with
// the Node, and medik8s takes it again for the new one. // I22
func (n *NodeLocks) LockNode(ctx context.Context, run remediate.Run) (binds time.Duration, foreign string, err error) {
	ctx, cancel := context.WithTimeout(client.WithoutRetry(ctx), client.RequestTimeout)
	defer cancel()
	if installed, err := n.Medik8s(ctx); err != nil || !installed {
		return 0, "", err
	}
	api, name := n.work.API(), policy.NodeLockPrefix+run.Target.Node
	ctx, clock := client.WithClock(ctx)
	l, err := api.Lease(ctx, medik8sLeases, name)
	onlyRenew := !run.Step.Destructive()
	if client.IsGone(err, name) {
		if onlyRenew {
			return 0, "", nil
		}
		l = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: medik8sLeases}}
		n.holdNode(l, run, clock.Now(time.Now()))
		if _, err := api.Typed.Leases(medik8sLeases).Create(ctx, l, metav1.CreateOptions{}); err != nil {
			return 0, "", fmt.Errorf("create Lease %s/%s: %w", medik8sLeases, name, err)
		}
		return nodeLockDuration, "", nil
	}
	if err != nil {
		return 0, "", fmt.Errorf("read Lease %s/%s: %w", medik8sLeases, name, err)
	}
	now := clock.Now(time.Now())
	foreign, err = n.foreignNodeLease(ctx, l, now)
	if err == nil && foreign != "" && run.Request != nil {
		foreign, err = n.unlessAsked(ctx, run, l, foreign)
	}
	if foreign != "" || err != nil {
		return 0, foreign, err
	}
	own := time.Now()
	if who, until := n.leases.HeldUntil(l, policy.LongestNodeLock, now, own); who != "" && !n.holdsNode(l) { // a check that asks fenced holds it for us
		return until.Sub(own), "", nil
	}
	if onlyRenew && !n.holdsNode(l) {
		return 0, "", nil
	}
	n.holdNode(l, run, now)
	if _, err := api.Typed.Leases(medik8sLeases).Update(ctx, l, metav1.UpdateOptions{}); err != nil { // fails if the version changed
		return 0, "", fmt.Errorf("renew Lease %s/%s: %w", medik8sLeases, name, err)
	}
	return nodeLockDuration, "", nil
}

// UnlockNode deletes the Lease that LockNode took for this run. A Lease that somebody
// else, or a later run, holds by now is left alone.
func (n *NodeLocks) UnlockNode(ctx context.Context, run remediate.Run) error {
	ctx, cancel := context.WithTimeout(client.WithoutRetry(ctx), client.RequestTimeout)
	defer cancel()
	api, name := n.work.API(), policy.NodeLockPrefix+run.Target.Node
	l, err := api.Lease(ctx, medik8sLeases, name)
	switch {
	case client.IsGone(err, name):
		return nil
	case err != nil:
		return fmt.Errorf("read Lease %s/%s: %w", medik8sLeases, name, err)
	case !n.holdsNode(l) || l.Annotations[client.RunAnnotation] != run.ID:
		return nil
	}
	uid := types.UID(l.UID)
	err = api.Typed.Leases(medik8sLeases).Delete(ctx, name,
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &l.ResourceVersion}})
	if err != nil && !client.IsGone(err, name) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete Lease %s/%s: %w", medik8sLeases, name, err)
	}
	return nil
}

// holdsNode reports whether this installation holds a Lease on a Node.
func (n *NodeLocks) holdsNode(l *coordinationv1.Lease) bool {
	return l.Spec.HolderIdentity != nil && *l.Spec.HolderIdentity == n.holder
}

// holdNode changes a Lease on a Node so that we hold it for a run from now on. now is
// the API server's time: medik8s ignores a Lease that was renewed in the future.
func (n *NodeLocks) holdNode(l *coordinationv1.Lease, run remediate.Run, now time.Time) {
	holder, seconds, at := n.holder, int32(nodeLockDuration/time.Second), metav1.NewMicroTime(now)
	if !n.holdsNode(l) {
		l.Spec.AcquireTime, l.Spec.LeaseTransitions = &at, nextTransition(l.Spec)
	}
	l.Spec.HolderIdentity, l.Spec.LeaseDurationSeconds, l.Spec.RenewTime = &holder, &seconds, &at
	l.OwnerReferences = nil
	if l.Annotations == nil {
		l.Annotations = map[string]string{}
	}
	l.Annotations[client.RunAnnotation] = run.ID
}

// foreignNodeLease names who else holds a Lease on a Node at the API server's time; ""
// if nobody does, or a check that asks fenced to remediate the Node. // I22
func (n *NodeLocks) foreignNodeLease(ctx context.Context, l *coordinationv1.Lease, now time.Time) (string, error) {
	if n.holdsNode(l) {
		return "", nil
	}
	who := n.leases.HolderOf(l, policy.LongestNodeLock, now, time.Now())
	if who == "" {
		return "", nil
	}
	name, is := strings.CutPrefix(*l.Spec.HolderIdentity, policy.NodeCheckHolder)
	if !is {
		return who, nil
	}
	u, err := client.ReadCustom(ctx, n.work.API().Dynamic.Resource(client.NodeCheckGVR), client.Medik8sGroup, "", name)
	if err != nil {
		return who, nil // any holder counts
	}
	if check := manifest.NodeHealthCheck(u.Object); check.IsHandledByFenced() {
		return "", nil
	}
	return who, nil
}

// unlessAsked returns foreign, the holder of a Lease on a Node as a sentence; "" if the holder
// is the check that made the request of the run and has not given up on it: it holds the Node
// for whoever carries the request out. // I22
func (n *NodeLocks) unlessAsked(ctx context.Context, run remediate.Run, l *coordinationv1.Lease, foreign string) (string, error) {
	if run.Request.Kind == policy.MachineRequestKind {
		return foreign, nil
	}
	q, err := n.request(ctx, *run.Request)
	if err != nil {
		return "", err
	}
	if madeBy(q, *l.Spec.HolderIdentity) && q.TimedOut.IsZero() {
		return "", nil
	}
	return foreign, nil
}

// Foreign names who else holds the Lease on a Node, by an uncached read; "" if nobody does. // I22
func (n *NodeLocks) Foreign(ctx context.Context, api *client.Conn, node string) (string, error) {
	ctx, clock := client.WithClock(ctx)
	name := policy.NodeLockPrefix + node
	lease, err := api.Lease(ctx, medik8sLeases, name)
	if client.IsGone(err, name) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read Lease %s/%s: %w", medik8sLeases, name, err)
	}
	return n.foreignNodeLease(ctx, lease, clock.Now(time.Now()))
}

// MayLock asks the API server whether this user may lock a Node for medik8s, where that is installed: without
// the right a run would wait in vain for its interlock. exists and notRead are what HasLeases answered.
func (n *NodeLocks) MayLock(ctx context.Context, api *client.Conn, node string, exists bool, notRead error) error {
	installed, err := n.isMedik8sInstalled(ctx, exists, notRead)
	if err != nil || !installed {
		return err
	}
	for _, verb := range []string{"create", "update"} {
		err := api.Allows(ctx, authorizationv1.ResourceAttributes{
			Verb: verb, Group: coordinationv1.GroupName, Resource: "leases", Namespace: medik8sLeases})
		if err != nil {
			return fmt.Errorf("lock Node %s for medik8s (apply rbac-medik8s.yaml): %w", node, err)
		}
	}
	return nil
}

// Medik8s reports whether medik8s is installed: whether the namespace of its Leases
// exists. Where fenced may not read that, medik8s counts as installed if the API
// serves NodeHealthChecks.
func (n *NodeLocks) Medik8s(ctx context.Context) (bool, error) {
	exists, err := n.HasLeases(ctx)
	return n.isMedik8sInstalled(ctx, exists, err)
}

// isMedik8sInstalled is the same by what is known of that namespace.
func (n *NodeLocks) isMedik8sInstalled(ctx context.Context, exists bool, err error) (bool, error) {
	if apierrors.IsForbidden(err) && n.work.IsNotServed(ctx, client.Resource{Kind: policy.NodeHealthCheckKind, Group: client.Medik8sGroup, Plural: client.NodeCheckGVR.Resource}) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read whether medik8s is installed: read Namespace %s (apply rbac.yaml and rbac-medik8s.yaml): %w", medik8sLeases, err)
	}
	return exists, nil
}

// HasLeases reports whether the namespace of medik8s' Leases exists. Looks of the
// same moment share the read.
func (n *NodeLocks) HasLeases(ctx context.Context) (bool, error) {
	return client.ReadShared(ctx, n.shared, "namespace "+medik8sLeases, func(ctx context.Context) (bool, error) {
		ns, err := n.work.API().Typed.Namespaces().Get(ctx, medik8sLeases, metav1.GetOptions{})
		err = client.CheckObject(ns, err, "", medik8sLeases)
		if client.IsGone(err, medik8sLeases) {
			return false, nil
		}
		return err == nil, err
	})
}

// AskedBy reports whether the holder of medik8s' Lease, in a sentence, is the check that made a request.
func (n *NodeLocks) AskedBy(q *policy.Request, who string) bool { return madeBy(q, firstWord(who)) }

// madeBy reports whether the holder of medik8s' Lease on a Node is the check that made a
// request, and whose next remediator may be another one.
func madeBy(q *policy.Request, holder string) bool {
	check, is := strings.CutPrefix(holder, policy.NodeCheckHolder)
	return is && q != nil && slices.ContainsFunc(q.Owners, func(o policy.Owner) bool {
		return o.Kind == policy.NodeHealthCheckKind && o.Name == check
	})
}

// firstWord is the holder in a sentence about a Lease.
func firstWord(s string) string {
	word, _, _ := strings.Cut(s, " ")
	return word
}
