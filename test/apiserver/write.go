package apiserver

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/api/validation/path"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func (c *call) create(w http.ResponseWriter) error {
	var o metav1.CreateOptions
	if err := c.parameters(&o); err != nil {
		return err
	}
	made, err := c.received()
	if err != nil {
		return err
	}
	e, err := c.creates(made, len(o.DryRun) > 0)
	if err != nil {
		return err
	}
	return c.entry(w, http.StatusCreated, e)
}

// creates stores a new object.
func (c *call) creates(o object, dry bool) (*entry, error) {
	if err := c.inNamespace(o); err != nil {
		return nil, err
	}
	now := metav1.NewTime(c.s.opts.Clock()).Rfc3339Copy()
	o.SetUID(uuid.NewUUID())
	o.SetCreationTimestamp(now)
	o.SetDeletionTimestamp(nil)
	o.SetDeletionGracePeriodSeconds(nil)
	if o.GetName() == "" && o.GetGenerateName() != "" {
		base := o.GetGenerateName()
		o.SetName(base[:min(len(base), 58)] + utilrand.String(5))
	}
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if err := c.admitted(o); err != nil {
		return nil, err
	}
	if o.GetResourceVersion() != "" {
		return nil, apierrors.NewInternalError(errors.New("resourceVersion should not be set on objects to be created"))
	}
	if c.k.sample == nil {
		o.SetGeneration(1)
	}
	if err := c.prepared(o, nil, c.k.onCreate, nil); err != nil {
		return nil, err
	}
	key := c.key(o.GetName())
	if c.k.table.items.Has(&entry{key: key}) {
		return nil, apierrors.NewAlreadyExists(c.k.gr(), o.GetName())
	}
	return c.commit(key, o, dry)
}

// inNamespace gives an object the namespace of the request.
func (c *call) inNamespace(o object) error {
	switch ns := o.GetNamespace(); {
	case !c.k.namespaced:
		o.SetNamespace("")
	case ns == "":
		o.SetNamespace(c.q.Namespace)
	case ns != c.q.Namespace:
		return apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
	}
	return nil
}

// admitted returns an error if nothing can be created in the namespace. c.s.mu is held.
func (c *call) admitted(o object) error {
	if !c.k.namespaced {
		return nil
	}
	k := c.s.kinds[schema.GroupResource{Resource: "namespaces"}]
	e, ok := k.table.items.Get(&entry{key: c.q.Namespace})
	if !ok {
		return apierrors.NewNotFound(k.gr(), c.q.Namespace)
	}
	ns, err := k.decode(e, "v1")
	if err != nil || ns.GetDeletionTimestamp() == nil {
		return err
	}
	refused := apierrors.NewForbidden(c.k.gr(), o.GetName(), fmt.Errorf("unable to create new content in namespace %s because it is being terminated", c.q.Namespace))
	refused.ErrStatus.Details.Causes = []metav1.StatusCause{{
		Type: corev1.NamespaceTerminatingCause, Message: fmt.Sprintf("namespace %s is being terminated", c.q.Namespace), Field: "metadata.namespace",
	}}
	return refused
}

// prepared applies the rules of the kind to an object that is created, or changed if there is an old one.
func (c *call) prepared(now, was object, created func(object), changed func(now, was object)) error {
	at := field.NewPath("metadata")
	var s *customSchema
	if s = c.k.schemas[c.q.Version]; s != nil {
		s.shape(now)
	}
	if was == nil && created != nil {
		created(now)
	}
	if was != nil && changed != nil {
		changed(now, was)
	}
	var errs field.ErrorList
	if was != nil {
		errs = validation.ValidateObjectMetaAccessorUpdate(now, was, at)
	}
	errs = append(validation.ValidateObjectMetaAccessor(now, c.k.namespaced, c.validName, at), errs...)
	if s != nil {
		errs = append(errs, s.check(now)...)
	}
	if c.k.validate != nil {
		errs = append(errs, c.k.validate(now)...)
	}
	if len(errs) > 0 {
		return apierrors.NewInvalid(c.k.gk(), now.GetName(), errs)
	}
	return nil
}

// validName checks a name: most are subdomains, those of Leases and Events are any segment of a path.
func (c *call) validName(name string, prefix bool) []string {
	switch c.k.kind {
	case "Namespace":
		return validation.ValidateNamespaceName(name, prefix)
	case "Event":
		return path.ValidatePathSegmentName(name, prefix)
	}
	return validation.NameIsDNSSubdomain(name, prefix)
}

// commit stores an object, or shows what would be stored. c.s.mu is held.
func (c *call) commit(key string, o object, dry bool) (*entry, error) {
	if dry {
		raw, err := c.k.encode(o)
		return &entry{key, raw}, err
	}
	if err := c.s.put(c.k.table, key, o, nil, c.k.encode); err != nil {
		return nil, err
	}
	if c.k.group == definitionGroup {
		if err := c.s.define(o); err != nil {
			return nil, err
		}
	}
	e, _ := c.k.table.items.Get(&entry{key: key})
	return e, nil
}

func (c *call) update(w http.ResponseWriter) error {
	var o metav1.UpdateOptions
	if err := c.parameters(&o); err != nil {
		return err
	}
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
	e, err := c.change(len(o.DryRun) > 0, func(was object) (object, error) {
		if uid := sent.GetUID(); was != nil && uid != "" && uid != was.GetUID() {
			return nil, apierrors.NewConflict(c.k.gr(), c.q.Name, fmt.Errorf("Precondition failed: UID in precondition: %s, UID in object meta: %s", uid, was.GetUID())) //nolint:staticcheck // Kubernetes' words
		}
		return sent, nil
	})
	switch {
	case apierrors.IsNotFound(err) && c.k.createOnUpdate && c.q.Subresource == "":
		if e, err = c.creates(sent, len(o.DryRun) > 0); err == nil {
			return c.entry(w, http.StatusCreated, e)
		}
		return err
	case err != nil:
		return err
	}
	return c.entry(w, http.StatusOK, e)
}

// change replaces an object by what next makes of it.
func (c *call) change(dry bool, next func(was object) (object, error)) (*entry, error) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	key := c.key(c.q.Name)
	e, ok := c.k.table.items.Get(&entry{key: key})
	if !ok {
		return nil, apierrors.NewNotFound(c.k.gr(), c.q.Name)
	}
	was, err := c.k.decode(e, c.q.Version)
	if err != nil {
		return nil, err
	}
	now, err := next(was)
	if err != nil {
		return nil, err
	}
	switch version := now.GetResourceVersion(); {
	case version == "" && !c.k.unconditionalUpdate:
		at := field.NewPath("metadata", "resourceVersion")
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: c.k.group, Kind: c.k.resource}, c.q.Name, field.ErrorList{field.Invalid(at, 0, "must be specified for an update")})
	case version != "" && version != was.GetResourceVersion():
		return nil, apierrors.NewConflict(c.k.gr(), c.q.Name, errors.New("the object has been modified; please apply your changes to the latest version and try again"))
	}
	now.SetResourceVersion(was.GetResourceVersion())
	now.SetGeneration(was.GetGeneration())
	now.SetCreationTimestamp(was.GetCreationTimestamp())
	if now.GetUID() == "" {
		now.SetUID(was.GetUID())
	}
	if was.GetDeletionTimestamp() != nil {
		now.SetDeletionTimestamp(was.GetDeletionTimestamp())
		now.SetDeletionGracePeriodSeconds(was.GetDeletionGracePeriodSeconds())
	}
	rule := c.k.onUpdate
	if c.q.Subresource == "status" {
		rule = c.k.onStatus
	}
	if err := c.prepared(now, was, nil, rule); err != nil {
		return nil, err
	}
	seconds := was.GetDeletionGracePeriodSeconds()
	if was.GetDeletionTimestamp() != nil && len(now.GetFinalizers()) == 0 && (seconds == nil || *seconds == 0) && c.k.resource != "namespaces" {
		return c.remove(key, now, dry)
	}
	return c.commit(key, now, dry)
}

// remove deletes an object, and returns it as it was last. c.s.mu is held.
func (c *call) remove(key string, last object, dry bool) (*entry, error) {
	if !dry {
		if err := c.s.put(c.k.table, key, nil, last, c.k.encode); err != nil {
			return nil, err
		}
		if c.k.group == definitionGroup {
			c.s.undefine(last)
		}
	}
	raw, err := c.k.encode(last)
	return &entry{key, raw}, err
}

// patchTypes are the media types of the patches of a kind.
func patchTypes(k *kind) []string {
	supported := []string{string(types.JSONPatchType), string(types.MergePatchType)}
	if k.sample != nil {
		supported = append(supported, string(types.StrategicMergePatchType))
	}
	return supported
}

func (c *call) patch(w http.ResponseWriter) error {
	var o metav1.PatchOptions
	if err := c.parameters(&o); err != nil {
		return err
	}
	kind, err := c.input(patchTypes(c.k))
	if err != nil {
		return err
	}
	patch, err := c.body()
	if err != nil {
		return err
	}
	e, err := c.change(len(o.DryRun) > 0, func(was object) (object, error) {
		before, err := runtime.Encode(c.k.codec(runtime.ContentTypeJSON, c.q.Version), was)
		if err != nil {
			return nil, err
		}
		after, err := c.patched(types.PatchType(kind), before, patch)
		if err != nil {
			return nil, err
		}
		now, err := c.decode(after, runtime.ContentTypeJSON)
		if err != nil {
			return nil, apierrors.NewInvalid(schema.GroupKind{}, "", field.ErrorList{field.Invalid(field.NewPath("patch"), string(after), err.Error())})
		}
		return now, nil
	})
	if err != nil {
		return err
	}
	return c.entry(w, http.StatusOK, e)
}

func (c *call) patched(kind types.PatchType, before, patch []byte) (after []byte, err error) {
	switch kind {
	case types.JSONPatchType:
		steps, err := jsonpatch.DecodePatch(patch)
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		if after, err = steps.Apply(before); err != nil {
			return nil, apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", err.Error(), 0, false)
		}
		return after, nil
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

func (c *call) delete(w http.ResponseWriter) error {
	o, err := c.deleteOptions()
	if err != nil {
		return err
	}
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	key := c.key(c.q.Name)
	e, ok := c.k.table.items.Get(&entry{key: key})
	if !ok {
		return apierrors.NewNotFound(c.k.gr(), c.q.Name)
	}
	was, err := c.k.decode(e, c.q.Version)
	if err != nil {
		return err
	}
	if p := o.Preconditions; p != nil {
		conflict := func(what, want, is string) error {
			text := "the %s in the precondition (%s) does not match the %s in record (%s). The object might have been modified"
			if what == "UID" {
				text = "the %s in the precondition (%s) does not match the %s in record (%s). The object might have been deleted and then recreated"
			}
			return apierrors.NewConflict(schema.GroupResource{Group: c.k.group, Resource: c.k.kind}, c.q.Name, fmt.Errorf(text, what, want, what, is))
		}
		if p.UID != nil && *p.UID != was.GetUID() {
			return conflict("UID", string(*p.UID), string(was.GetUID()))
		}
		if p.ResourceVersion != nil && *p.ResourceVersion != was.GetResourceVersion() {
			return conflict("ResourceVersion", *p.ResourceVersion, was.GetResourceVersion())
		}
	}
	dry := len(o.DryRun) > 0
	if c.marked(was, o.GracePeriodSeconds) {
		if e, err = c.commit(key, was, dry); err == nil {
			err = c.entry(w, http.StatusOK, e)
		}
		return err
	}
	if e, err = c.remove(key, was, dry); err != nil {
		return err
	}
	if c.k.returnsDeleted {
		return c.entry(w, http.StatusOK, e)
	}
	c.out.object(w, http.StatusOK, &metav1.Status{Status: metav1.StatusSuccess, Details: &metav1.StatusDetails{Name: c.q.Name, Group: c.k.group, Kind: c.k.resource, UID: was.GetUID()}})
	return nil
}

func (c *call) deleteOptions() (*metav1.DeleteOptions, error) {
	o := &metav1.DeleteOptions{}
	body, err := c.body()
	switch {
	case err != nil:
		return nil, err
	case len(body) == 0:
		err = c.parameters(o)
	default:
		var mediaType string
		if mediaType, err = c.input(mediaTypes(nil)); err != nil {
			return nil, err
		}
		want := metav1.SchemeGroupVersion.WithKind("DeleteOptions")
		if _, _, err = outputIn(mediaType).info.Serializer.Decode(body, &want, o); err != nil {
			err = apierrors.NewBadRequest(err.Error())
		}
	}
	if errs := metavalidation.ValidateDeleteOptions(o); err == nil && len(errs) > 0 {
		err = apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "DeleteOptions"}, "", errs)
	}
	return o, err
}

// marked marks an object as being deleted, and reports whether it stays until its finalizers are gone, or the kubelet has stopped the pod.
func (c *call) marked(o object, asked *int64) bool {
	seconds := int64(0)
	if c.k.grace != nil {
		seconds = max(0, c.k.grace(o, asked))
		if before := o.GetDeletionGracePeriodSeconds(); before != nil {
			seconds = min(seconds, *before) // it can only be shortened
		}
	}
	if n, ok := o.(*corev1.Namespace); ok {
		n.Status.Phase = corev1.NamespaceTerminating
	} else if seconds == 0 && len(o.GetFinalizers()) == 0 {
		return false
	}
	if o.GetDeletionTimestamp() == nil && o.GetGeneration() > 0 {
		o.SetGeneration(o.GetGeneration() + 1)
	}
	now := c.s.opts.Clock()
	if at := o.GetDeletionTimestamp(); at != nil && o.GetDeletionGracePeriodSeconds() != nil {
		now = at.Add(-secondsOf(*o.GetDeletionGracePeriodSeconds()))
	}
	end := metav1.NewTime(now.Add(secondsOf(seconds))).Rfc3339Copy()
	o.SetDeletionTimestamp(&end)
	if _, namespace := o.(*corev1.Namespace); !namespace {
		o.SetDeletionGracePeriodSeconds(&seconds)
	}
	return true
}

func secondsOf(n int64) time.Duration { return time.Duration(n) * time.Second }
