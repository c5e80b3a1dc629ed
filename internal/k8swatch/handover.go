package k8swatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/fenced/fenced/internal/manifest"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
)

// Handovers makes the remediation requests of checks in place of their own
// controllers. It changes only objects that carry the mark of this installation.
type Handovers struct{ c *Cluster }

// NewHandovers returns what makes the requests for other remediators in a cluster.
func NewHandovers(c *Cluster) Handovers { return Handovers{c} }

// maxTemplate is how large a template may be, as JSON.
const maxTemplate = 256 << 10

// handoverRights are what fenced needs for the requests of a template.
var handoverRights = []string{"get", "create", "patch", "delete"}

// Missing says why no request can be made from a template of a check: the template or
// a kind does not exist, or fenced has no right to it. "" if one can. An error means
// that this could not be read.
func (h Handovers) Missing(ctx context.Context, check *policy.Check, t policy.Template) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	s, kind := h.sideFor(check, ""), t.Kind+" of "+t.APIVersion
	request, version := requestOf(t)
	if request.Group == "" {
		return "", nil // the check is Invalid for that
	}
	for _, need := range []schema.GroupKind{{Group: request.Group, Kind: t.Kind}, request} {
		_, err := s.find(ctx, &source{kind: need.Kind, group: need.Group, versions: []string{version}, request: true})
		if errors.Is(err, errNotInstalled) {
			return fmt.Sprintf("the kind %s is not installed; install the remediator of the template %s, or change the check", need, t.Name), nil
		}
		if err != nil {
			return "", err
		}
	}
	namespace := templateNamespace(check, t)
	if namespace != "" { // else the Machine decides where it is
		switch _, err := h.template(ctx, s, t, namespace); {
		case apierrors.IsNotFound(err):
			return fmt.Sprintf("there is no %s %s/%s; create it, or change the template of the check", kind, namespace, t.Name), nil
		case apierrors.IsForbidden(err):
			return fmt.Sprintf("fenced may not read %s %s/%s; see configs/kubernetes/templates.yaml", kind, namespace, t.Name), nil
		case err != nil:
			return "", err
		}
	}
	return h.forbidden(ctx, s, request, version, namespace)
}

// forbidden says which right to the requests fenced lacks.
func (h Handovers) forbidden(ctx context.Context, s *side, kind schema.GroupKind, version, namespace string) (string, error) {
	gvr, err := s.find(ctx, &source{kind: kind.Kind, group: kind.Group, versions: []string{version}, request: true})
	if err != nil {
		return "", err
	}
	for _, verb := range handoverRights {
		err := s.api().allows(ctx, authorizationv1.ResourceAttributes{Verb: verb, Group: gvr.Group, Resource: gvr.Resource, Namespace: namespace})
		switch {
		case apierrors.IsForbidden(err):
			return fmt.Sprintf("fenced may not %s %s; grant it, as in configs/kubernetes/templates.yaml", verb, gvr.GroupResource()), nil
		case err != nil:
			return "", err
		}
	}
	return "", nil
}

// sideFor is where the requests of a check are. A FencePolicy makes them where the
// Machine is.
func (h Handovers) sideFor(check *policy.Check, machineAPI string) *side {
	if check.Kind == policy.FencePolicyKind && !check.SelectsNodes {
		if machineAPI == "" {
			return h.c.manage
		}
		return h.c.sideOf(machineAPI)
	}
	return h.c.sideOf(check.APIVersion)
}

// templateNamespace is the namespace of a template; "" if the Machine decides.
func templateNamespace(check *policy.Check, t policy.Template) string {
	if check.SelectsNodes {
		return t.Namespace
	}
	return check.Namespace
}

// template reads a template.
func (h Handovers) template(ctx context.Context, s *side, t policy.Template, namespace string) (*unstructured.Unstructured, error) {
	gv, err := schema.ParseGroupVersion(t.APIVersion)
	if err != nil {
		return nil, err
	}
	gvr, err := s.find(ctx, &source{kind: t.Kind, group: gv.Group, versions: []string{gv.Version}, request: true})
	if err != nil {
		return nil, err
	}
	return readCustom(ctx, s.api().dynamic.Resource(gvr).Namespace(namespace), gv.Group, namespace, t.Name)
}

// Create makes the request for a target from a template, by the rules of the check's
// API family. One that fenced has made already is no error.
func (h Handovers) Create(ctx context.Context, check *policy.Check, t remediate.Target, from policy.Template, order *int, controlPlane bool) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	d := draft{check: check, target: t, from: from, namespace: templateNamespace(check, from)}
	if d.namespace == "" {
		d.namespace = t.Namespace
	}
	var err error
	if d.live, err = h.liveCheck(ctx, check); err != nil {
		return err
	}
	if t.Machine != "" {
		if d.machine, err = h.c.machine(ctx, t); err != nil {
			return fmt.Errorf("read Machine %s: %w", t.MachineKey(), err)
		}
		if string(d.machine.GetUID()) != t.MachineUID {
			return fmt.Errorf("the Machine %s was replaced", t.MachineKey())
		}
	}
	s := h.sideFor(check, t.MachineAPI)
	d.together = s == h.c.sideOf(t.MachineAPI)
	if d.template, err = h.template(ctx, s, from, d.namespace); err != nil {
		return fmt.Errorf("read the template %s %s/%s: %w", from.Kind, d.namespace, from.Name, err)
	}
	obj, err := d.request(controlPlane)
	if err != nil {
		return err
	}
	h.mark(obj, check, order)
	api, err := h.requestsOf(ctx, s, obj.GetAPIVersion(), obj.GetKind(), d.namespace)
	if err != nil {
		return err
	}
	_, err = api.Create(ctx, obj, metav1.CreateOptions{FieldManager: fieldManager})
	if apierrors.IsAlreadyExists(err) {
		return h.existing(ctx, api, obj)
	}
	if err != nil {
		return fmt.Errorf("create %s %s/%s: %w", obj.GetKind(), d.namespace, obj.GetName(), err)
	}
	return nil
}

// fieldManager names fenced as a writer of requests.
const fieldManager = "fenced"

// mark puts the marks of fenced on a request.
func (h Handovers) mark(obj *unstructured.Unstructured, check *policy.Check, order *int) {
	marks := obj.GetAnnotations()
	marks[manifest.RequestCheck], marks[manifest.RequestMadeBy] = check.Mark(), h.c.cfg.StoreID
	if order != nil {
		marks[manifest.RequestOrder] = strconv.Itoa(*order)
	}
	obj.SetAnnotations(marks)
}

// existing accepts an object of the same name only if it is the one that was to be
// made.
func (h Handovers) existing(ctx context.Context, api dynamic.ResourceInterface, want *unstructured.Unstructured) error {
	u, err := readCustom(ctx, api, groupOf(want.GetAPIVersion()), want.GetNamespace(), want.GetName())
	if err != nil {
		return fmt.Errorf("read %s %s/%s, which exists: %w", want.GetKind(), want.GetNamespace(), want.GetName(), err)
	}
	for _, key := range []string{manifest.RequestCheck, manifest.RequestMadeBy, manifest.RequestOrder} {
		if u.GetAnnotations()[key] != want.GetAnnotations()[key] {
			return fmt.Errorf("%s %s/%s exists already, and fenced did not make it from this template; when its remediator is done, delete it", want.GetKind(), want.GetNamespace(), want.GetName())
		}
	}
	return nil
}

// liveCheck reads a check and refuses one that is not fenced's any more. It is nil for
// a check from a file.
func (h Handovers) liveCheck(ctx context.Context, check *policy.Check) (*unstructured.Unstructured, error) {
	if check.UID == "" {
		return nil, nil
	}
	var api dynamic.ResourceInterface
	switch groupOf(check.APIVersion) {
	case medik8sGroup:
		api = h.c.work.api().dynamic.Resource(nodeCheckGVR)
	case clusterGroup:
		api = h.c.clusterResource("machinehealthchecks", check.Namespace)
	default:
		api = h.c.work.api().dynamic.Resource(checkGVR).Namespace(check.Namespace)
	}
	u, err := readCustom(ctx, api, groupOf(check.APIVersion), check.Namespace, check.Name)
	if err != nil {
		return nil, fmt.Errorf("read check %s: %w", check.Key(), err)
	}
	_, paused := u.GetAnnotations()["cluster.x-k8s.io/paused"]
	if string(u.GetUID()) != check.UID || u.GetAnnotations()["fenced.io/evaluator"] != check.Evaluator || paused != check.Paused {
		return nil, fmt.Errorf("check %s is not handed over any more", check.Key())
	}
	return u, nil
}

// requestsOf is where requests of a kind are.
func (h Handovers) requestsOf(ctx context.Context, s *side, apiVersion, kind, namespace string) (dynamic.ResourceInterface, error) {
	_, version, _ := strings.Cut(apiVersion, "/")
	gvr, err := s.find(ctx, &source{kind: kind, group: groupOf(apiVersion), versions: []string{version}, request: true})
	if err != nil {
		return nil, fmt.Errorf("find the kind %s of %s: %w", kind, apiVersion, err)
	}
	return s.api().dynamic.Resource(gvr).Namespace(namespace), nil
}

// TimeOut tells the remediator of a request to stop, as medik8s does.
func (h Handovers) TimeOut(ctx context.Context, q *policy.Request) error {
	return h.annotate(ctx, q, manifest.RequestTimedOut)
}

// Delay notes on a request that its target recovered now, as medik8s does.
func (h Handovers) Delay(ctx context.Context, q *policy.Request) error {
	return h.annotate(ctx, q, manifest.RequestHealthyDelay)
}

// annotate notes the present time on a request, unless a time is there.
func (h Handovers) annotate(ctx context.Context, q *policy.Request, key string) error {
	return h.change(ctx, q, func(ctx context.Context, api dynamic.ResourceInterface, u *unstructured.Unstructured) error {
		if u.GetAnnotations()[key] != "" {
			return nil
		}
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
			"uid": u.GetUID(), "resourceVersion": u.GetResourceVersion(),
			"annotations": map[string]string{key: time.Now().UTC().Format(time.RFC3339)},
		}})
		if err == nil {
			_, err = api.Patch(ctx, q.Name, types.MergePatchType, patch, metav1.PatchOptions{})
		}
		return err
	})
}

// Delete deletes a request. If its conditions have changed since it was seen, it
// deletes nothing: the remediator may have begun. // I2, I22
func (h Handovers) Delete(ctx context.Context, q *policy.Request) error {
	return h.change(ctx, q, func(ctx context.Context, api dynamic.ResourceInterface, u *unstructured.Unstructured) error {
		now, err := manifest.Request(u.Object)
		if err != nil || now.Begun != q.Begun || !reflect.DeepEqual(now.Conditions, q.Conditions) {
			return err
		}
		uid, version := u.GetUID(), u.GetResourceVersion()
		return api.Delete(ctx, q.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version}})
	})
}

// change reads a request and changes it, if it is still the one that fenced made.
func (h Handovers) change(ctx context.Context, q *policy.Request,
	do func(context.Context, dynamic.ResourceInterface, *unstructured.Unstructured) error,
) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	s := h.c.work
	if q.OnManagementAPI {
		s = h.c.manage
	}
	api, err := h.requestsOf(ctx, s, q.APIVersion, q.Kind, q.Namespace)
	if err != nil {
		return err
	}
	u, err := readCustom(ctx, api, groupOf(q.APIVersion), q.Namespace, q.Name)
	switch {
	case isGone(err, q.Name), err == nil && string(u.GetUID()) != q.UID:
		return nil
	case err == nil && (u.GetAnnotations()[manifest.RequestMadeBy] != h.c.cfg.StoreID || u.GetAnnotations()[manifest.RequestCheck] != q.Check):
		return nil // somebody took the mark off: it is not fenced's any more
	case err == nil:
		err = do(ctx, api, u)
	}
	if err != nil && !isGone(err, q.Name) && !apierrors.IsConflict(err) { // after a conflict the watch shows what is new
		return fmt.Errorf("change %s %s/%s: %w", q.Kind, q.Namespace, q.Name, err)
	}
	return nil
}
