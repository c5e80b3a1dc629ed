package k8swatch

import (
	"context"
	"net/http"

	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
)

// known has the API groups whose types fenced reads or writes in protobuf. client-go's own client knows the types of all groups, which
// are a third of its program.
var known, codecs, parameters = func() (*runtime.Scheme, serializer.CodecFactory, runtime.ParameterCodec) {
	s := runtime.NewScheme()
	metav1.AddToGroupVersion(s, schema.GroupVersion{Version: "v1"})
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, coordinationv1.AddToScheme, storagev1.AddToScheme, authorizationv1.AddToScheme} {
		if err := add(s); err != nil {
			panic(err) // two types of one name; then no start comes as far as this
		}
	}
	return s, serializer.NewCodecFactory(s), runtime.NewParameterCodec(s)
}()

// typed makes the requests for objects of known types, in protobuf.
type typed struct {
	core, coordination, storage, authorization rest.Interface
	// events is what Events gives; tests refuse them.
	events func(namespace string) eventAPI
}

// eventAPI is what a writer of Events needs.
type eventAPI interface {
	Create(ctx context.Context, e *corev1.Event, o metav1.CreateOptions) (*corev1.Event, error)
	Patch(ctx context.Context, name string, p types.PatchType, data []byte, o metav1.PatchOptions, subresources ...string) (*corev1.Event, error)
}

// newTyped makes the clients, which share the connection and one limit of requests.
func newTyped(c *rest.Config, hc *http.Client) (*typed, error) {
	shared := rest.CopyConfig(c)
	shared.ContentType, shared.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
	shared.NegotiatedSerializer = rest.CodecFactoryForGeneratedClient(known, codecs).WithoutConversion()
	shared.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(shared.QPS, shared.Burst)
	t := &typed{}
	for _, g := range []struct {
		to   *rest.Interface
		path string
		gv   schema.GroupVersion
	}{
		{&t.core, "/api", corev1.SchemeGroupVersion},
		{&t.coordination, "/apis", coordinationv1.SchemeGroupVersion},
		{&t.storage, "/apis", storagev1.SchemeGroupVersion},
		{&t.authorization, "/apis", authorizationv1.SchemeGroupVersion},
	} {
		own := rest.CopyConfig(shared)
		own.APIPath, own.GroupVersion = g.path, &g.gv
		client, err := rest.RESTClientForConfigAndClient(own, hc)
		if err != nil {
			return nil, err
		}
		*g.to = client
	}
	t.events = func(namespace string) eventAPI {
		return gentype.NewClient("events", t.core, parameters, namespace, func() *corev1.Event { return &corev1.Event{} }, gentype.PrefersProtobuf[*corev1.Event]())
	}
	return t, nil
}

// Events writes Events.
func (t *typed) Events(namespace string) eventAPI { return t.events(namespace) }

func (t *typed) Nodes() *gentype.ClientWithList[*corev1.Node, *corev1.NodeList] {
	return gentype.NewClientWithList("nodes", t.core, parameters, "", func() *corev1.Node { return &corev1.Node{} },
		func() *corev1.NodeList { return &corev1.NodeList{} }, gentype.PrefersProtobuf[*corev1.Node]())
}

func (t *typed) Pods(namespace string) *gentype.ClientWithList[*corev1.Pod, *corev1.PodList] {
	return gentype.NewClientWithList("pods", t.core, parameters, namespace, func() *corev1.Pod { return &corev1.Pod{} },
		func() *corev1.PodList { return &corev1.PodList{} }, gentype.PrefersProtobuf[*corev1.Pod]())
}

func (t *typed) Secrets(namespace string) *gentype.Client[*corev1.Secret] {
	return gentype.NewClient("secrets", t.core, parameters, namespace, func() *corev1.Secret { return &corev1.Secret{} }, gentype.PrefersProtobuf[*corev1.Secret]())
}

func (t *typed) Namespaces() *gentype.Client[*corev1.Namespace] {
	return gentype.NewClient("namespaces", t.core, parameters, "", func() *corev1.Namespace { return &corev1.Namespace{} }, gentype.PrefersProtobuf[*corev1.Namespace]())
}

func (t *typed) Leases(namespace string) *gentype.ClientWithList[*coordinationv1.Lease, *coordinationv1.LeaseList] {
	return gentype.NewClientWithList("leases", t.coordination, parameters, namespace, func() *coordinationv1.Lease { return &coordinationv1.Lease{} },
		func() *coordinationv1.LeaseList { return &coordinationv1.LeaseList{} }, gentype.PrefersProtobuf[*coordinationv1.Lease]())
}

func (t *typed) VolumeAttachments() *gentype.ClientWithList[*storagev1.VolumeAttachment, *storagev1.VolumeAttachmentList] {
	return gentype.NewClientWithList("volumeattachments", t.storage, parameters, "", func() *storagev1.VolumeAttachment { return &storagev1.VolumeAttachment{} },
		func() *storagev1.VolumeAttachmentList { return &storagev1.VolumeAttachmentList{} }, gentype.PrefersProtobuf[*storagev1.VolumeAttachment]())
}

func (t *typed) SelfSubjectAccessReviews() *gentype.Client[*authorizationv1.SelfSubjectAccessReview] {
	return gentype.NewClient("selfsubjectaccessreviews", t.authorization, parameters, "",
		func() *authorizationv1.SelfSubjectAccessReview { return &authorizationv1.SelfSubjectAccessReview{} }, gentype.PrefersProtobuf[*authorizationv1.SelfSubjectAccessReview]())
}
