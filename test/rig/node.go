package rig

import (
	"cmp"
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
)

// Node is a Node to create without a kubelet. Nobody renews its Lease, so the controller manager sets
// Ready=Unknown after a while.
type Node struct {
	Name                string
	SystemUUID          string
	BootID              string
	Ready               corev1.ConditionStatus // the status of the condition Ready; True if empty
	Labels, Annotations map[string]string
	Taints              []corev1.Taint
	Unschedulable       bool
}

// CreateNode creates a Node that has no kubelet.
func (c *ControlPlane) CreateNode(ctx context.Context, n Node) (*corev1.Node, error) {
	now := metav1.Now()
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: n.Labels, Annotations: n.Annotations},
		Spec:       corev1.NodeSpec{Taints: n.Taints, Unschedulable: n.Unschedulable},
		Status: corev1.NodeStatus{
			NodeInfo: corev1.NodeSystemInfo{SystemUUID: n.SystemUUID, BootID: n.BootID},
			Conditions: []corev1.NodeCondition{{
				Type: corev1.NodeReady, Status: cmp.Or(n.Ready, corev1.ConditionTrue), Reason: "Rig", LastHeartbeatTime: now, LastTransitionTime: now,
			}},
		},
	}
	client := c.client.CoreV1().Nodes()
	node, err := createWhileBusy(ctx,
		func() (*corev1.Node, error) { return client.Create(ctx, node, metav1.CreateOptions{}) },
		func() (*corev1.Node, error) { return client.Get(ctx, n.Name, metav1.GetOptions{}) })
	if err != nil {
		return nil, fmt.Errorf("create Node %s: %w", n.Name, err)
	}
	return node, nil
}

// CreatePod creates a pod of one container that is bound to a Node. No kubelet runs it. When the Node is
// gone, the controller manager deletes the pod, 40 to 60 s later.
func (c *ControlPlane) CreatePod(ctx context.Context, namespace, name, node string) error {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PodSpec{
			NodeName:                     node,
			AutomountServiceAccountToken: new(bool),
			Containers:                   []corev1.Container{{Name: "main", Image: "example.com/none"}},
		},
	}
	for { // the service account exists only a moment after its namespace
		client := c.client.CoreV1().Pods(namespace)
		_, err := createWhileBusy(ctx,
			func() (*corev1.Pod, error) { return client.Create(ctx, pod, metav1.CreateOptions{}) },
			func() (*corev1.Pod, error) { return client.Get(ctx, name, metav1.GetOptions{}) })
		if err == nil {
			return nil
		}
		if !apierrors.IsForbidden(err) || !Sleep(ctx, 100*time.Millisecond) {
			return fmt.Errorf("create Pod %s/%s: %w", namespace, name, err)
		}
	}
}

// Lease is a Lease that a test creates or renews: that of another installation of fenced, or of a
// controller's leader election.
type Lease struct {
	Namespace, Name, Holder string
	Duration                time.Duration
	Renewed                 time.Time // the time of the renewal; now if zero
}

// PutLease creates a Lease, or overwrites the one with its name.
func (c *ControlPlane) PutLease(ctx context.Context, l Lease) error {
	if l.Renewed.IsZero() {
		l.Renewed = time.Now()
	}
	renewed, seconds := metav1.NewMicroTime(l.Renewed), int32(l.Duration/time.Second)
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: l.Namespace, Name: l.Name},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &l.Holder, LeaseDurationSeconds: &seconds, RenewTime: &renewed, AcquireTime: &renewed,
		},
	}
	client := c.client.CoordinationV1().Leases(l.Namespace)
	err := WhileBusy(ctx, func() error {
		lease.ResourceVersion = ""
		_, err := client.Create(ctx, lease, metav1.CreateOptions{})
		if !apierrors.IsAlreadyExists(err) {
			return err
		}
		old, err := client.Get(ctx, l.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		lease.ResourceVersion = old.ResourceVersion // an update of a Lease needs it
		_, err = client.Update(ctx, lease, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("put Lease %s/%s: %w", l.Namespace, l.Name, err)
	}
	return nil
}

// WaitNode polls until ok returns true for the Node, which is nil while it does not exist. The error
// says what the Node was last.
func (c *ControlPlane) WaitNode(ctx context.Context, name string, ok func(*corev1.Node) bool) (*corev1.Node, error) {
	var last string
	for {
		node, err := c.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		switch {
		case err == nil:
			last = fmt.Sprintf("UID %s, boot ID %s, Ready=%s", node.UID, node.Status.NodeInfo.BootID, ReadyStatus(node))
		case apierrors.IsNotFound(err):
			node, last = nil, "no such Node"
		default:
			last = err.Error()
		}
		if (err == nil || apierrors.IsNotFound(err)) && ok(node) {
			return node, nil
		}
		if !Sleep(ctx, 200*time.Millisecond) {
			return nil, fmt.Errorf("wait for Node %s: %w; last seen: %s", name, ctx.Err(), last)
		}
	}
}

// AgeLease makes the Lease of a Node as old as that of a host that hung so long ago.
func (c *ControlPlane) AgeLease(ctx context.Context, node string, age time.Duration) error {
	renewed := metav1.NewMicroTime(time.Now().Add(-age))
	leases := c.client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error { // with what was under way when the kubelet hung
		l, err := leases.Get(ctx, node, metav1.GetOptions{})
		if err == nil {
			l.Spec.RenewTime = &renewed
			_, err = leases.Update(ctx, l, metav1.UpdateOptions{})
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("age the Lease of %s: %w", node, err)
	}
	return nil
}

// ReadyStatus is the status of the Ready condition; empty without a Node or a condition.
func ReadyStatus(n *corev1.Node) corev1.ConditionStatus {
	if cond := readyOf(n); cond != nil {
		return cond.Status
	}
	return ""
}

func readyOf(n *corev1.Node) *corev1.NodeCondition {
	if n == nil {
		return nil
	}
	for i := range n.Status.Conditions {
		if n.Status.Conditions[i].Type == corev1.NodeReady {
			return &n.Status.Conditions[i]
		}
	}
	return nil
}

// forbidden is an administrator's policy: name, node, annotation, message.
const forbidden = `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: %[1]s}
spec:
  matchConstraints:
    resourceRules: [{resourceNames: [%[2]s], operations: [UPDATE], apiGroups: [""], apiVersions: [v1], resources: [nodes]}]
  validations:
    - expression: '!has(object.metadata.annotations) || !(%[3]q in object.metadata.annotations)'
      message: %[4]q
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: %[1]s}
spec: {policyName: %[1]s, validationActions: [Deny]}
`

// Forbid makes the API server refuse every change that gives a Node an annotation, as an
// administrator's policy may. It returns when the server does so. allow ends that.
func (c *ControlPlane) Forbid(ctx context.Context, node, annotation, message string) (allow func(context.Context) error, err error) {
	name := "forbid-" + node
	if err := c.Apply(ctx, fmt.Appendf(nil, forbidden, name, node, annotation, message)); err != nil {
		return nil, err
	}
	bindings := c.dynamic.Resource(schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicybindings"})
	allow = func(ctx context.Context) error {
		if err := bindings.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			return fmt.Errorf("unbind the policy %s: %w", name, err)
		}
		return c.awaitAdmission(ctx, node, annotation, false)
	}
	return allow, c.awaitAdmission(ctx, node, annotation, true)
}

// awaitAdmission waits until the API server refuses, or accepts, the annotation on a Node.
func (c *ControlPlane) awaitAdmission(ctx context.Context, node, annotation string, refused bool) error {
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"tried"}}}`, annotation)
	for {
		_, err := c.client.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, patch, metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		if (err == nil) != refused && (err == nil || apierrors.IsInvalid(err) || apierrors.IsForbidden(err)) {
			return nil
		}
		if !Sleep(ctx, 100*time.Millisecond) {
			return fmt.Errorf("wait for what Node %s may be given: %w", node, ctx.Err())
		}
	}
}
