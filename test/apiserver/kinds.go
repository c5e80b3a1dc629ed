package apiserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/version"
	openapierrors "k8s.io/kube-openapi/pkg/validation/errors"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"
	"k8s.io/utils/ptr"

	"github.com/fenced/fenced/test/kube"
)

// object is any API object: a built-in one by its type, a custom resource as it is in JSON.
type object interface {
	runtime.Object
	metav1.Object
}

// kind is one resource that is served. Below the empty line is how a real API server treats its objects; each may be nil.
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

func serializerOf(mediaType string) runtime.SerializerInfo {
	info, _ := runtime.SerializerInfoForMediaType(kube.Codecs.SupportedMediaTypes(), mediaType)
	return info
}

func encoder(gv schema.GroupVersion, mediaType string) runtime.Encoder {
	return runtime.WithVersionEncoder{Version: gv, Encoder: serializerOf(mediaType).Serializer, ObjectTyper: kube.Scheme}
}

// encode is an object as it is stored.
func (k *kind) encode(o object) ([]byte, error) {
	o.SetManagedFields(nil)
	return runtime.Encode(encoder(k.gvk.GroupVersion(), k.stored()), o)
}

// decode returns a stored object, as it is in a version without a conversion webhook.
func (k *kind) decode(e *entry, version string) (object, error) {
	into := k.empty(version)
	as := into.GetObjectKind().GroupVersionKind() // none of a built-in kind, as in a list
	if err := runtime.DecodeInto(serializerOf(k.stored()).Serializer, e.raw, into); err != nil {
		return nil, fmt.Errorf("decode the stored %s %s: %w", k.gvk.Kind, e.key, err)
	}
	into.GetObjectKind().SetGroupVersionKind(as)
	return into, nil
}

// fieldsOf returns the fields of an object that can be selected.
func (k *kind) fieldsOf(o object) fields.Set {
	set := fields.Set{"metadata.name": o.GetName()}
	if k.namespaced {
		set["metadata.namespace"] = o.GetNamespace()
	}
	switch o := o.(type) {
	case *corev1.Pod:
		set["spec.nodeName"], set["status.phase"] = o.Spec.NodeName, string(o.Status.Phase)
	case *corev1.Event:
		about := o.InvolvedObject
		set["involvedObject.kind"], set["involvedObject.namespace"] = about.Kind, about.Namespace
		set["involvedObject.name"], set["involvedObject.uid"] = about.Name, string(about.UID)
	}
	return set
}

// documents are the answers to requests for discovery, by their paths.
func (s *Server) documents() map[string]runtime.Object {
	s.mu.RLock()
	defer s.mu.RUnlock()
	groups, versions := &metav1.APIGroupList{}, map[string][]metav1.GroupVersionForDiscovery{}
	all := map[string]runtime.Object{"/api": &metav1.APIVersions{Versions: []string{"v1"}}, "/apis": groups}
	for _, k := range slices.SortedFunc(maps.Values(s.kinds), func(a, b *kind) int { return strings.Compare(a.resource, b.resource) }) {
		for _, v := range k.versions {
			gv := k.at(v).GroupVersion()
			path := "/apis/" + gv.String()
			if gv.Group == "" {
				path = "/api/" + v
			}
			list, known := all[path].(*metav1.APIResourceList)
			if !known {
				list = &metav1.APIResourceList{GroupVersion: gv.String()}
				all[path] = list
				versions[gv.Group] = append(versions[gv.Group], metav1.GroupVersionForDiscovery{GroupVersion: gv.String(), Version: v})
			}
			list.APIResources = append(list.APIResources, k.described()...)
		}
	}
	delete(versions, "") // the core group has a document of its own
	for _, name := range slices.Sorted(maps.Keys(versions)) {
		slices.SortFunc(versions[name], func(a, b metav1.GroupVersionForDiscovery) int {
			return version.CompareKubeAwareVersionStrings(b.Version, a.Version)
		})
		g := metav1.APIGroup{Name: name, Versions: versions[name], PreferredVersion: versions[name][0]}
		all["/apis/"+name], groups.Groups = &g, append(groups.Groups, g)
	}
	return all
}

func (k *kind) described() []metav1.APIResource {
	r := metav1.APIResource{Name: k.resource, SingularName: strings.ToLower(k.gvk.Kind), Namespaced: k.namespaced, Kind: k.gvk.Kind, Verbs: metav1.Verbs{"create"}}
	if k.table != nil {
		r.Verbs = append(r.Verbs, "delete", "get", "list", "patch", "update", "watch")
	}
	if !k.status {
		return []metav1.APIResource{r}
	}
	return []metav1.APIResource{r, {Name: r.Name + "/status", Namespaced: r.Namespaced, Kind: r.Kind, Verbs: metav1.Verbs{"get", "patch", "update"}}}
}

// builtIn are the built-in kinds. Their rules are those of the strategies in k8s.io/kubernetes/pkg/registry on which somebody relies.
func builtIn() map[schema.GroupResource]*kind {
	core, leases, storage, access := corev1.SchemeGroupVersion, coordinationv1.SchemeGroupVersion, storagev1.SchemeGroupVersion, authorizationv1.SchemeGroupVersion
	all := map[schema.GroupResource]*kind{}
	for _, k := range []*kind{
		{gvk: core.WithKind("Namespace"), resource: "namespaces", sample: &corev1.Namespace{}, status: true, onCreate: fillNamespace, unconditionalUpdate: true, returnsDeleted: true},
		{gvk: core.WithKind("Node"), resource: "nodes", sample: &corev1.Node{}, status: true, unconditionalUpdate: true},
		{
			gvk: core.WithKind("Pod"), resource: "pods", sample: &corev1.Pod{}, namespaced: true, status: true,
			onCreate: fillPod, grace: graceOfPod, unconditionalUpdate: true, returnsDeleted: true,
		},
		{gvk: core.WithKind("Secret"), resource: "secrets", sample: &corev1.Secret{}, namespaced: true, onCreate: fillSecret, unconditionalUpdate: true},
		{gvk: core.WithKind("Event"), resource: "events", sample: &corev1.Event{}, namespaced: true, validate: validateEvent, unconditionalUpdate: true},
		{gvk: leases.WithKind("Lease"), resource: "leases", sample: &coordinationv1.Lease{}, namespaced: true, validate: validateLease},
		{
			gvk: storage.WithKind("VolumeAttachment"), resource: "volumeattachments", sample: &storagev1.VolumeAttachment{}, status: true, returnsDeleted: true,
			onCreate: func(o object) { o.(*storagev1.VolumeAttachment).Status = storagev1.VolumeAttachmentStatus{} },
		},
		{gvk: access.WithKind("SelfSubjectAccessReview"), resource: "selfsubjectaccessreviews", sample: &authorizationv1.SelfSubjectAccessReview{}},
		{gvk: definitions, resource: "customresourcedefinitions", onCreate: establish},
	} {
		k.versions = []string{"v1"}
		if k.gvk.Group != access.Group { // a review is answered, and not stored
			k.table = newTable(0)
		}
		all[k.gr()] = k
	}
	return all
}

// about is a request of the server itself for objects of the core group.
func (s *Server) about(resource, name string) *call {
	return &call{s: s, k: s.kinds[schema.GroupResource{Resource: resource}], q: Request{ResourceAttributes: authorizationv1.ResourceAttributes{Version: "v1", Name: name}}}
}

// Add stores a new object with its status, without a request: half a million would take long over HTTP. Its UID is set in it.
func (s *Server) Add(resource schema.GroupVersionResource, o interface {
	runtime.Object
	metav1.Object
}) error {
	s.mu.RLock()
	k := s.kinds[resource.GroupResource()]
	s.mu.RUnlock()
	if k == nil {
		return apierrors.NewNotFound(resource.GroupResource(), o.GetName())
	}
	what := authorizationv1.ResourceAttributes{Version: resource.Version, Namespace: o.GetNamespace(), Name: o.GetName()}
	return (&call{s: s, k: k, q: Request{ResourceAttributes: what}, asIs: true}).store(o)
}

// furnish makes the namespaces of every cluster.
func (s *Server) furnish() error {
	for _, name := range []string{metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease} {
		if err := s.about("namespaces", "").store(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
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

func graceOfPod(o object, asked *int64) int64 {
	p := o.(*corev1.Pod)
	if p.Spec.NodeName == "" || p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded {
		return 0
	}
	return ptr.Deref(asked, *p.Spec.TerminationGracePeriodSeconds) // fillPod sets it
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
	if about == e.Namespace || about == "" && e.Namespace == metav1.NamespaceDefault {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("involvedObject", "namespace"), about, "does not match event.namespace")}
}

func validateLease(o object) (errs field.ErrorList) {
	if d := o.(*coordinationv1.Lease).Spec.LeaseDurationSeconds; d != nil && *d <= 0 {
		errs = append(errs, field.Invalid(field.NewPath("spec", "leaseDurationSeconds"), *d, "must be greater than 0"))
	}
	return errs
}

var definitions = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}

// establish says that the kind is served. On a real server that takes a moment.
func establish(o object) {
	content(o)["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Established", "status": "True", "reason": "Accepted", "message": "the kind is served"}}}
}

// kindOf is the kind that a definition defines.
func kindOf(o object) (*kind, error) {
	text := func(at ...string) string {
		found, _, _ := unstructured.NestedString(content(o), append([]string{"spec"}, at...)...)
		return found
	}
	k := &kind{resource: text("names", "plural"), namespaced: text("scope") == "Namespaced", schemas: map[string]*customSchema{}}
	k.gvk.Group, k.gvk.Kind = text("group"), text("names", "kind")
	versions, _, _ := unstructured.NestedSlice(content(o), "spec", "versions")
	for _, v := range versions {
		v, _ := v.(map[string]any)
		name, _ := v["name"].(string)
		if v["storage"] == true {
			k.gvk.Version = name
		}
		if v["served"] != true {
			continue
		}
		k.versions = append(k.versions, name)
		if _, yes, _ := unstructured.NestedMap(v, "subresources", "status"); yes {
			k.status, k.onCreate = true, func(o object) { delete(content(o), "status") }
		}
		root, _, err := unstructured.NestedMap(v, "schema", "openAPIV3Schema")
		if err == nil {
			k.schemas[name], err = newSchema(root)
		}
		if err != nil {
			return nil, fmt.Errorf("version %s: %w", name, err)
		}
	}
	if k.gvk.Version == "" {
		return nil, errors.New("no version is stored")
	}
	return k, nil
}

// define serves the kind of a definition from now on, or no more. s.mu is held.
func (s *Server) define(o object, gone bool) error {
	k, err := kindOf(o)
	if err != nil {
		return apierrors.NewInvalid(definitions.GroupKind(), o.GetName(), field.ErrorList{field.Invalid(field.NewPath("spec"), "", err.Error())})
	}
	if k.table = newTable(s.revision); s.kinds[k.gr()] != nil {
		k.table = s.kinds[k.gr()].table
	}
	if s.kinds[k.gr()] = k; !gone {
		return nil
	}
	k.table.latest().Ascend(func(e *entry) bool {
		var last object
		if last, err = k.decode(e, k.gvk.Version); err == nil {
			err = s.put(k, e.key, last, true)
		}
		return err == nil
	})
	delete(s.kinds, k.gr())
	close(k.table.news)
	k.table.news = nil
	return err
}

func content(o object) map[string]any { return o.(*unstructured.Unstructured).Object }

// keepCustom does that for a custom resource. Its generation counts the changes of all but the metadata.
func (k *kind) keepCustom(to, from *unstructured.Unstructured, ofStatus bool) {
	if ofStatus {
		kept := from.DeepCopy().Object
		setStatus(kept, to.Object)
		to.Object = kept
		return
	}
	if k.status || k.gvk == definitions {
		setStatus(to.Object, from.Object)
	}
	a, b := maps.Clone(to.Object), maps.Clone(from.Object)
	delete(a, "metadata")
	delete(b, "metadata")
	if !equality.Semantic.DeepEqual(a, b) {
		to.SetGeneration(from.GetGeneration() + 1)
	}
}

func setStatus(to, from map[string]any) {
	if delete(to, "status"); from["status"] != nil {
		to["status"] = from["status"]
	}
}

// customSchema is the schema of one version of a custom resource.
type customSchema struct {
	root      map[string]any
	validator *validate.SchemaValidator
}

func newSchema(root map[string]any) (*customSchema, error) {
	typeIntOrString(root)
	s := &spec.Schema{}
	raw, err := json.Marshal(root)
	if err == nil {
		err = json.Unmarshal(raw, s)
	}
	return &customSchema{root, validate.NewSchemaValidator(s, nil, "", strfmt.Default)}, err
}

// typeIntOrString gives the types of OpenAPI to what is an integer or a string, as apiextensions does.
func typeIntOrString(of any) {
	s, _ := of.(map[string]any)
	for _, child := range s {
		typeIntOrString(child)
	}
	if s["x-kubernetes-int-or-string"] == true {
		s["type"] = []any{"integer", "string"}
	}
}

// shape removes the fields that a schema does not have, and sets those that have a default.
func shape(value any, s map[string]any, resource bool) {
	if list, ok := value.([]any); ok {
		for _, item := range list {
			items, _ := s["items"].(map[string]any)
			shape(item, items, false)
		}
	}
	v, ok := value.(map[string]any)
	if !ok {
		return
	}
	properties, _ := s["properties"].(map[string]any)
	more, others := s["additionalProperties"].(map[string]any)
	for key, child := range v {
		p, known := properties[key].(map[string]any)
		switch {
		case resource && (key == "apiVersion" || key == "kind" || key == "metadata"):
		case known:
			shape(child, p, false)
		case others:
			shape(child, more, false)
		case s["additionalProperties"] == nil && s["x-kubernetes-preserve-unknown-fields"] != true:
			delete(v, key)
		}
	}
	for key, p := range properties {
		p, _ := p.(map[string]any)
		was, there := v[key]
		if byDefault, ok := p["default"]; ok && was == nil && (!there || p["nullable"] != true) {
			v[key] = runtime.DeepCopyJSONValue(byDefault)
			shape(v[key], p, false)
		}
	}
}

// check returns what is wrong with an object, in the words of apiextensions.
func (c *customSchema) check(o object) (errs field.ErrorList) {
	for _, err := range c.validator.Validate(content(o)).Errors {
		var v *openapierrors.Validation
		if !errors.As(err, &v) {
			errs = append(errs, field.Invalid(nil, "", err.Error()))
			continue
		}
		at, value := field.NewPath(strings.TrimPrefix(v.Name, ".")), v.Value
		if value == nil {
			value = ""
		}
		switch v.Code() {
		case openapierrors.RequiredFailCode:
			errs = append(errs, field.Required(at, ""))
		case openapierrors.EnumFailCode:
			var allowed []string
			for _, a := range v.Values {
				allowed = append(allowed, fmt.Sprint(a))
			}
			errs = append(errs, field.NotSupported(at, value, allowed))
		case openapierrors.InvalidTypeCode:
			errs = append(errs, field.TypeInvalid(at, value, v.Error()))
		default:
			errs = append(errs, field.Invalid(at, value, v.Error()))
		}
	}
	return errs
}
