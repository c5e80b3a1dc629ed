package rig

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const leaseSeconds = 40 // the kubelet's default

// renewLease is the heartbeat. A running kubelet overwrites the Lease that it last wrote. It continues
// to do so when its Node is deleted, until the garbage collector deletes the Lease. It creates no new
// Lease without a Node.
func (b *boot) renewLease(ctx context.Context) error {
	if b.lease != nil {
		if err := b.writeLease(ctx, b.lease.DeepCopy()); err == nil {
			return nil
		}
		b.lease = nil // it changed or is gone; a kubelet reads it again after a failed write
	}
	lease, err := b.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, b.opts.NodeName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return b.createLease(ctx)
	}
	if err != nil {
		return fmt.Errorf("get the Lease of Node %s: %w", b.opts.NodeName, err)
	}
	return b.writeLease(ctx, lease)
}

func (b *boot) createLease(ctx context.Context) error {
	node, err := b.client.CoreV1().Nodes().Get(ctx, b.opts.NodeName, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("find the owner of the Lease of Node %s: %w", b.opts.NodeName, err)
	}
	seconds, renewed := int32(leaseSeconds), metav1.NewMicroTime(time.Now())
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Name: node.Name, Namespace: corev1.NamespaceNodeLease,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}},
		},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &node.Name, LeaseDurationSeconds: &seconds, RenewTime: &renewed},
	}
	b.lease, err = b.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Create(ctx, lease, metav1.CreateOptions{})
	if err != nil {
		b.lease = nil
		return fmt.Errorf("create the Lease of Node %s: %w", b.opts.NodeName, err)
	}
	return nil
}

func (b *boot) writeLease(ctx context.Context, lease *coordinationv1.Lease) error {
	renewed := metav1.NewMicroTime(time.Now())
	lease.Spec.RenewTime = &renewed
	made, err := b.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Update(ctx, lease, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("renew the Lease of Node %s: %w", b.opts.NodeName, err)
	}
	b.lease = made
	return nil
}
