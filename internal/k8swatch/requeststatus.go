package k8swatch

import (
	"context"
	"fmt"
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/request"
)

// Report writes the status of a request, if it differs.
func (r Requests) Report(ctx context.Context, q remediate.Request, s request.Status) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	u, err := r.read(ctx, q)
	if isGone(err, q.Name) || err == nil && string(u.GetUID()) != q.UID {
		return nil
	}
	var api dynamic.ResourceInterface
	if err == nil {
		api, err = r.at(ctx, q)
	}
	if err == nil {
		err = writeStatus(ctx, api, u, requestStatus(u, s, time.Now()))
	}
	if err != nil {
		return fmt.Errorf("write the status of %s %s/%s: %w", q.Kind, q.Namespace, q.Name, err)
	}
	return nil
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
