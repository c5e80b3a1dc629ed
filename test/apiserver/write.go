package apiserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

func (c *call) create() error {
	o, err := c.received()
	if err != nil {
		return err
	}
	return c.answer(http.StatusCreated, o, c.store(o))
}

// store stores a new object.
func (c *call) store(o object) error {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if err := c.admit(o); err != nil {
		return err
	}
	if o.GetResourceVersion() != "" {
		return apierrors.NewInternalError(errors.New("resourceVersion should not be set on objects to be created"))
	}
	o.SetUID(uuid.NewUUID())
	o.SetCreationTimestamp(metav1.NewTime(c.s.opts.Clock()).Rfc3339Copy())
	o.SetDeletionTimestamp(nil)
	o.SetDeletionGracePeriodSeconds(nil)
	if base := o.GetGenerateName(); base != "" && o.GetName() == "" {
		o.SetName(base[:min(len(base), 58)] + utilrand.String(5))
	}
	if c.k.sample == nil {
		o.SetGeneration(1)
	}
	if err := c.prepare(o, nil); err != nil {
		return err
	}
	c.q.Name = o.GetName()
	if _, err := c.live(); err == nil {
		return apierrors.NewAlreadyExists(c.k.gr(), c.q.Name)
	}
	return c.s.put(c.k, c.key(), o, false)
}

// admit gives an object the namespace of the request, which must take it. c.s.mu is held.
func (c *call) admit(o object) error {
	if err := c.inNamespace(o); err != nil || !c.k.namespaced {
		return err
	}
	ns, err := c.s.about("namespaces", c.q.Namespace).live()
	if err != nil || ns.GetDeletionTimestamp() == nil {
		return err
	}
	refused := apierrors.NewForbidden(c.k.gr(), o.GetName(), fmt.Errorf("unable to create new content in namespace %s because it is being terminated", c.q.Namespace))
	refused.ErrStatus.Details.Causes = []metav1.StatusCause{{
		Type: corev1.NamespaceTerminatingCause, Message: fmt.Sprintf("namespace %s is being terminated", c.q.Namespace), Field: "metadata.namespace",
	}}
	return refused
}

func (c *call) inNamespace(o object) error {
	if !c.k.namespaced {
		return nil
	}
	if ns := o.GetNamespace(); ns != "" && ns != c.q.Namespace {
		return apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
	}
	o.SetNamespace(c.q.Namespace)
	return nil
}

// prepare applies the rules of the kind to an object that is new, or replaces another.
func (c *call) prepare(o, was object) error {
	s, at := c.k.schemas[c.q.Version], field.NewPath("metadata")
	if s != nil {
		shape(content(o), s.root, true)
	}
	var errs field.ErrorList
	if was != nil {
		c.k.keep(o, was, c.q.Subresource == "status")
		errs = validation.ValidateObjectMetaAccessorUpdate(o, was, at)
	} else if c.k.onCreate != nil && !c.asIs {
		c.k.onCreate(o)
	}
	errs = append(validation.ValidateObjectMetaAccessor(o, c.k.namespaced, validation.NameIsDNSSubdomain, at), errs...)
	if s != nil {
		errs = append(errs, s.check(o)...)
	}
	if c.k.validate != nil {
		errs = append(errs, c.k.validate(o)...)
	}
	if len(errs) > 0 {
		return apierrors.NewInvalid(c.k.gvk.GroupKind(), o.GetName(), errs)
	}
	return nil
}

// keep keeps what an update may not change: the status, or all but the status if that is what it is of.
func (k *kind) keep(o, was object, ofStatus bool) {
	if to, custom := o.(*unstructured.Unstructured); custom {
		k.keepCustom(to, was.(*unstructured.Unstructured), ofStatus)
	} else if k.status {
		name := "Status"
		if ofStatus {
			name = "Spec"
		}
		reflect.ValueOf(o).Elem().FieldByName(name).Set(reflect.ValueOf(was).Elem().FieldByName(name))
	}
}

func (c *call) update() error {
	sent, err := c.received()
	if err != nil {
		return err
	}
	if err := c.inNamespace(sent); err != nil {
		return err
	}
	if sent.GetName() != c.q.Name {
		return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)", sent.GetName(), c.q.Name))
	}
	return c.replace(func(object) (object, error) { return sent, nil })
}

// replace replaces the object that the request is about by what next makes of it.
func (c *call) replace(next func(was object) (object, error)) error {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	was, err := c.live()
	if err != nil {
		return err
	}
	o, err := next(was)
	if err != nil {
		return err
	}
	switch uid, version := o.GetUID(), o.GetResourceVersion(); {
	case uid != "" && uid != was.GetUID():
		//lint:ignore ST1005 Kubernetes' words
		return apierrors.NewConflict(c.k.gr(), c.q.Name, fmt.Errorf("Precondition failed: UID in precondition: %s, UID in object meta: %s", uid, was.GetUID()))
	case version == "" && !c.k.unconditionalUpdate:
		errs := field.ErrorList{field.Invalid(field.NewPath("metadata", "resourceVersion"), 0, "must be specified for an update")}
		return apierrors.NewInvalid(schema.GroupKind{Group: c.k.gvk.Group, Kind: c.k.resource}, c.q.Name, errs)
	case version != "" && version != was.GetResourceVersion():
		return apierrors.NewConflict(c.k.gr(), c.q.Name, errors.New("the object has been modified; please apply your changes to the latest version and try again"))
	}
	o.SetResourceVersion(was.GetResourceVersion())
	o.SetGeneration(was.GetGeneration())
	o.SetCreationTimestamp(was.GetCreationTimestamp())
	o.SetUID(was.GetUID())
	o.SetDeletionTimestamp(was.GetDeletionTimestamp())
	o.SetDeletionGracePeriodSeconds(was.GetDeletionGracePeriodSeconds())
	if err := c.prepare(o, was); err != nil {
		return err
	}
	gone := ptr.Deref(was.GetDeletionGracePeriodSeconds(), 1) == 0 && len(o.GetFinalizers()) == 0
	return c.answer(http.StatusOK, o, c.s.put(c.k, c.key(), o, gone))
}

func (c *call) patch() error {
	patches := map[string]func(before, patch []byte) ([]byte, error){
		string(types.MergePatchType): jsonpatch.MergePatch,
		string(types.JSONPatchType): func(before, patch []byte) ([]byte, error) {
			steps, err := jsonpatch.DecodePatch(patch)
			if err != nil {
				return nil, err
			}
			return steps.Apply(before)
		},
	}
	if c.k.sample != nil {
		patches[string(types.StrategicMergePatchType)] = func(before, patch []byte) ([]byte, error) {
			return strategicpatch.StrategicMergePatch(before, patch, c.k.sample)
		}
	}
	mediaType, patch, err := c.body(slices.Sorted(maps.Keys(patches)))
	if err != nil {
		return err
	}
	return c.replace(func(was object) (object, error) {
		before, err := runtime.Encode(c.encoder(runtime.ContentTypeJSON), was)
		if err != nil {
			return nil, err
		}
		after, err := patches[mediaType](before, patch)
		if err != nil {
			return nil, refused(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, err.Error())
		}
		return c.decode(runtime.ContentTypeJSON, after)
	})
}

func (c *call) delete() error {
	mediaType, body, err := c.body((*kind)(nil).mediaTypes())
	o := &metav1.DeleteOptions{}
	if err == nil && len(body) > 0 {
		want := metav1.SchemeGroupVersion.WithKind("DeleteOptions")
		_, _, err = serializerOf(mediaType).Serializer.Decode(body, &want, o)
	}
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	was, err := c.live()
	if err != nil {
		return err
	}
	gr := schema.GroupResource{Group: c.k.gvk.Group, Resource: c.k.gvk.Kind}
	switch p := ptr.Deref(o.Preconditions, metav1.Preconditions{}); {
	case p.UID != nil && *p.UID != was.GetUID():
		return apierrors.NewConflict(gr, c.q.Name, fmt.Errorf("the UID in the precondition (%s) does not match the UID in record (%s). The object might have been deleted and then recreated", *p.UID, was.GetUID()))
	case p.ResourceVersion != nil && *p.ResourceVersion != was.GetResourceVersion():
		return apierrors.NewConflict(gr, c.q.Name, fmt.Errorf("the ResourceVersion in the precondition (%s) does not match the ResourceVersion in record (%s). The object might have been modified", *p.ResourceVersion, was.GetResourceVersion()))
	}
	stays := c.mark(was, o.GracePeriodSeconds)
	if err = c.s.put(c.k, c.key(), was, !stays); err == nil && c.s.opts.Audit != nil {
		err = c.audit(o)
	}
	if stays || c.k.returnsDeleted {
		return c.answer(http.StatusOK, was, err)
	}
	done := &metav1.Status{Status: metav1.StatusSuccess, Details: &metav1.StatusDetails{Name: c.q.Name, Group: c.k.gvk.Group, Kind: c.k.resource, UID: was.GetUID()}}
	return c.answer(http.StatusOK, done, err)
}

// audit logs a deletion that is done. c.s.mu is held.
func (c *call) audit(o *metav1.DeleteOptions) error {
	now := c.s.opts.Clock()
	return json.NewEncoder(c.s.opts.Audit).Encode(map[string]any{
		"kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "Request", "stage": "ResponseComplete", "verb": c.q.Verb, "userAgent": c.r.UserAgent(),
		"user": map[string]any{"username": c.q.User}, "requestReceivedTimestamp": now, "stageTimestamp": now, "requestObject": o,
		"responseStatus": map[string]any{"code": http.StatusOK}, "objectRef": c.q.ResourceAttributes,
	})
}

// mark marks an object as being deleted, and reports whether it stays until its finalizers are gone, or the kubelet has stopped the pod.
func (c *call) mark(o object, asked *int64) (stays bool) {
	seconds := int64(0)
	if c.k.grace != nil {
		seconds = c.k.grace(o, asked)
	}
	n, namespace := o.(*corev1.Namespace)
	switch {
	case o.GetDeletionTimestamp() != nil && ptr.Deref(o.GetDeletionGracePeriodSeconds(), 0) <= seconds: // it can only be shortened
		return true
	case !namespace && seconds == 0 && len(o.GetFinalizers()) == 0:
		return false
	}
	end := metav1.NewTime(c.s.opts.Clock().Add(time.Duration(seconds) * time.Second)).Rfc3339Copy()
	if o.SetDeletionTimestamp(&end); namespace { // it stays until its controller has emptied it
		n.Status.Phase = corev1.NamespaceTerminating
	} else {
		o.SetDeletionGracePeriodSeconds(&seconds)
	}
	return true
}
