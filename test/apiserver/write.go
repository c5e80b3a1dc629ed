package apiserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func (c *call) create() error {
	o, err := c.received()
	if err != nil {
		return err
	}
	e, err := c.store(o)
	return c.entry(http.StatusCreated, e, err)
}

// store stores a new object.
func (c *call) store(o object) (*entry, error) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if err := c.admit(o); err != nil {
		return nil, err
	}
	if o.GetResourceVersion() != "" {
		return nil, apierrors.NewInternalError(errors.New("resourceVersion should not be set on objects to be created"))
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
		return nil, err
	}
	c.q.Name = o.GetName()
	if _, err := c.stored(); err == nil {
		return nil, apierrors.NewAlreadyExists(c.k.gr(), c.q.Name)
	}
	return c.put(o, false)
}

// admit gives an object the namespace of the request, which must take it. c.s.mu is held.
func (c *call) admit(o object) error {
	if !c.k.namespaced {
		return nil
	}
	if err := c.inNamespace(o); err != nil {
		return err
	}
	spaces := &call{s: c.s, k: c.s.kinds[schema.GroupResource{Resource: "namespaces"}], q: &Request{Name: c.q.Namespace}}
	e, err := spaces.stored()
	if err != nil {
		return err
	}
	if ns, err := spaces.k.decode(e, "v1"); err != nil || ns.GetDeletionTimestamp() == nil {
		return err
	}
	refused := apierrors.NewForbidden(c.k.gr(), o.GetName(), fmt.Errorf("unable to create new content in namespace %s because it is being terminated", c.q.Namespace))
	refused.ErrStatus.Details.Causes = []metav1.StatusCause{{
		Type: corev1.NamespaceTerminatingCause, Message: fmt.Sprintf("namespace %s is being terminated", c.q.Namespace), Field: "metadata.namespace",
	}}
	return refused
}

func (c *call) inNamespace(o object) error {
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
		s.shape(o)
	}
	var errs field.ErrorList
	switch {
	case was != nil:
		c.k.keep(o, was, c.q.Subresource == "status")
		errs = validation.ValidateObjectMetaAccessorUpdate(o, was, at)
	case c.k.onCreate != nil:
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
	switch {
	case k.sample == nil:
		k.keepCustom(o, was, ofStatus)
	case k.status && ofStatus:
		copyField(o, was, "Spec")
	case k.status:
		copyField(o, was, "Status")
	}
}

func copyField(to, from object, name string) {
	reflect.ValueOf(to).Elem().FieldByName(name).Set(reflect.ValueOf(from).Elem().FieldByName(name))
}

// put writes an object, or deletes it. c.s.mu is held.
func (c *call) put(o object, gone bool) (*entry, error) {
	if c.k.gvk == definitions {
		if err := c.s.define(o, gone); err != nil {
			return nil, err
		}
	}
	return c.s.put(c.k.table, c.key(), o, gone, c.k.encode)
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
	return c.replace(func(was object) (object, error) {
		if uid := sent.GetUID(); uid != "" && uid != was.GetUID() {
			return nil, apierrors.NewConflict(c.k.gr(), c.q.Name, fmt.Errorf("Precondition failed: UID in precondition: %s, UID in object meta: %s", uid, was.GetUID())) //lint:ignore ST1005 Kubernetes' words
		}
		return sent, nil
	})
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
	switch version := o.GetResourceVersion(); {
	case version == "" && !c.k.unconditionalUpdate:
		errs := field.ErrorList{field.Invalid(field.NewPath("metadata", "resourceVersion"), 0, "must be specified for an update")}
		return apierrors.NewInvalid(schema.GroupKind{Group: c.k.gvk.Group, Kind: c.k.resource}, c.q.Name, errs)
	case version != "" && version != was.GetResourceVersion():
		return apierrors.NewConflict(c.k.gr(), c.q.Name, errors.New("the object has been modified; please apply your changes to the latest version and try again"))
	}
	o.SetResourceVersion(was.GetResourceVersion())
	o.SetGeneration(was.GetGeneration())
	o.SetCreationTimestamp(was.GetCreationTimestamp())
	if o.GetUID() == "" {
		o.SetUID(was.GetUID())
	}
	seconds := was.GetDeletionGracePeriodSeconds()
	if was.GetDeletionTimestamp() != nil {
		o.SetDeletionTimestamp(was.GetDeletionTimestamp())
		o.SetDeletionGracePeriodSeconds(seconds)
	}
	if err := c.prepare(o, was); err != nil {
		return err
	}
	e, err := c.put(o, seconds != nil && *seconds == 0 && len(o.GetFinalizers()) == 0)
	return c.entry(http.StatusOK, e, err)
}

// live is the object that the request is about. c.s.mu is held.
func (c *call) live() (object, error) {
	e, err := c.stored()
	if err != nil {
		return nil, err
	}
	return c.k.decode(e, c.q.Version)
}

func (c *call) patch() error {
	supported := []string{string(types.JSONPatchType), string(types.MergePatchType)}
	if c.k.sample != nil {
		supported = append(supported, string(types.StrategicMergePatchType))
	}
	mediaType, patch, err := c.body(supported)
	if err != nil {
		return err
	}
	return c.replace(func(was object) (object, error) {
		before, err := runtime.Encode(c.k.codec(runtime.ContentTypeJSON, c.q.Version), was)
		if err != nil {
			return nil, err
		}
		after, err := c.patched(types.PatchType(mediaType), before, patch)
		if err != nil {
			return nil, err
		}
		o, err := c.decode(runtime.ContentTypeJSON, after)
		if err != nil {
			return nil, apierrors.NewInvalid(schema.GroupKind{}, "", field.ErrorList{field.Invalid(field.NewPath("patch"), string(after), err.Error())})
		}
		return o, nil
	})
}

func (c *call) patched(kind types.PatchType, before, patch []byte) (after []byte, err error) {
	switch kind {
	case types.JSONPatchType:
		var steps jsonpatch.Patch
		if steps, err = jsonpatch.DecodePatch(patch); err == nil {
			if after, err = steps.Apply(before); err != nil {
				return nil, apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", err.Error(), 0, false)
			}
		}
	case types.StrategicMergePatchType:
		after, err = strategicpatch.StrategicMergePatch(before, patch, c.k.sample)
	default:
		after, err = jsonpatch.MergePatch(before, patch)
	}
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return after, nil
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
	if p := o.Preconditions; p != nil {
		gr := schema.GroupResource{Group: c.k.gvk.Group, Resource: c.k.gvk.Kind}
		if p.UID != nil && *p.UID != was.GetUID() {
			return apierrors.NewConflict(gr, c.q.Name, fmt.Errorf("the UID in the precondition (%s) does not match the UID in record (%s). The object might have been deleted and then recreated", *p.UID, was.GetUID()))
		}
		if p.ResourceVersion != nil && *p.ResourceVersion != was.GetResourceVersion() {
			return apierrors.NewConflict(gr, c.q.Name, fmt.Errorf("the ResourceVersion in the precondition (%s) does not match the ResourceVersion in record (%s). The object might have been modified", *p.ResourceVersion, was.GetResourceVersion()))
		}
	}
	stays := c.mark(was, o.GracePeriodSeconds)
	e, err := c.put(was, !stays)
	if err == nil {
		err = c.audit(o)
	}
	if err == nil && !stays && !c.k.returnsDeleted {
		c.document(http.StatusOK, &metav1.Status{Status: metav1.StatusSuccess, Details: &metav1.StatusDetails{Name: c.q.Name, Group: c.k.gvk.Group, Kind: c.k.resource, UID: was.GetUID()}})
		return nil
	}
	return c.entry(http.StatusOK, e, err)
}

// audit logs a deletion that is done. c.s.mu is held.
func (c *call) audit(o *metav1.DeleteOptions) error {
	if c.s.opts.Audit == nil {
		return nil
	}
	now := c.s.opts.Clock()
	return json.NewEncoder(c.s.opts.Audit).Encode(map[string]any{
		"kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "Request", "stage": "ResponseComplete", "verb": c.q.Verb, "userAgent": c.r.UserAgent(),
		"user": map[string]any{"username": c.user.name}, "requestReceivedTimestamp": now, "stageTimestamp": now, "requestObject": o, "responseStatus": map[string]any{"code": http.StatusOK},
		"objectRef": map[string]any{"resource": c.k.resource, "namespace": c.q.Namespace, "name": c.q.Name},
	})
}

// mark marks an object as being deleted, and reports whether it stays until its finalizers are gone, or the kubelet has stopped the pod.
func (c *call) mark(o object, asked *int64) (stays bool) {
	seconds, began := int64(0), c.s.opts.Clock()
	if c.k.grace != nil {
		seconds = c.k.grace(o, asked)
	}
	if before := o.GetDeletionGracePeriodSeconds(); before != nil { // it can only be shortened
		seconds = min(seconds, *before)
		began = o.GetDeletionTimestamp().Add(-time.Duration(*before) * time.Second)
	}
	n, namespace := o.(*corev1.Namespace)
	if !namespace && seconds == 0 && len(o.GetFinalizers()) == 0 {
		return false
	}
	if o.GetDeletionTimestamp() == nil && o.GetGeneration() > 0 {
		o.SetGeneration(o.GetGeneration() + 1)
	}
	end := metav1.NewTime(began.Add(time.Duration(seconds) * time.Second)).Rfc3339Copy()
	if o.SetDeletionTimestamp(&end); namespace { // it stays until its controller has emptied it
		n.Status.Phase = corev1.NamespaceTerminating
	} else {
		o.SetDeletionGracePeriodSeconds(&seconds)
	}
	return true
}
