// Package kube is a typed client of the Kubernetes API for the kinds that the tests and the demo touch, with the methods of client-go's.
// client-go's own one has every kind of Kubernetes: whoever starts the demo first would wait for the compiler as long for that as for half of fenced.
package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/version"
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

func (c *Client) CoreV1() Core { return Core{c.core} }

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

func (c *Client) CoordinationV1() Coordination { return Coordination{c.coordination} }

func (g Coordination) Leases(namespace string) *Leases {
	return resource[coordinationv1.Lease, coordinationv1.LeaseList](g.c, "leases", namespace)
}

// Storage are the kinds of storage.k8s.io.
type Storage struct{ c *rest.RESTClient }

func (c *Client) StorageV1() Storage { return Storage{c.storage} }

func (g Storage) VolumeAttachments() *VolumeAttachments {
	return resource[storagev1.VolumeAttachment, storagev1.VolumeAttachmentList](g.c, "volumeattachments", "")
}

// Rbac are the kinds of rbac.authorization.k8s.io.
type Rbac struct{ c *rest.RESTClient }

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

// Version is that of the API server.
func (c *Client) Version(ctx context.Context) (version.Info, error) {
	var v version.Info
	raw, err := c.core.Get().AbsPath("/version").DoRaw(ctx)
	if err == nil {
		err = json.Unmarshal(raw, &v)
	}
	if err != nil {
		return v, fmt.Errorf("ask for the version of the API server: %w", err)
	}
	return v, nil
}

// Groups are the groups that the API server serves, beside the core group.
func (c *Client) Groups(ctx context.Context) ([]metav1.APIGroup, error) {
	var list metav1.APIGroupList
	if err := c.get(ctx, "/apis", &list); err != nil {
		return nil, fmt.Errorf("list the API groups: %w", err)
	}
	return list.Groups, nil
}

// Serves reports whether the API server serves a kind in this version.
func (c *Client) Serves(ctx context.Context, gvk schema.GroupVersionKind) (bool, error) {
	var list metav1.APIResourceList
	err := c.get(ctx, "/apis/"+gvk.GroupVersion().String(), &list)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("list the resources of %s: %w", gvk.GroupVersion(), err)
	}
	return slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Kind == gvk.Kind }), nil
}

// Resources are the resources of all versions, the preferred version of each group first. A group that goes away meanwhile has none.
func (c *Client) Resources(ctx context.Context) ([]metav1.APIResourceList, error) {
	groups, err := c.Groups(ctx)
	if err != nil {
		return nil, err
	}
	paths := []string{"/api/v1"}
	for _, g := range groups {
		paths = append(paths, "/apis/"+g.PreferredVersion.GroupVersion)
		for _, v := range g.Versions {
			if v != g.PreferredVersion {
				paths = append(paths, "/apis/"+v.GroupVersion)
			}
		}
	}
	var all []metav1.APIResourceList
	for _, path := range paths {
		var list metav1.APIResourceList
		err := c.get(ctx, path, &list)
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("list the resources of %s: %w", path, err)
		}
		if err == nil {
			all = append(all, list)
		}
	}
	return all, nil
}

// Mapper knows the resource of each kind. It asks the API server for what it does not know.
type Mapper struct {
	client *Client

	mu    sync.Mutex
	known meta.RESTMapper // nil: ask
}

// NewMapper returns one that knows nothing yet.
func NewMapper(c *Client) *Mapper { return &Mapper{client: c} }

// Reset forgets everything.
func (m *Mapper) Reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.known = nil
}

// RESTMapping finds the resource of a kind, in its preferred version if none is given.
func (m *Mapper) RESTMapping(ctx context.Context, gk schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	return ask(ctx, m, func(r meta.RESTMapper) (*meta.RESTMapping, error) { return r.RESTMapping(gk, versions...) })
}

func (m *Mapper) KindFor(ctx context.Context, r schema.GroupVersionResource) (schema.GroupVersionKind, error) {
	return ask(ctx, m, func(known meta.RESTMapper) (schema.GroupVersionKind, error) { return known.KindFor(r) })
}

// ask asks what is known, and if that does not help the API server.
func ask[T any](ctx context.Context, m *Mapper, question func(meta.RESTMapper) (T, error)) (T, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.known != nil {
		if answer, err := question(m.known); !meta.IsNoMatchError(err) {
			return answer, err
		}
	}
	lists, err := m.client.Resources(ctx)
	if err != nil {
		var none T
		return none, err
	}
	m.known = mapperOf(lists)
	return question(m.known)
}

func mapperOf(lists []metav1.APIResourceList) meta.RESTMapper {
	var order []schema.GroupVersion
	for _, list := range lists {
		order = append(order, schema.FromAPIVersionAndKind(list.GroupVersion, "").GroupVersion())
	}
	m := meta.NewDefaultRESTMapper(order)
	for i, list := range lists {
		for _, r := range list.APIResources {
			if strings.Contains(r.Name, "/") {
				continue // a subresource
			}
			scope := meta.RESTScopeRoot
			if r.Namespaced {
				scope = meta.RESTScopeNamespace
			}
			m.AddSpecific(order[i].WithKind(r.Kind), order[i].WithResource(r.Name), order[i].WithResource(r.SingularName), scope)
		}
	}
	return m
}
