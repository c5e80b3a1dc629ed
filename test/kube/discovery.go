package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
)

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

// KindFor finds the kind of a resource.
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
