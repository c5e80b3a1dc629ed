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
	// errAnotherObject: an answer that is not what was asked for. The client takes
	// any JSON, such as the page of a proxy, for an object of the wanted type with
	// nothing in it: a Lease that was never renewed, or a Node that nobody runs.
	errAnotherObject = errors.New("the answer is another object than the one that was asked for")
	// errNoList: an answer that is not a list as an API server gives it; that nothing
	// is in it does not mean that there is nothing.
	errNoList = errors.New("the answer is no list of the API server")
)

// node reads a Node past every cache.
func (cl *clients) node(ctx context.Context, name string) (*corev1.Node, error) {
	n, err := cl.typed.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	return n, asAsked(n, err, "", name)
}

// lease reads a Lease past every cache.
func (cl *clients) lease(ctx context.Context, namespace, name string) (*coordinationv1.Lease, error) {
	l, err := cl.typed.CoordinationV1().Leases(namespace).Get(ctx, name, metav1.GetOptions{})
	return l, asAsked(l, err, namespace, name)
}

// pods lists Pods of a namespace past every cache.
func (cl *clients) pods(ctx context.Context, namespace string, o metav1.ListOptions) (*corev1.PodList, error) {
	list, err := cl.typed.CoreV1().Pods(namespace).List(ctx, o)
	return list, asList(list, err)
}

// readCustom reads an object of an API group past every cache.
func readCustom(ctx context.Context, api dynamic.ResourceInterface, group, namespace, name string) (*unstructured.Unstructured, error) {
	u, err := api.Get(ctx, name, metav1.GetOptions{})
	if err == nil && groupOf(u.GetAPIVersion()) != group {
		return nil, errAnotherObject
	}
	return u, asAsked(u, err, namespace, name)
}

// asAsked makes an error of an answer that is not the object that was asked for. // I2
func asAsked(o metav1.Object, err error, namespace, name string) error {
	if err == nil && (o.GetName() != name || o.GetNamespace() != namespace || o.GetUID() == "" || o.GetResourceVersion() == "") {
		return errAnotherObject
	}
	return err
}

// asList makes an error of an answer that is not a list: what is nowhere listed
// would else be taken for gone. // I2
func asList(list metav1.ListInterface, err error) error {
	if err == nil && list.GetResourceVersion() == "" {
		return errNoList
	}
	return err
}
