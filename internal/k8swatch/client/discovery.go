package client

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The API groups whose kinds are watched or written.
const (
	MachineGroup = "machine.openshift.io"
	ClusterGroup = "cluster.x-k8s.io"
	HostGroup    = "metal3.io"
	Medik8sGroup = "remediation.medik8s.io"
	ConfigGroup  = "config.openshift.io"
	FencedGroup  = "fenced.io"
)

// Kinds that have only one version.
var (
	MachineGVR   = schema.GroupVersionResource{Group: MachineGroup, Version: "v1beta1", Resource: "machines"}
	CheckGVR     = schema.GroupVersionResource{Group: MachineGroup, Version: "v1beta1", Resource: "machinehealthchecks"}
	HostGVR      = schema.GroupVersionResource{Group: HostGroup, Version: "v1alpha1", Resource: "baremetalhosts"}
	NodeCheckGVR = schema.GroupVersionResource{Group: Medik8sGroup, Version: "v1alpha1", Resource: "nodehealthchecks"}
	RequestGVR   = schema.GroupVersionResource{Group: FencedGroup, Version: "v1alpha1", Resource: "fencedremediations"}
	UpgradeGVR   = schema.GroupVersionResource{Group: ConfigGroup, Version: "v1", Resource: "clusterversions"}
)

// ClusterVersions are the supported versions of the Cluster API, the best first.
var ClusterVersions = []string{"v1beta2", "v1beta1"}

// ClusterLabel names on an object of the Cluster API the Cluster that it belongs to.
const ClusterLabel = "cluster.x-k8s.io/cluster-name"

// ClusterGVR is a resource of the Cluster API at the best version.
func ClusterGVR(resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: ClusterGroup, Version: ClusterVersions[0], Resource: resource}
}

// GroupOf returns the API group of an apiVersion.
func GroupOf(apiVersion string) string {
	group, _, _ := strings.Cut(apiVersion, "/")
	return group
}

// ErrNotInstalled says that no version of the API serves the kind. This is an answer, not
// a failure.
var ErrNotInstalled = errors.New("the kind is not installed")

// discoveryFor is how long an answer about an API group is cached. Discovery is
// used only if a kind is not where it was.
const discoveryFor = 2 * time.Second

// discovery caches what one API server answered about its API groups.
type discovery struct {
	reads *SharedReads // one read of a group for all who ask at once

	mu     sync.Mutex
	groups map[string]groupAnswer
}

// known returns the answer about a group, if it is not too old.
func (d *discovery) known(group string) (a groupAnswer, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	a, ok = d.groups[group]
	return a, ok && time.Since(a.at) < discoveryFor
}

// keep caches an answer, in the place of those that are too old: whoever writes checks can name other groups all the time.
func (d *discovery) keep(group string, a groupAnswer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	maps.DeleteFunc(d.groups, func(_ string, old groupAnswer) bool { return time.Since(old.at) >= discoveryFor })
	if d.groups == nil {
		d.groups = map[string]groupAnswer{}
	}
	d.groups[group] = a
}

type groupAnswer struct {
	at time.Time
	// versions are in the server's order of preference; empty if the group does not
	// exist.
	versions []metav1.APIResourceList
	err      error
}

// Resource is a kind of objects that a cluster may have.
type Resource struct {
	Kind, Group string
	Plural      string   // empty = from discovery
	Versions    []string // supported versions, the best first
	AnyVersion  bool     // one of versions is only preferred
}

// Find returns where a kind is served: at the best version that fenced can read.
// A kind that is served only at other versions is an error, never absent.
func (s *Server) Find(ctx context.Context, want Resource) (schema.GroupVersionResource, error) {
	a := s.discover(ctx, want.Group)
	if a.err != nil {
		return schema.GroupVersionResource{}, a.err
	}
	var at []schema.GroupVersionResource
	for i := range a.versions {
		for _, r := range a.versions[i].APIResources {
			if r.Kind == want.Kind && !strings.Contains(r.Name, "/") && (want.Plural == "" || r.Name == want.Plural) {
				_, version, _ := strings.Cut(a.versions[i].GroupVersion, "/")
				at = append(at, schema.GroupVersionResource{Group: want.Group, Version: version, Resource: r.Name})
			}
		}
	}
	for _, v := range want.Versions {
		if i := slices.IndexFunc(at, func(r schema.GroupVersionResource) bool { return r.Version == v }); i >= 0 {
			return at[i], nil
		}
	}
	switch {
	case len(at) == 0:
		return schema.GroupVersionResource{}, ErrNotInstalled
	case want.AnyVersion: // only metadata and conditions of it are read
		return at[0], nil
	}
	return schema.GroupVersionResource{}, fmt.Errorf("%s is served at %s only, which this version of fenced does not read", at[0].GroupResource(), at[0].Version)
}

// discover returns the versions and kinds of an API group. A group may be that of an API server of its own, which hangs.
func (s *Server) discover(ctx context.Context, group string) groupAnswer {
	if a, ok := s.discovery.known(group); ok {
		return a
	}
	a, err := ReadShared(ctx, s.discovery.reads, group, func(ctx context.Context) (groupAnswer, error) {
		a := s.API().discover(ctx, group)
		if a.at = time.Now(); !errors.Is(ctx.Err(), context.Canceled) { // else nobody waits for it any more, and it is no answer
			s.discovery.keep(group, a)
		}
		return a, nil
	})
	if err != nil {
		a.err = fmt.Errorf("read the versions of %s: %w", group, err)
	}
	return a
}

// MayBeUnserved reports whether the error of a request may mean that the API does
// not serve the kind. The API server checks rights first, so without rights a
// missing kind answers 403.
func MayBeUnserved(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsForbidden(err) }

// IsNotServed reports whether the API is known not to serve a kind.
func (s *Server) IsNotServed(ctx context.Context, kind Resource) bool {
	_, err := s.Find(ctx, kind)
	return errors.Is(err, ErrNotInstalled)
}

func (cl *Conn) discover(ctx context.Context, group string) (a groupAnswer) {
	var g metav1.APIGroup
	err := cl.Document(ctx, "/apis/"+group, &g)
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
		err := cl.Document(ctx, "/apis/"+v.GroupVersion, &list)
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
func (cl *Conn) confirmUnlisted(ctx context.Context, group string) error {
	all, err := cl.Groups(ctx)
	if err == nil && all[group] {
		err = fmt.Errorf("%s is listed by the API, but not served", group)
	}
	return err
}

// Groups returns the names of the API groups that the API server lists.
func (cl *Conn) Groups(ctx context.Context) (map[string]bool, error) {
	var all metav1.APIGroupList
	if err := cl.Document(ctx, "/apis", &all); err != nil {
		return nil, fmt.Errorf("read the API groups: %w", err)
	}
	names := make(map[string]bool, len(all.Groups))
	for _, g := range all.Groups {
		names[g.Name] = true
	}
	return names, nil
}

func (cl *Conn) Document(ctx context.Context, path string, into runtime.Object) error {
	ctx, cancel := context.WithTimeout(ctx, RequestTimeout)
	defer cancel()
	return cl.Typed.Core.Get().AbsPath(path).Do(ctx).Into(into)
}
