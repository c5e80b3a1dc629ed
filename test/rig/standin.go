package rig

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// API serves the API of a cluster in place of etcd and kube-apiserver. Package apiserver has one.
type API interface {
	URL() string
	RESTConfig(user string, groups ...string) *rest.Config
	Close()
}

// standIn is what stands in for the programs of a control plane.
type standIn struct {
	API
	audit *os.File
	stop  context.CancelFunc
	wg    sync.WaitGroup
}

func (c *ControlPlane) startStandIn() error {
	if err := c.dir.make(c.opts.Dir, "fenced-rig-"); err != nil {
		return fmt.Errorf("make the control plane's directory: %w", err)
	}
	audit, err := os.Create(c.file("audit.log"))
	if err != nil {
		return fmt.Errorf("make the audit log: %w", err)
	}
	api, err := c.opts.StandIn(audit)
	if err != nil {
		return err
	}
	c.standIn = &standIn{API: api, audit: audit, stop: func() {}}
	return c.connect()
}

func (s *standIn) end() {
	if s == nil {
		return
	}
	s.stop()
	s.wg.Wait()
	s.Close()
	_ = s.audit.Close() // each line is written as it comes
}

// replace creates an object, or replaces the one of its name.
func replace(ctx context.Context, client dynamic.ResourceInterface, obj *unstructured.Unstructured) error {
	_, err := client.Create(ctx, obj, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	was, err := client.Get(ctx, obj.GetName(), metav1.GetOptions{})
	if err != nil {
		return err
	}
	obj = obj.DeepCopy()
	obj.SetResourceVersion(was.GetResourceVersion())
	_, err = client.Update(ctx, obj, metav1.UpdateOptions{})
	return err
}

// watchHeartbeats does, until Stop, what the demo and fenced need of the controller manager: a Node without a heartbeat for the grace period becomes
// Unknown, and a Lease goes with the Node that owns it.
func (c *ControlPlane) watchHeartbeats() {
	ctx, cancel := context.WithCancel(context.Background())
	c.standIn.stop = cancel
	c.standIn.wg.Go(func() {
		beats := map[types.UID]lastBeat{}
		for Sleep(ctx, c.opts.GracePeriod/8) {
			_ = c.checkHeartbeats(ctx, beats) // after an error the next round tries again
		}
	})
}

// lastBeat is the last version of the Lease of a Node, and when it was first seen.
type lastBeat struct {
	version string
	at      time.Time
}

func (c *ControlPlane) checkHeartbeats(ctx context.Context, beats map[types.UID]lastBeat) error {
	nodes, err := c.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	client := c.client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	list, err := client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	leases := map[types.UID]*coordinationv1.Lease{} // by the Node that owns them
	for i := range list.Items {
		for _, o := range list.Items[i].OwnerReferences {
			leases[o.UID] = &list.Items[i]
		}
	}
	for i := range nodes.Items {
		n, now := &nodes.Items[i], lastBeat{at: time.Now()}
		if l := leases[n.UID]; l != nil {
			now.version = l.ResourceVersion
		}
		delete(leases, n.UID)
		if was, ok := beats[n.UID]; ok && was.version == now.version {
			now = was
		}
		beats[n.UID] = now
		if time.Since(now.at) > c.opts.GracePeriod && ReadyStatus(n) != corev1.ConditionUnknown {
			if err := c.setUnknown(ctx, n); err != nil {
				return err
			}
		}
	}
	for uid, l := range leases { // their Nodes are gone
		if err := client.Delete(ctx, l.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &l.UID}}); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		delete(beats, uid)
	}
	return nil
}

// setUnknown writes into a Node that nobody knows how it is, in the words of the controller manager.
func (c *ControlPlane) setUnknown(ctx context.Context, n *corev1.Node) error {
	now := metav1.Now()
	for i := range n.Status.Conditions {
		o := &n.Status.Conditions[i]
		o.Status, o.Reason, o.Message, o.LastTransitionTime = corev1.ConditionUnknown, "NodeStatusUnknown", "Kubelet stopped posting node status.", now
	}
	_, err := c.client.CoreV1().Nodes().UpdateStatus(ctx, n, metav1.UpdateOptions{})
	return err
}
