package write

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/k8swatch/client"
	"github.com/fenced/fenced/internal/manifest"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/request"
)

// Requests writes what fenced tells the remediation requests that it carries out.
type Requests struct {
	servers *client.Servers
	// holder begins the annotation of the requests that this installation holds for this cluster.
	holder string
	decode func(u *unstructured.Unstructured, onManagementAPI bool) (*policy.Request, error)
}

// NewRequests returns what writes to the requests of a cluster. decode reads one as the view does.
func NewRequests(servers *client.Servers, holder string, decode func(u *unstructured.Unstructured, onManagementAPI bool) (*policy.Request, error)) Requests {
	return Requests{servers, holder, decode}
}

// at is where a request is.
func (r Requests) at(ctx context.Context, q remediate.Request) (dynamic.ResourceInterface, error) {
	s, gvr := r.servers.Work, client.RequestGVR
	if q.OnManagementAPI {
		s = r.servers.Manage
	}
	if q.Kind == client.Metal3Requests.Kind {
		var err error
		if gvr, err = s.Find(ctx, client.Resource{Kind: client.Metal3Requests.Kind, Group: client.Metal3Requests.Group, AnyVersion: true}); err != nil {
			return nil, err
		}
	}
	return s.API().Dynamic.Resource(gvr).Namespace(q.Namespace), nil
}

func (r Requests) read(ctx context.Context, q remediate.Request) (*unstructured.Unstructured, error) {
	api, err := r.at(ctx, q)
	if err != nil {
		return nil, err
	}
	group := client.OwnRequests.Group
	if q.Kind == client.Metal3Requests.Kind {
		group = client.Metal3Requests.Group
	}
	return client.ReadCustom(ctx, api, group, q.Namespace, q.Name)
}

// Get reads a request; nil if it is gone or was replaced.
func (r Requests) Get(ctx context.Context, q remediate.Request) (*policy.Request, error) {
	u, err := r.read(ctx, q)
	if client.IsGone(err, q.Name) || err == nil && string(u.GetUID()) != q.UID {
		return nil, nil
	}
	var found *policy.Request
	if err == nil {
		found, err = r.decode(u, q.OnManagementAPI)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s %s/%s: %w", q.Kind, q.Namespace, q.Name, err)
	}
	return found, nil
}

// Report writes the status of a request, if it differs.
func (r Requests) Report(ctx context.Context, q remediate.Request, s request.Status) error {
	ctx, cancel := context.WithTimeout(ctx, client.RequestTimeout)
	defer cancel()
	u, err := r.read(ctx, q)
	if client.IsGone(err, q.Name) || err == nil && string(u.GetUID()) != q.UID {
		return nil
	}
	var api dynamic.ResourceInterface
	if err == nil {
		api, err = r.at(ctx, q)
	}
	switch {
	case err != nil:
	case q.Kind == client.Metal3Requests.Kind:
		err = r.reportMetal3(ctx, api, q, u, s)
	default:
		err = writeStatus(ctx, api, u, requestStatus(u, s, time.Now()))
	}
	if err != nil {
		return fmt.Errorf("write the status of %s %s/%s: %w", q.Kind, q.Namespace, q.Name, err)
	}
	return nil
}

// reportMetal3 writes what a Metal3Remediation is told. Its API takes no phase and no field but those of its own
// controller, so fenced's phase goes into an annotation. That is written last, because nothing more is written after
// a final one; but also if the API does not take the status: it keeps a request that is left behind from being carried
// out again. // I4
func (r Requests) reportMetal3(ctx context.Context, api dynamic.ResourceInterface, q remediate.Request, u *unstructured.Unstructured, s request.Status) error {
	err := writeStatus(ctx, api, u, metal3Status(u, s))
	if err != nil && !apierrors.IsInvalid(err) || u.GetAnnotations()[manifest.RequestPhase] == s.Phase {
		return err
	}
	return errors.Join(err, r.patchMetadata(ctx, q, map[string]any{"uid": u.GetUID(), "annotations": map[string]any{manifest.RequestPhase: s.Phase}}))
}

// metal3Status returns what has to be merged into the status of a Metal3Remediation.
func metal3Status(u *unstructured.Unstructured, s request.Status) map[string]any {
	status := map[string]any{}
	texts := map[string]string{"phase": metal3Phase(s)}
	if !s.Started.IsZero() {
		texts["lastRemediated"] = s.Started.UTC().Format(time.RFC3339)
	}
	for field, value := range texts {
		switch old, _, err := unstructured.NestedString(u.Object, "status", field); {
		case err == nil && old == value:
		case value == "":
			status[field] = nil
		default:
			status[field] = value
		}
	}
	switch old, _, err := unstructured.NestedInt64(u.Object, "status", "retryCount"); {
	case err == nil && old == int64(s.Retries):
	case s.Retries == 0: // the API takes no 0
		status["retryCount"] = nil
	default:
		status["retryCount"] = int64(s.Retries)
	}
	return status
}

// metal3Phase is the phase of Metal3's own controller (CAPM3) that says the same as that of fenced. Should somebody
// start that controller, it switches nothing off at once in a phase other than "" and Running.
func metal3Phase(s request.Status) string {
	switch {
	case s.Phase == request.Pending:
		return ""
	case s.Phase == request.Failed:
		return manifest.Metal3Failed
	case s.Phase != request.Succeeded:
		return manifest.Metal3Running
	case s.IsPermanent():
		return manifest.Metal3Deleting
	}
	return manifest.Metal3Waiting
}

// requestStatus returns what has to be merged into the status of a request.
func requestStatus(u *unstructured.Unstructured, s request.Status, now time.Time) map[string]any {
	status := map[string]any{}
	texts := map[string]string{"phase": s.Phase, "run": s.Run, "lastError": limitMessage(s.LastError)}
	if !s.Started.IsZero() {
		texts["lastRemediated"] = s.Started.UTC().Format(time.RFC3339)
	}
	for field, value := range texts {
		if old, _, err := unstructured.NestedString(u.Object, "status", field); err != nil || old != value {
			status[field] = value
		}
	}
	if old, _, err := unstructured.NestedInt64(u.Object, "status", "retryCount"); err != nil || old != int64(s.Retries) {
		status["retryCount"] = int64(s.Retries)
	}
	if old, _, err := unstructured.NestedInt64(u.Object, "status", "observedGeneration"); err != nil || old != s.Generation {
		status["observedGeneration"] = s.Generation
	}
	shape := conditionPaths{standard: {"conditions"}}
	old := shape.read(u, standard)
	list := old
	for _, k := range s.Conditions {
		list = list.with(standard, condition{kind: k.Type, status: k.Status, reason: k.Reason, message: limitMessage(k.Message), generation: s.Generation}, now)
	}
	if !reflect.DeepEqual([]any(list), []any(old)) {
		shape.write(status, standard, list)
	}
	return status
}

// A management API may hold the requests of several clusters, and several installations may
// serve it. So an annotation beside the finalizer says who set it, and only that one removes it.

// Clear removes from a Machine the annotation that requests its remediation.
func (r Requests) Clear(ctx context.Context, t remediate.Target) error {
	return clearRequest(ctx, r.servers.Work.API(), t)
}

// SetFinalizer sets the finalizer on a request, for a run: it must not vanish while its
// host may be off. It fails if the object is gone, was replaced or is being deleted, or if
// somebody else holds it.
func (r Requests) SetFinalizer(ctx context.Context, q remediate.Request, run string) error {
	ctx, cancel := context.WithTimeout(ctx, client.RequestTimeout)
	defer cancel()
	what := fmt.Sprintf("%s %s/%s", q.Kind, q.Namespace, q.Name)
	u, err := r.read(ctx, q)
	switch {
	case err != nil:
		return fmt.Errorf("read %s: %w", what, err)
	case string(u.GetUID()) != q.UID, u.GetDeletionTimestamp() != nil:
		return fmt.Errorf("set the finalizer of %s: it was replaced or deleted", what)
	}
	finalizers := u.GetFinalizers()
	switch by, is := u.GetAnnotations()[manifest.RequestHolder], slices.Contains(finalizers, manifest.RequestFinalizer); {
	case !is:
		finalizers = append(finalizers, manifest.RequestFinalizer)
	case !strings.HasPrefix(by, r.holder):
		return fmt.Errorf("set the finalizer of %s: another installation of fenced holds it (its annotation %s is %q): "+
			"if that one is gone, see that the host is on, then remove the finalizer", what, manifest.RequestHolder, bmc.Printable(by, client.MaxMarkValue))
	}
	return r.patchFinalizers(ctx, q, u, finalizers, r.holder+client.HeldFor+run) // a release that was decided for an earlier run must fail
}

// RemoveFinalizer removes the finalizer that was set as heldBy says; not one that was set anew since. It is
// idempotent.
func (r Requests) RemoveFinalizer(ctx context.Context, q remediate.Request, heldBy string) error {
	ctx, cancel := context.WithTimeout(ctx, client.RequestTimeout)
	defer cancel()
	u, err := r.read(ctx, q)
	switch {
	case client.IsGone(err, q.Name), err == nil && (string(u.GetUID()) != q.UID || u.GetAnnotations()[manifest.RequestHolder] != heldBy):
		return nil
	case err != nil:
		return fmt.Errorf("read %s %s/%s: %w", q.Kind, q.Namespace, q.Name, err)
	case !slices.Contains(u.GetFinalizers(), manifest.RequestFinalizer):
		return nil
	}
	left := slices.DeleteFunc(u.GetFinalizers(), func(f string) bool { return f == manifest.RequestFinalizer })
	if err = r.patchFinalizers(ctx, q, u, left, nil); client.IsGone(err, q.Name) {
		return nil
	}
	return err
}

// patchFinalizers writes the finalizers and the annotation of a request as it was read.
func (r Requests) patchFinalizers(ctx context.Context, q remediate.Request, u *unstructured.Unstructured, finalizers []string, heldBy any) error {
	err := r.patchMetadata(ctx, q, map[string]any{
		"uid": u.GetUID(), "resourceVersion": u.GetResourceVersion(), "finalizers": finalizers,
		"annotations": map[string]any{manifest.RequestHolder: heldBy},
	})
	if err != nil {
		return fmt.Errorf("change the finalizers of %s %s/%s: %w", q.Kind, q.Namespace, q.Name, err)
	}
	return nil
}

// patchMetadata merges into the metadata of a request.
func (r Requests) patchMetadata(ctx context.Context, q remediate.Request, metadata map[string]any) error {
	api, err := r.at(ctx, q)
	if err != nil {
		return err
	}
	return patchMetadata(ctx, api, q.Name, metadata)
}
