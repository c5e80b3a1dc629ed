package apiserver

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/kubernetes/scheme"
)

// object is any API object: a built-in one by its type, a custom resource as it is in JSON.
type object interface {
	runtime.Object
	metav1.Object
}

// kind is one resource that is served.
type kind struct {
	group, resource, kind, listKind, singular string
	versions                                  []string // the first one is stored
	namespaced                                bool
	status                                    bool                     // it has this subresource
	sample                                    object                   // of a built-in kind; nil of a custom resource
	schemas                                   map[string]*customSchema // of a custom resource, by version
	rules
	review func(*Server, user, object) // of a kind that is answered, not stored
	table  *table
}

// rules are how a real API server treats the objects of one kind, as far as fenced or a test relies on it. Any may be nil.
type rules struct {
	onCreate                                            func(object)                             // sets defaults, and removes what a client may not set
	onUpdate                                            func(now, was object)                    // the same
	onStatus                                            func(now, was object)                    // the same, of the status subresource
	validate                                            func(object) field.ErrorList             // beside the metadata
	fields                                              func(object) fields.Set                  // that can be selected, beside metadata.name and .namespace
	grace                                               func(o object, asked *int64) (sec int64) // of a deletion; objects without it are deleted at once
	createOnUpdate, unconditionalUpdate, returnsDeleted bool
}

func (k *kind) gr() schema.GroupResource {
	return schema.GroupResource{Group: k.group, Resource: k.resource}
}

func (k *kind) gk() schema.GroupKind { return schema.GroupKind{Group: k.group, Kind: k.kind} }

func (k *kind) gvk(version string) schema.GroupVersionKind { return k.gk().WithVersion(version) }

// empty returns a new object.
func (k *kind) empty(version string) object {
	if k.sample != nil {
		return k.sample.DeepCopyObject().(object)
	}
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(k.gvk(version))
	return u
}

// codec is that of a media type for the objects of this kind.
func (k *kind) codec(mediaType, version string) runtime.Codec {
	if k.sample == nil {
		return unstructured.UnstructuredJSONScheme
	}
	info, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), mediaType)
	gv := schema.GroupVersion{Group: k.group, Version: version}
	return runtime.NewCodec(
		runtime.WithVersionEncoder{Version: gv, Encoder: info.Serializer, ObjectTyper: scheme.Scheme},
		runtime.WithoutVersionDecoder{Decoder: info.Serializer})
}

// stored is the media type in which the objects of this kind are stored.
func (k *kind) stored() string {
	if k.sample == nil {
		return runtime.ContentTypeJSON
	}
	return runtime.ContentTypeProtobuf
}

func (k *kind) encode(o object) ([]byte, error) {
	o.SetManagedFields(nil)
	if u, custom := o.(*unstructured.Unstructured); custom {
		u.SetGroupVersionKind(k.gvk(k.versions[0]))
	}
	return runtime.Encode(k.codec(k.stored(), k.versions[0]), o)
}

// decode returns a stored object, as it is in a version.
func (k *kind) decode(e *entry, version string) (object, error) {
	into := k.empty(version)
	if err := runtime.DecodeInto(k.codec(k.stored(), k.versions[0]), e.raw, into); err != nil {
		return nil, fmt.Errorf("decode the stored %s %s: %w", k.kind, e.key, err)
	}
	if u, custom := into.(*unstructured.Unstructured); custom {
		u.SetGroupVersionKind(k.gvk(version)) // as without a conversion webhook
	}
	return into, nil
}

// render returns a stored object in a media type.
func (k *kind) render(e *entry, version, mediaType string) ([]byte, error) {
	if mediaType == k.stored() && version == k.versions[0] {
		return e.raw, nil
	}
	o, err := k.decode(e, version)
	if err != nil {
		return nil, err
	}
	return runtime.Encode(k.codec(mediaType, version), o)
}

// fieldsOf returns the fields of an object that can be selected.
func (k *kind) fieldsOf(o object) fields.Set {
	set := fields.Set{"metadata.name": o.GetName()}
	if k.namespaced {
		set["metadata.namespace"] = o.GetNamespace()
	}
	if k.fields != nil {
		maps.Copy(set, k.fields(o))
	}
	return set
}

// kindOf returns the kind that a request is for, or nil.
func (s *Server) kindOf(r *Request) *kind {
	s.mu.RLock()
	defer s.mu.RUnlock()
	k := s.kinds[schema.GroupResource{Group: r.Group, Resource: r.Resource}]
	if k == nil || !slices.Contains(k.versions, r.Version) {
		return nil
	}
	return k
}

// document returns the answer to a request for discovery, or nil.
func (s *Server) document(parts []string) runtime.Object {
	s.mu.RLock()
	defer s.mu.RUnlock()
	groups := map[string]map[string][]metav1.APIResource{} // by group and version
	for _, k := range s.kinds {
		for _, v := range k.versions {
			if groups[k.group] == nil {
				groups[k.group] = map[string][]metav1.APIResource{}
			}
			groups[k.group][v] = append(groups[k.group][v], k.apiResources()...)
		}
	}
	switch group := groupOf(parts); {
	case len(parts) == 1 && parts[0] == "api":
		return &metav1.APIVersions{Versions: []string{"v1"}}
	case len(parts) == 1:
		list := &metav1.APIGroupList{}
		for _, name := range slices.Sorted(maps.Keys(groups)) {
			if name != "" {
				list.Groups = append(list.Groups, apiGroup(name, groups[name]))
			}
		}
		return list
	case len(parts) == 2 && parts[0] == "apis" && groups[group] != nil:
		g := apiGroup(group, groups[group])
		return &g
	case parts[0] == "api" && len(parts) == 2 || len(parts) == 3:
		v := parts[len(parts)-1]
		resources := groups[group][v]
		if resources == nil {
			return nil
		}
		slices.SortFunc(resources, func(a, b metav1.APIResource) int { return cmp.Compare(a.Name, b.Name) })
		return &metav1.APIResourceList{GroupVersion: schema.GroupVersion{Group: group, Version: v}.String(), APIResources: resources}
	}
	return nil
}

func groupOf(parts []string) string {
	if parts[0] == "apis" && len(parts) > 1 {
		return parts[1]
	}
	return ""
}

// apiGroup describes a group; the preferred version is the stored one of its kinds, which comes first by Kubernetes' order.
func apiGroup(name string, versions map[string][]metav1.APIResource) metav1.APIGroup {
	g := metav1.APIGroup{Name: name}
	for v := range versions {
		g.Versions = append(g.Versions, metav1.GroupVersionForDiscovery{GroupVersion: name + "/" + v, Version: v})
	}
	slices.SortFunc(g.Versions, func(a, b metav1.GroupVersionForDiscovery) int {
		return version.CompareKubeAwareVersionStrings(b.Version, a.Version)
	})
	g.PreferredVersion = g.Versions[0]
	return g
}

func (k *kind) apiResources() []metav1.APIResource {
	verbs := metav1.Verbs{"create", "delete", "get", "list", "patch", "update", "watch"}
	if k.review != nil {
		verbs = metav1.Verbs{"create"}
	}
	found := []metav1.APIResource{{Name: k.resource, SingularName: k.singular, Namespaced: k.namespaced, Kind: k.kind, Verbs: verbs}}
	if k.status {
		found = append(found, metav1.APIResource{Name: k.resource + "/status", Namespaced: k.namespaced, Kind: k.kind, Verbs: metav1.Verbs{"get", "patch", "update"}})
	}
	return found
}
