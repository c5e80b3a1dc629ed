// Package kube is a typed client of the Kubernetes API for the kinds that the tests and the demo touch, with the methods of client-go's.
// client-go's own one has every kind of Kubernetes: whoever starts the demo first would wait for the compiler as long for that as for half of fenced.
package kube

import (
	"context"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/rest"
)

// Scheme has the kinds of this package, and Codecs are its codecs.
var (
	Scheme     = newScheme()
	Codecs     = serializer.NewCodecFactory(Scheme)
	parameters = runtime.NewParameterCodec(Scheme)
)

func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	metav1.AddToGroupVersion(s, schema.GroupVersion{Version: "v1"})
	for _, add := range []func(*runtime.Scheme) error{
		authorizationv1.AddToScheme, coordinationv1.AddToScheme, corev1.AddToScheme, rbacv1.AddToScheme, storagev1.AddToScheme,
	} {
		if err := add(s); err != nil {
			panic(err) // two kinds of one name
		}
	}
	return s
}

// Client is a client of one API server.
type Client struct {
	core, authorization, coordination, rbac, storage *rest.RESTClient
}

// NewForConfig returns a client.
func NewForConfig(cfg *rest.Config) (*Client, error) {
	transport, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("make a client of the API: %w", err)
	}
	c := &Client{}
	for gv, of := range map[schema.GroupVersion]**rest.RESTClient{
		corev1.SchemeGroupVersion: &c.core, authorizationv1.SchemeGroupVersion: &c.authorization, coordinationv1.SchemeGroupVersion: &c.coordination,
		rbacv1.SchemeGroupVersion: &c.rbac, storagev1.SchemeGroupVersion: &c.storage,
	} {
		group := rest.CopyConfig(cfg)
		group.GroupVersion, group.APIPath, group.NegotiatedSerializer = &gv, "/apis", Codecs.WithoutConversion()
		if gv.Group == "" {
			group.APIPath = "/api"
		}
		if *of, err = rest.RESTClientForConfigAndClient(group, transport); err != nil {
			return nil, fmt.Errorf("make a client of %s: %w", gv, err)
		}
	}
	return c, nil
}

// resource is the client of one kind.
func resource[T any, L any, O interface {
	*T
	runtime.Object
	metav1.Object
}, OL interface {
	*L
	runtime.Object
}](c *rest.RESTClient, name, namespace string) *gentype.ClientWithList[O, OL] {
	return gentype.NewClientWithList(name, c, parameters, namespace, func() O { return new(T) }, func() OL { return new(L) })
}

// Clients of single kinds.
type (
	Nodes             = gentype.ClientWithList[*corev1.Node, *corev1.NodeList]
	Namespaces        = gentype.ClientWithList[*corev1.Namespace, *corev1.NamespaceList]
	Pods              = gentype.ClientWithList[*corev1.Pod, *corev1.PodList]
	Events            = gentype.ClientWithList[*corev1.Event, *corev1.EventList]
	Secrets           = gentype.ClientWithList[*corev1.Secret, *corev1.SecretList]
	ServiceAccounts   = gentype.ClientWithList[*corev1.ServiceAccount, *corev1.ServiceAccountList]
	Leases            = gentype.ClientWithList[*coordinationv1.Lease, *coordinationv1.LeaseList]
	VolumeAttachments = gentype.ClientWithList[*storagev1.VolumeAttachment, *storagev1.VolumeAttachmentList]

	ClusterRoles        = gentype.ClientWithList[*rbacv1.ClusterRole, *rbacv1.ClusterRoleList]
	ClusterRoleBindings = gentype.ClientWithList[*rbacv1.ClusterRoleBinding, *rbacv1.ClusterRoleBindingList]
	Roles               = gentype.ClientWithList[*rbacv1.Role, *rbacv1.RoleList]
	RoleBindings        = gentype.ClientWithList[*rbacv1.RoleBinding, *rbacv1.RoleBindingList]

	SubjectAccessReviews     = gentype.Client[*authorizationv1.SubjectAccessReview]
	SelfSubjectAccessReviews = gentype.Client[*authorizationv1.SelfSubjectAccessReview]
)

// Core are the kinds of the core group.
type Core struct{ c *rest.RESTClient }

// CoreV1 returns them.
func (c *Client) CoreV1() Core { return Core{c.core} }

// RESTClient is the client of the group.
func (g Core) RESTClient() rest.Interface { return g.c }

// Nodes and the others are the clients of the kinds of these names.
func (g Core) Nodes() *Nodes { return resource[corev1.Node, corev1.NodeList](g.c, "nodes", "") }

func (g Core) Namespaces() *Namespaces {
	return resource[corev1.Namespace, corev1.NamespaceList](g.c, "namespaces", "")
}

func (g Core) Pods(namespace string) *Pods {
	return resource[corev1.Pod, corev1.PodList](g.c, "pods", namespace)
}

func (g Core) Events(namespace string) *Events {
	return resource[corev1.Event, corev1.EventList](g.c, "events", namespace)
}

func (g Core) Secrets(namespace string) *Secrets {
	return resource[corev1.Secret, corev1.SecretList](g.c, "secrets", namespace)
}

func (g Core) ServiceAccounts(namespace string) *ServiceAccounts {
	return resource[corev1.ServiceAccount, corev1.ServiceAccountList](g.c, "serviceaccounts", namespace)
}

// Coordination are the kinds of coordination.k8s.io.
type Coordination struct{ c *rest.RESTClient }

// CoordinationV1 returns them.
func (c *Client) CoordinationV1() Coordination { return Coordination{c.coordination} }

// Leases is their client.
func (g Coordination) Leases(namespace string) *Leases {
	return resource[coordinationv1.Lease, coordinationv1.LeaseList](g.c, "leases", namespace)
}

// Storage are the kinds of storage.k8s.io.
type Storage struct{ c *rest.RESTClient }

// StorageV1 returns them.
func (c *Client) StorageV1() Storage { return Storage{c.storage} }

// VolumeAttachments is their client.
func (g Storage) VolumeAttachments() *VolumeAttachments {
	return resource[storagev1.VolumeAttachment, storagev1.VolumeAttachmentList](g.c, "volumeattachments", "")
}

// Rbac are the kinds of rbac.authorization.k8s.io.
type Rbac struct{ c *rest.RESTClient }

// RbacV1 returns them.
func (c *Client) RbacV1() Rbac { return Rbac{c.rbac} }

// ClusterRoles and the others are the clients of the kinds of these names.
func (g Rbac) ClusterRoles() *ClusterRoles {
	return resource[rbacv1.ClusterRole, rbacv1.ClusterRoleList](g.c, "clusterroles", "")
}

func (g Rbac) ClusterRoleBindings() *ClusterRoleBindings {
	return resource[rbacv1.ClusterRoleBinding, rbacv1.ClusterRoleBindingList](g.c, "clusterrolebindings", "")
}

func (g Rbac) Roles(namespace string) *Roles {
	return resource[rbacv1.Role, rbacv1.RoleList](g.c, "roles", namespace)
}

func (g Rbac) RoleBindings(namespace string) *RoleBindings {
	return resource[rbacv1.RoleBinding, rbacv1.RoleBindingList](g.c, "rolebindings", namespace)
}

// Authorization are the kinds of authorization.k8s.io.
type Authorization struct{ c *rest.RESTClient }

// AuthorizationV1 returns them.
func (c *Client) AuthorizationV1() Authorization { return Authorization{c.authorization} }

// SubjectAccessReviews asks what a user may do.
func (g Authorization) SubjectAccessReviews() *SubjectAccessReviews {
	return gentype.NewClient("subjectaccessreviews", g.c, parameters, "", func() *authorizationv1.SubjectAccessReview { return &authorizationv1.SubjectAccessReview{} })
}

// SelfSubjectAccessReviews asks what the client may do.
func (g Authorization) SelfSubjectAccessReviews() *SelfSubjectAccessReviews {
	return gentype.NewClient("selfsubjectaccessreviews", g.c, parameters, "", func() *authorizationv1.SelfSubjectAccessReview { return &authorizationv1.SelfSubjectAccessReview{} })
}

// get reads a document of the API.
func (c *Client) get(ctx context.Context, path string, into runtime.Object) error {
	return c.core.Get().AbsPath(path).Do(ctx).Into(into)
}
