package apiserver

import (
	"maps"
	"strconv"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// builtIn are the built-in kinds, by resource. Their rules are those of the strategies in k8s.io/kubernetes/pkg/registry.
func builtIn() map[schema.GroupResource]*kind {
	all := map[schema.GroupResource]*kind{}
	for _, k := range []*kind{
		{kind: "Namespace", resource: "namespaces", sample: &corev1.Namespace{}, status: true, rules: namespaceRules},
		{kind: "Node", resource: "nodes", sample: &corev1.Node{}, status: true, rules: nodeRules},
		{kind: "Pod", resource: "pods", sample: &corev1.Pod{}, namespaced: true, status: true, rules: podRules},
		{kind: "Secret", resource: "secrets", sample: &corev1.Secret{}, namespaced: true, rules: secretRules},
		{kind: "Event", resource: "events", sample: &corev1.Event{}, namespaced: true, rules: eventRules},
		{group: "coordination.k8s.io", kind: "Lease", resource: "leases", sample: &coordinationv1.Lease{}, namespaced: true, rules: leaseRules},
		{group: "storage.k8s.io", kind: "VolumeAttachment", resource: "volumeattachments", sample: &storagev1.VolumeAttachment{}, status: true, rules: attachmentRules},
		{group: "authorization.k8s.io", kind: "SelfSubjectAccessReview", resource: "selfsubjectaccessreviews", sample: &authorizationv1.SelfSubjectAccessReview{}, review: reviewSelf},
		{group: "authorization.k8s.io", kind: "SubjectAccessReview", resource: "subjectaccessreviews", sample: &authorizationv1.SubjectAccessReview{}, review: reviewOther},
		{group: definitionGroup, kind: "CustomResourceDefinition", resource: "customresourcedefinitions", rules: definitionRules},
	} {
		k.versions, k.listKind, k.singular = []string{"v1"}, k.kind+"List", strings.ToLower(k.kind)
		if k.review == nil {
			k.table = newTable()
		}
		all[k.gr()] = k
	}
	return all
}

// furnish makes what every cluster has.
func (s *Server) furnish() error {
	k := s.kinds[schema.GroupResource{Resource: "namespaces"}]
	for _, name := range []string{metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease} {
		c := &call{s: s, k: k, q: &Request{Version: "v1", Name: name}}
		if _, err := c.creates(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, false); err != nil {
			return err
		}
	}
	return nil
}

var namespaceRules = rules{
	onCreate: func(o object) {
		n := o.(*corev1.Namespace)
		labels := map[string]string{corev1.LabelMetadataName: n.Name}
		maps.Copy(labels, n.Labels)
		n.Labels, n.Spec.Finalizers, n.Status = labels, []corev1.FinalizerName{corev1.FinalizerKubernetes}, corev1.NamespaceStatus{Phase: corev1.NamespaceActive}
	},
	onUpdate: func(now, was object) {
		n, o := now.(*corev1.Namespace), was.(*corev1.Namespace)
		n.Spec.Finalizers, n.Status = o.Spec.Finalizers, o.Status
	},
	onStatus: func(now, was object) { now.(*corev1.Namespace).Spec = was.(*corev1.Namespace).Spec },
	fields: func(o object) fields.Set {
		return fields.Set{"status.phase": string(o.(*corev1.Namespace).Status.Phase)}
	},
	unconditionalUpdate: true, returnsDeleted: true,
}

var nodeRules = rules{
	onCreate: func(o object) {
		if n := o.(*corev1.Node); n.Status.Allocatable == nil {
			n.Status.Allocatable = n.Status.Capacity.DeepCopy()
		}
	},
	onUpdate: func(now, was object) { now.(*corev1.Node).Status = was.(*corev1.Node).Status },
	onStatus: func(now, was object) { now.(*corev1.Node).Spec = was.(*corev1.Node).Spec },
	fields: func(o object) fields.Set {
		return fields.Set{"spec.unschedulable": strconv.FormatBool(o.(*corev1.Node).Spec.Unschedulable)}
	},
	unconditionalUpdate: true,
}

var podRules = rules{
	onCreate: func(o object) {
		p := o.(*corev1.Pod)
		p.Status, p.Generation = corev1.PodStatus{Phase: corev1.PodPending, QOSClass: corev1.PodQOSBestEffort}, 1
		if p.Spec.TerminationGracePeriodSeconds == nil {
			seconds := int64(corev1.DefaultTerminationGracePeriodSeconds)
			p.Spec.TerminationGracePeriodSeconds = &seconds
		}
	},
	onUpdate: func(now, was object) { now.(*corev1.Pod).Status = was.(*corev1.Pod).Status },
	onStatus: func(now, was object) {
		now.(*corev1.Pod).Spec = was.(*corev1.Pod).Spec
		now.SetOwnerReferences(was.GetOwnerReferences())
		now.SetDeletionTimestamp(was.GetDeletionTimestamp())
	},
	fields: func(o object) fields.Set {
		p := o.(*corev1.Pod)
		return fields.Set{"spec.nodeName": p.Spec.NodeName, "status.phase": string(p.Status.Phase)}
	},
	grace: func(o object, asked *int64) int64 {
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
	},
	unconditionalUpdate: true, returnsDeleted: true,
}

var secretRules = rules{
	onCreate: fillSecret,
	onUpdate: func(now, was object) {
		fillSecret(now)
		if n := now.(*corev1.Secret); n.Type == "" {
			n.Type = was.(*corev1.Secret).Type
		}
	},
	fields:              func(o object) fields.Set { return fields.Set{"type": string(o.(*corev1.Secret).Type)} },
	unconditionalUpdate: true,
}

func fillSecret(o object) {
	s := o.(*corev1.Secret)
	for key, value := range s.StringData {
		if s.Data == nil {
			s.Data = map[string][]byte{}
		}
		s.Data[key] = []byte(value)
	}
	if s.StringData = nil; s.Type == "" {
		s.Type = corev1.SecretTypeOpaque
	}
}

var eventRules = rules{
	validate: func(o object) field.ErrorList {
		e := o.(*corev1.Event)
		about, at := e.InvolvedObject.Namespace, field.NewPath("involvedObject", "namespace")
		ofNode := about == "" && (e.Namespace == metav1.NamespaceDefault || !e.EventTime.IsZero() && e.Namespace == metav1.NamespaceSystem)
		if ofNode || about == e.Namespace || about != "" && !e.EventTime.IsZero() {
			return nil
		}
		return field.ErrorList{field.Invalid(at, about, "does not match event.namespace")}
	},
	fields: func(o object) fields.Set {
		e := o.(*corev1.Event)
		return fields.Set{
			"involvedObject.kind": e.InvolvedObject.Kind, "involvedObject.name": e.InvolvedObject.Name, "involvedObject.namespace": e.InvolvedObject.Namespace,
			"involvedObject.uid": string(e.InvolvedObject.UID), "reason": e.Reason, "type": e.Type, "source": e.Source.Component,
		}
	},
	createOnUpdate: true, unconditionalUpdate: true,
}

var leaseRules = rules{
	validate: func(o object) (errs field.ErrorList) {
		spec, at := o.(*coordinationv1.Lease).Spec, field.NewPath("spec")
		if d := spec.LeaseDurationSeconds; d != nil && *d <= 0 {
			errs = append(errs, field.Invalid(at.Child("leaseDurationSeconds"), *d, "must be greater than 0"))
		}
		if n := spec.LeaseTransitions; n != nil && *n < 0 {
			errs = append(errs, field.Invalid(at.Child("leaseTransitions"), *n, "must be greater than or equal to 0"))
		}
		return errs
	},
	createOnUpdate: true,
}

var attachmentRules = rules{
	onCreate: func(o object) { o.(*storagev1.VolumeAttachment).Status = storagev1.VolumeAttachmentStatus{} },
	onUpdate: func(now, was object) {
		now.(*storagev1.VolumeAttachment).Status = was.(*storagev1.VolumeAttachment).Status
	},
	onStatus: func(now, was object) {
		status := now.(*storagev1.VolumeAttachment).Status
		*now.(*storagev1.VolumeAttachment) = *was.(*storagev1.VolumeAttachment).DeepCopy()
		now.(*storagev1.VolumeAttachment).Status = status
	},
	returnsDeleted: true,
}
