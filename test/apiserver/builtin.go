package apiserver

import (
	"maps"

	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

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
		{gvk: reviews.WithKind("SubjectAccessReview"), resource: "subjectaccessreviews", sample: &authorizationv1.SubjectAccessReview{}},
		{gvk: definitions, resource: "customresourcedefinitions", onCreate: establish, validate: validateDefinition},
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
