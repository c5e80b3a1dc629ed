package k8swatch

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/fenced/fenced/internal/k8swatch/client"
	"github.com/fenced/fenced/internal/manifest"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/request"
)

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
	case q.Kind == metal3Requests.Kind:
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
	shape := conditionPaths{standard: {"conditions"}}
	old := shape.read(u, standard)
	list := old
	for _, k := range s.Conditions {
		list = list.with(standard, condition{kind: k.Type, status: k.Status, reason: k.Reason, message: limitMessage(k.Message)}, now)
	}
	if !reflect.DeepEqual([]any(list), []any(old)) {
		shape.write(status, standard, list)
	}
	return status
}
