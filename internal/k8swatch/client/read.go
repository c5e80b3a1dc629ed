package client

import (
	"context"
	"errors"
	"fmt"
	"slices"

	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/fenced/fenced/internal/remediate"
)

var (
	// errAnotherObject: the answer is not the requested object. The client decodes
	// any JSON, such as the page of a proxy, into an empty object of the wanted
	// type: a Lease that was never renewed, or a Node without a kubelet.
	errAnotherObject = errors.New("the answer is not the requested object")
	// errNoList: the answer is not a list from an API server. An empty list in it
	// does not mean that there are no objects.
	errNoList = errors.New("the answer is not a list from the API server")
)

// Node reads a Node with an uncached read.
func (cl *Conn) Node(ctx context.Context, name string) (*corev1.Node, error) {
	n, err := cl.Typed.Nodes().Get(ctx, name, metav1.GetOptions{})
	return n, CheckObject(n, err, "", name)
}

// Lease reads a Lease with an uncached read.
func (cl *Conn) Lease(ctx context.Context, namespace, name string) (*coordinationv1.Lease, error) {
	l, err := cl.Typed.Leases(namespace).Get(ctx, name, metav1.GetOptions{})
	return l, CheckObject(l, err, namespace, name)
}

// Pods lists Pods of a namespace with an uncached read.
func (cl *Conn) Pods(ctx context.Context, namespace string, o metav1.ListOptions) (*corev1.PodList, error) {
	list, err := cl.Typed.Pods(namespace).List(ctx, o)
	return list, CheckList(list, err)
}

// ReadCustom reads an object of an API group with an uncached read.
func ReadCustom(ctx context.Context, api dynamic.ResourceInterface, group, namespace, name string) (*unstructured.Unstructured, error) {
	u, err := api.Get(ctx, name, metav1.GetOptions{})
	if err == nil && GroupOf(u.GetAPIVersion()) != group {
		return nil, errAnotherObject
	}
	return u, CheckObject(u, err, namespace, name)
}

// CheckObject returns an error if the answer is not the requested object. // I2
func CheckObject(o metav1.Object, err error, namespace, name string) error {
	if err == nil && (o.GetName() != name || o.GetNamespace() != namespace || o.GetUID() == "" || o.GetResourceVersion() == "") {
		return errAnotherObject
	}
	return err
}

// CheckList returns an error if the answer is not a list. Otherwise objects that
// are missing in it would count as deleted. // I2
func CheckList(list metav1.ListInterface, err error) error {
	if err == nil && list.GetResourceVersion() == "" {
		return errNoList
	}
	return err
}

// IsGone reports whether the API server itself answered that the object of this
// name does not exist. A 404 from a proxy, or from an API group that is not
// served, says nothing about the object. An error page must never make a Node
// count as deleted. // I2
func IsGone(err error, name string) bool {
	if !apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) {
		return false
	}
	var answer apierrors.APIStatus
	return errors.As(err, &answer) && answer.Status().Details != nil && answer.Status().Details.Name == name
}

// IsRefused reports whether the API server or an admission webhook rejected a
// write because of its content.
func IsRefused(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err)
}

// PageSize is of lists that the API server cannot stream.
const PageSize = 500

// podsPage is more pods than a kubelet runs.
const podsPage = 500

// PodsOf lists the pods that are bound to a Node, other than Succeeded and Failed
// ones and mirrors of static pods, which go with the kubelet. more: there are more
// than one page of them.
func (cl *Conn) PodsOf(ctx context.Context, node string) (bound []corev1.Pod, more bool, err error) {
	list, err := cl.Pods(ctx, metav1.NamespaceAll, metav1.ListOptions{
		FieldSelector: fields.AndSelectors(
			fields.OneTermEqualSelector("spec.nodeName", node),
			fields.OneTermNotEqualSelector("status.phase", string(corev1.PodSucceeded)),
			fields.OneTermNotEqualSelector("status.phase", string(corev1.PodFailed)),
		).String(),
		Limit: podsPage,
	})
	if err != nil {
		return nil, false, fmt.Errorf("list the pods of Node %s: %w", node, err)
	}
	for i := range list.Items {
		if _, mirror := list.Items[i].Annotations[corev1.MirrorPodAnnotationKey]; !mirror {
			bound = append(bound, list.Items[i])
		}
	}
	return bound, list.Continue != "", nil
}

const attachmentPages = 40 // of PageSize

// AttachmentsOf lists the VolumeAttachments of a Node that nobody has deleted yet.
// The API server cannot select them by Node.
func (cl *Conn) AttachmentsOf(ctx context.Context, node string) (attached []storagev1.VolumeAttachment, err error) {
	options := metav1.ListOptions{Limit: PageSize}
	for range attachmentPages {
		list, err := cl.Typed.VolumeAttachments().List(ctx, options)
		if err = CheckList(list, err); err != nil {
			return nil, fmt.Errorf("list the VolumeAttachments of Node %s: %w", node, err)
		}
		for i := range list.Items {
			if a := &list.Items[i]; a.Spec.NodeName == node && a.DeletionTimestamp == nil {
				attached = append(attached, *a)
			}
		}
		if options.Continue = list.Continue; options.Continue == "" {
			return attached, nil
		}
	}
	return nil, fmt.Errorf("list the VolumeAttachments of Node %s: there are more than %d", node, attachmentPages*PageSize)
}

// IdentityNamespace is the namespace whose UID says which cluster an API server belongs to. It is as
// old as the cluster, and cannot be deleted.
const IdentityNamespace = "kube-system"

// Identity says which cluster an API server belongs to.
func (cl *Conn) Identity(ctx context.Context) (string, error) {
	ns, err := cl.Typed.Namespaces().Get(ctx, IdentityNamespace, metav1.GetOptions{})
	if err = CheckObject(ns, err, "", IdentityNamespace); err != nil {
		return "", fmt.Errorf("read Namespace %s, to know the cluster again: %w", IdentityNamespace, err)
	}
	return string(ns.GetUID()), nil
}

// Allows asks the API server for a right of this user. An error is one of kind Forbidden if the
// user does not have it.
func (cl *Conn) Allows(ctx context.Context, what authorizationv1.ResourceAttributes) error {
	review, err := cl.Typed.SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &what},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("ask for the right to %s %s %s: %w", what.Verb, what.Resource, what.Name, err)
	}
	if !review.Status.Allowed {
		return apierrors.NewForbidden(schema.GroupResource{Group: what.Group, Resource: what.Resource}, what.Name, fmt.Errorf("this user may not %s %s", what.Verb, what.Resource))
	}
	return nil
}

// OutOfService is the taint that tells Kubernetes that a Node is off: Kubernetes
// then deletes its pods and detaches its volumes at once.
var OutOfService = corev1.Taint{Key: corev1.TaintNodeOutOfService, Value: "nodeshutdown", Effect: corev1.TaintEffectNoExecute}

// HasTaint reports whether a list has a taint, whatever its value.
func HasTaint(list []corev1.Taint, t corev1.Taint) bool {
	return slices.ContainsFunc(list, func(o corev1.Taint) bool { return o.MatchTaint(&t) })
}

// IsReleasable reports whether a pod is to be forced out. One that tolerates the
// taint is left where the Node stays: its controller would only put it there
// again. One that was forced out already waits for its finalizers.
func IsReleasable(p *corev1.Pod, isolation remediate.Isolation) bool {
	forced := p.DeletionTimestamp != nil && p.DeletionGracePeriodSeconds != nil && *p.DeletionGracePeriodSeconds == 0
	return !forced && !(isolation == remediate.IsolateTaint && toleratesOutOfService(p))
}

func toleratesOutOfService(p *corev1.Pod) bool {
	for i := range p.Spec.Tolerations {
		t := &p.Spec.Tolerations[i]
		key := t.Key == OutOfService.Key || t.Key == "" && t.Operator == corev1.TolerationOpExists
		effect := t.Effect == "" || t.Effect == OutOfService.Effect
		value := t.Operator == corev1.TolerationOpExists || t.Value == OutOfService.Value
		if key && effect && value {
			return true
		}
	}
	return false
}

// ObservedNode is what an observation says about a Node, except whether it is Ready.
func ObservedNode(n *corev1.Node) remediate.Node {
	return remediate.Node{
		Exists: remediate.Yes, UID: string(n.UID), ResourceVersion: n.ResourceVersion,
		BootID: n.Status.NodeInfo.BootID, SystemUUID: n.Status.NodeInfo.SystemUUID,
		Deleting: n.DeletionTimestamp != nil, OutOfService: HasTaint(n.Spec.Taints, OutOfService),
	}
}
