package k8swatch

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/fenced/fenced/internal/escalate"
	"github.com/fenced/fenced/internal/k8swatch/client"
	"github.com/fenced/fenced/internal/manifest"
	"github.com/fenced/fenced/internal/policy"
)

// Read reads what may be the object of a record; nil if it does not exist.
// The error is an escalate.ErrNotServed if the API server does not serve the kind.
func (h Handovers) Read(ctx context.Context, o escalate.Object) (*policy.Request, error) {
	ctx, cancel := context.WithTimeout(ctx, client.RequestTimeout)
	defer cancel()
	_, u, err := h.object(ctx, o)
	if err != nil || u == nil {
		return nil, err
	}
	q, err := manifest.Request(u.Object)
	if err != nil {
		return nil, fmt.Errorf("decode %s: %w", o, err)
	}
	return &q, nil
}

// object reads the object of a record. It is nil if it does not exist. Only an answer of the cluster in
// which it was made says so: a kubeconfig may point to another one now, and the management API may
// have been added, moved or taken away. // I22
func (h Handovers) object(ctx context.Context, o escalate.Object) (dynamic.ResourceInterface, *unstructured.Unstructured, error) {
	s := h.c.servers.Work
	if o.OnManagementAPI {
		if s = h.c.servers.Manage; !s.IsApart() {
			return nil, nil, fmt.Errorf("%s was made on the management API, and the configuration names none now; name it again, or give the record up", o)
		}
	}
	cl := s.API()
	api, u, err := h.find(ctx, s, o)
	if err != nil && !errors.Is(err, escalate.ErrNotServed) || u != nil {
		return api, u, err
	}
	switch on, unknown := cl.Identity(ctx); {
	case unknown != nil:
		return nil, nil, fmt.Errorf("%s was not found: %w", o, unknown)
	case on != o.On || s.API() != cl:
		return nil, nil, fmt.Errorf("%s was made in the cluster whose Namespace %s has the UID %s, and the kubeconfig points to the one with %s; point it to the former again, or give the record up",
			o, client.IdentityNamespace, o.On, on)
	}
	return nil, nil, err
}

// find reads the object of a record; nil if it is not there.
func (h Handovers) find(ctx context.Context, s *client.Server, o escalate.Object) (dynamic.ResourceInterface, *unstructured.Unstructured, error) {
	api, err := h.requestsOf(ctx, s, o.APIVersion, o.Kind, o.Namespace)
	if errors.Is(err, client.ErrNotInstalled) {
		return nil, nil, fmt.Errorf("%w: %s of %s", escalate.ErrNotServed, o.Kind, o.APIVersion)
	}
	if err != nil {
		return nil, nil, err
	}
	u, err := client.ReadCustom(ctx, api, client.GroupOf(o.APIVersion), o.Namespace, o.Name)
	switch {
	case client.IsGone(err, o.Name):
		return nil, nil, nil
	case err != nil:
		return nil, nil, fmt.Errorf("read %s: %w", o, err)
	case !o.MayBe(string(u.GetUID()), u.GetAnnotations()[manifest.RequestMadeBy]):
		return nil, nil, nil
	}
	return api, u, nil
}
