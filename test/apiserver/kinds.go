package apiserver

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/version"

	"github.com/fenced/fenced/test/kube"
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
	return runtime.NewCodec(runtime.WithVersionEncoder{Version: k.at(version).GroupVersion(), Encoder: s, ObjectTyper: kube.Scheme}, runtime.WithoutVersionDecoder{Decoder: s})
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

// builtIn are the built-in kinds. Their rules are those of the strategies in k8s.io/kubernetes/pkg/registry on which somebody relies.
func builtIn() map[schema.GroupResource]*kind {
	core, leases, storage, reviews := corev1.SchemeGroupVersion, coordinationv1.SchemeGroupVersion, storagev1.SchemeGroupVersion, authorizationv1.SchemeGroupVersion
	all := map[schema.GroupResource]*kind{}
	for _, k := range []*kind{
		{gvk: core.WithKind("Namespace"), resource: "namespaces", sample: &corev1.Namespace{}, status: true, onCreate: fillNamespace, unconditionalUpdate: true, returnsDeleted: true},
		{gvk: core.WithKind("Node"), resource: "nodes", sample: &corev1.Node{}, status: true, unconditionalUpdate: true},
		{
			gvk: core.WithKind("Pod"), resource: "pods", sample: &corev1.Pod{}, namespaced: true, status: true,
			onCreate: fillPod, fields: fieldsOfPod, grace: graceOfPod, unconditionalUpdate: true, returnsDeleted: true,
		},
		{gvk: core.WithKind("Secret"), resource: "secrets", sample: &corev1.Secret{}, namespaced: true, onCreate: fillSecret, unconditionalUpdate: true},
		{gvk: core.WithKind("Event"), resource: "events", sample: &corev1.Event{}, namespaced: true, validate: validateEvent, fields: fieldsOfEvent, unconditionalUpdate: true},
		{gvk: leases.WithKind("Lease"), resource: "leases", sample: &coordinationv1.Lease{}, namespaced: true, validate: validateLease},
		{
			gvk: storage.WithKind("VolumeAttachment"), resource: "volumeattachments", sample: &storagev1.VolumeAttachment{}, status: true, returnsDeleted: true,
			onCreate: func(o object) { o.(*storagev1.VolumeAttachment).Status = storagev1.VolumeAttachmentStatus{} },
		},
		{gvk: reviews.WithKind("SelfSubjectAccessReview"), resource: "selfsubjectaccessreviews", sample: &authorizationv1.SelfSubjectAccessReview{}},
		{gvk: definitions, resource: "customresourcedefinitions", onCreate: establish},
	} {
		k.versions = []string{"v1"}
		if k.gvk.Group != reviews.Group {
			k.table = newTable(0)
		}
		all[k.gr()] = k
	}
	return all
}

// furnish makes the namespaces of every cluster.
func (s *Server) furnish() error {
	c := &call{s: s, k: s.kinds[schema.GroupResource{Resource: "namespaces"}], q: &Request{Version: "v1"}}
	for _, name := range []string{metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease} {
		if _, err := c.store(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			return err
		}
	}
	return nil
}

func fillNamespace(o object) {
	n, labels := o.(*corev1.Namespace), map[string]string{corev1.LabelMetadataName: o.GetName()}
	maps.Copy(labels, n.Labels)
	n.Labels, n.Spec.Finalizers, n.Status = labels, []corev1.FinalizerName{corev1.FinalizerKubernetes}, corev1.NamespaceStatus{Phase: corev1.NamespaceActive}
}

func fillPod(o object) {
	p, seconds := o.(*corev1.Pod), int64(corev1.DefaultTerminationGracePeriodSeconds)
	if p.Status = (corev1.PodStatus{Phase: corev1.PodPending}); p.Spec.TerminationGracePeriodSeconds == nil {
		p.Spec.TerminationGracePeriodSeconds = &seconds
	}
}

func fieldsOfPod(o object) fields.Set {
	p := o.(*corev1.Pod)
	return fields.Set{"spec.nodeName": p.Spec.NodeName, "status.phase": string(p.Status.Phase)}
}

func graceOfPod(o object, asked *int64) int64 {
	p := o.(*corev1.Pod)
	switch {
	case p.Spec.NodeName == "", p.Status.Phase == corev1.PodFailed, p.Status.Phase == corev1.PodSucceeded:
		return 0
	case asked != nil:
		return *asked
	case p.Spec.TerminationGracePeriodSeconds != nil:
		return *p.Spec.TerminationGracePeriodSeconds
	}
	return 0
}

func fillSecret(o object) {
	s := o.(*corev1.Secret)
	if s.Data == nil {
		s.Data = map[string][]byte{}
	}
	for key, value := range s.StringData {
		s.Data[key] = []byte(value)
	}
	if s.StringData = nil; s.Type == "" {
		s.Type = corev1.SecretTypeOpaque
	}
}

// validateEvent: an Event is in the namespace of what it is about; of a Node in the default one.
func validateEvent(o object) field.ErrorList {
	e := o.(*corev1.Event)
	about := e.InvolvedObject.Namespace
	ofNode := about == "" && (e.Namespace == metav1.NamespaceDefault || !e.EventTime.IsZero() && e.Namespace == metav1.NamespaceSystem)
	if ofNode || about == e.Namespace || about != "" && !e.EventTime.IsZero() {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("involvedObject", "namespace"), about, "does not match event.namespace")}
}

func fieldsOfEvent(o object) fields.Set {
	e := o.(*corev1.Event)
	about := e.InvolvedObject
	return fields.Set{"involvedObject.kind": about.Kind, "involvedObject.namespace": about.Namespace, "involvedObject.name": about.Name, "involvedObject.uid": string(about.UID), "reason": e.Reason, "type": e.Type}
}

func validateLease(o object) (errs field.ErrorList) {
	if d := o.(*coordinationv1.Lease).Spec.LeaseDurationSeconds; d != nil && *d <= 0 {
		errs = append(errs, field.Invalid(field.NewPath("spec", "leaseDurationSeconds"), *d, "must be greater than 0"))
	}
	return errs
}
