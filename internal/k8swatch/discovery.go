package k8swatch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// errNotInstalled: no version of the API serves the kind. This is an answer, not
// a failure.
var errNotInstalled = errors.New("the kind is not installed")

// discoveryFor is how long an answer about an API group is cached. Discovery is
// used only if a kind is not where it was.
const discoveryFor = 2 * time.Second

// discovery caches what one API server answered about its API groups.
type discovery struct {
	mu     sync.Mutex
	groups map[string]groupAnswer
}

type groupAnswer struct {
	at time.Time
	// versions are in the server's order of preference; empty if the group does not
	// exist.
	versions []metav1.APIResourceList
	err      error
}

// find returns where a kind is served: at the best version that fenced can read.
// A kind that is served only at other versions is an error, never absent.
func (s *side) find(ctx context.Context, want *source) (schema.GroupVersionResource, error) {
	a := s.discover(ctx, want.group)
	if a.err != nil {
		return schema.GroupVersionResource{}, a.err
	}
	var at []schema.GroupVersionResource
	for i := range a.versions {
		for _, r := range a.versions[i].APIResources {
			if r.Kind == want.kind && !strings.Contains(r.Name, "/") && (want.resource == "" || r.Name == want.resource) {
				_, version, _ := strings.Cut(a.versions[i].GroupVersion, "/")
				at = append(at, schema.GroupVersionResource{Group: want.group, Version: version, Resource: r.Name})
			}
		}
	}
	for _, v := range want.versions {
		if i := slices.IndexFunc(at, func(r schema.GroupVersionResource) bool { return r.Version == v }); i >= 0 {
			return at[i], nil
		}
	}
	switch {
	case len(at) == 0:
		return schema.GroupVersionResource{}, errNotInstalled
	case want.request: // only metadata and conditions of it are read
		return at[0], nil
	}
	return schema.GroupVersionResource{}, fmt.Errorf("%s is served at %s only, which this version of fenced does not read", at[0].GroupResource(), at[0].Version)
}

// discover returns the versions and kinds of an API group.
func (s *side) discover(ctx context.Context, group string) groupAnswer {
	s.discovery.mu.Lock()
	defer s.discovery.mu.Unlock()
	if a, ok := s.discovery.groups[group]; ok && time.Since(a.at) < discoveryFor {
		return a
	}
	if s.discovery.groups == nil {
		s.discovery.groups = map[string]groupAnswer{}
	}
	a := s.api().discover(ctx, group)
	a.at = time.Now()
	if ctx.Err() == nil { // the end of one caller's ctx is no answer for the others
		s.discovery.groups[group] = a
	}
	return a
}

// mayBeUnserved reports whether the error of a request may mean that the API does
// not serve the kind. The API server checks rights first, so without rights a
// missing kind answers 403.
func mayBeUnserved(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsForbidden(err) }

// isNotServed reports whether the API is known not to serve a kind.
func (s *side) isNotServed(ctx context.Context, kind *source) bool {
	_, err := s.find(ctx, kind)
	return errors.Is(err, errNotInstalled)
}

func (cl *clients) discover(ctx context.Context, group string) (a groupAnswer) {
	var g metav1.APIGroup
	err := cl.document(ctx, "/apis/"+group, &g)
	if apierrors.IsNotFound(err) {
		a.err = cl.confirmUnlisted(ctx, group)
		return a
	}
	if err != nil {
		a.err = fmt.Errorf("read the versions of %s: %w", group, err)
		return a
	}
	for _, v := range g.Versions {
		var list metav1.APIResourceList
		err := cl.document(ctx, "/apis/"+v.GroupVersion, &list)
		if err != nil && !apierrors.IsNotFound(err) { // deleted in the meantime
			a.err = fmt.Errorf("read the kinds of %s: %w", v.GroupVersion, err)
			return a
		}
		a.versions = append(a.versions, list)
	}
	return a
}

// confirmUnlisted verifies that an API group does not exist. The 404 alone may
// come from a proxy, and has no body even if it comes from the API server.
func (cl *clients) confirmUnlisted(ctx context.Context, group string) error {
	var all metav1.APIGroupList
	if err := cl.document(ctx, "/apis", &all); err != nil {
		return fmt.Errorf("read the API groups: %w", err)
	}
	if slices.ContainsFunc(all.Groups, func(g metav1.APIGroup) bool { return g.Name == group }) {
		return fmt.Errorf("%s is listed by the API, but not served", group)
	}
	return nil
}

func (cl *clients) document(ctx context.Context, path string, into runtime.Object) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return cl.typed.core.Get().AbsPath(path).Do(ctx).Into(into)
}
