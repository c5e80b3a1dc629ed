package k8swatch

import (
	"context"
	"errors"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
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

// node reads a Node with an uncached read.
func (cl *clients) node(ctx context.Context, name string) (*corev1.Node, error) {
	n, err := cl.typed.Nodes().Get(ctx, name, metav1.GetOptions{})
	return n, checkObject(n, err, "", name)
}

// lease reads a Lease with an uncached read.
func (cl *clients) lease(ctx context.Context, namespace, name string) (*coordinationv1.Lease, error) {
	l, err := cl.typed.Leases(namespace).Get(ctx, name, metav1.GetOptions{})
	return l, checkObject(l, err, namespace, name)
}

// pods lists Pods of a namespace with an uncached read.
func (cl *clients) pods(ctx context.Context, namespace string, o metav1.ListOptions) (*corev1.PodList, error) {
	list, err := cl.typed.Pods(namespace).List(ctx, o)
	return list, checkList(list, err)
}

// readCustom reads an object of an API group with an uncached read.
func readCustom(ctx context.Context, api dynamic.ResourceInterface, group, namespace, name string) (*unstructured.Unstructured, error) {
	u, err := api.Get(ctx, name, metav1.GetOptions{})
	if err == nil && groupOf(u.GetAPIVersion()) != group {
		return nil, errAnotherObject
	}
	return u, checkObject(u, err, namespace, name)
}

// checkObject returns an error if the answer is not the requested object. // I2
func checkObject(o metav1.Object, err error, namespace, name string) error {
	if err == nil && (o.GetName() != name || o.GetNamespace() != namespace || o.GetUID() == "" || o.GetResourceVersion() == "") {
		return errAnotherObject
	}
	return err
}

// checkList returns an error if the answer is not a list. Otherwise objects that
// are missing in it would count as deleted. // I2
func checkList(list metav1.ListInterface, err error) error {
	if err == nil && list.GetResourceVersion() == "" {
		return errNoList
	}
	return err
}
