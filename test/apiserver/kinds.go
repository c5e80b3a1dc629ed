package apiserver

import (
	"fmt"
	"maps"
	"slices"
	"strings"

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

// kind is one resource that is served. rules are how a real API server treats its objects; each may be nil.
type kind struct {
	gvk        schema.GroupVersionKind // stored
	resource   string
	versions   []string // that are served
	namespaced bool
	status     bool                     // it has this subresource
	sample     object                   // of a built-in kind; nil of a custom resource
	schemas    map[string]*customSchema // of a custom resource, by version
	table      *table                   // nil of a review

	onCreate            func(object)                             // sets defaults, and removes what a client may not set
	validate            func(object) field.ErrorList             // beside the metadata
	fields              func(object) fields.Set                  // that can be selected, beside metadata.name and .namespace
	grace               func(o object, asked *int64) (sec int64) // of a deletion; objects without it are deleted at once
	unconditionalUpdate bool                                     // an update needs no version
	returnsDeleted      bool                                     // a deletion is answered with the object
}

func (k *kind) gr() schema.GroupResource {
	return schema.GroupResource{Group: k.gvk.Group, Resource: k.resource}
}

func (k *kind) at(version string) schema.GroupVersionKind {
	return k.gvk.GroupKind().WithVersion(version)
}

// empty returns a new object.
func (k *kind) empty(version string) object {
	if k.sample != nil {
		return k.sample.DeepCopyObject().(object)
	}
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(k.at(version))
	return u
}

// mediaTypes are those of a kind, or of documents if it is nil: first that of who asks for none, last that of what is stored.
func (k *kind) mediaTypes() []string {
	if k != nil && k.sample == nil {
		return []string{runtime.ContentTypeJSON}
	}
	return []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf}
}

func (k *kind) stored() string { return k.mediaTypes()[len(k.mediaTypes())-1] }

// codec is that of a media type for the objects of this kind.
func (k *kind) codec(mediaType, version string) runtime.Codec {
	if k.sample == nil {
		return unstructured.UnstructuredJSONScheme
	}
	s := serializerOf(mediaType).Serializer
	return runtime.NewCodec(runtime.WithVersionEncoder{Version: k.at(version).GroupVersion(), Encoder: s, ObjectTyper: scheme.Scheme}, runtime.WithoutVersionDecoder{Decoder: s})
}

func (k *kind) encode(o object) ([]byte, error) {
	o.SetManagedFields(nil)
	if u, custom := o.(*unstructured.Unstructured); custom {
		u.SetGroupVersionKind(k.gvk)
	}
	return runtime.Encode(k.codec(k.stored(), k.gvk.Version), o)
}

// decode returns a stored object, as it is in a version.
func (k *kind) decode(e *entry, version string) (object, error) {
	into := k.empty(version)
	if err := runtime.DecodeInto(k.codec(k.stored(), k.gvk.Version), e.raw, into); err != nil {
		return nil, fmt.Errorf("decode the stored %s %s: %w", k.gvk.Kind, e.key, err)
	}
	if u, custom := into.(*unstructured.Unstructured); custom {
		u.SetGroupVersionKind(k.at(version)) // as without a conversion webhook
	}
	return into, nil
}

// render returns a stored object in a media type.
func (k *kind) render(e *entry, version, mediaType string) ([]byte, error) {
	if mediaType == k.stored() && version == k.gvk.Version {
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

// document returns the answer to a request for discovery, or nil.
func (s *Server) document(parts []string) runtime.Object {
	s.mu.RLock()
	defer s.mu.RUnlock()
	served := map[schema.GroupVersion][]metav1.APIResource{}
	for _, k := range s.kinds {
		for _, v := range k.versions {
			served[k.at(v).GroupVersion()] = append(served[k.at(v).GroupVersion()], k.described()...)
		}
	}
	groups := map[string]*metav1.APIGroup{}
	for gv := range served {
		if groups[gv.Group] == nil {
			groups[gv.Group] = &metav1.APIGroup{Name: gv.Group}
		}
		g := groups[gv.Group]
		g.Versions = append(g.Versions, metav1.GroupVersionForDiscovery{GroupVersion: gv.String(), Version: gv.Version})
		slices.SortFunc(g.Versions, func(a, b metav1.GroupVersionForDiscovery) int {
			return version.CompareKubeAwareVersionStrings(b.Version, a.Version)
		})
		g.PreferredVersion = g.Versions[0]
	}
	switch {
	case len(parts) == 1 && parts[0] == "api":
		return &metav1.APIVersions{Versions: []string{"v1"}}
	case len(parts) == 1:
		list := &metav1.APIGroupList{}
		for _, name := range slices.Sorted(maps.Keys(groups)) {
			if name != "" { // the core group has a document of its own
				list.Groups = append(list.Groups, *groups[name])
			}
		}
		return list
	case len(parts) == 2 && parts[0] == "apis" && groups[parts[1]] != nil:
		return groups[parts[1]]
	}
	gv := schema.GroupVersion{Version: parts[len(parts)-1]}
	if parts[0] == "apis" {
		gv.Group = parts[1]
	}
	resources := served[gv]
	if resources == nil || len(parts) > 3 {
		return nil
	}
	slices.SortFunc(resources, func(a, b metav1.APIResource) int { return strings.Compare(a.Name, b.Name) })
	return &metav1.APIResourceList{GroupVersion: gv.String(), APIResources: resources}
}

func (k *kind) described() []metav1.APIResource {
	r := metav1.APIResource{Name: k.resource, SingularName: strings.ToLower(k.gvk.Kind), Namespaced: k.namespaced, Kind: k.gvk.Kind, Verbs: metav1.Verbs{"create"}}
	if k.table == nil {
		return []metav1.APIResource{r}
	}
	sub := r
	sub.Name, sub.SingularName, sub.Verbs = r.Name+"/status", "", metav1.Verbs{"get", "patch", "update"}
	r.Verbs = metav1.Verbs{"create", "delete", "get", "list", "patch", "update", "watch"}
	if !k.status {
		return []metav1.APIResource{r}
	}
	return []metav1.APIResource{r, sub}
}
