package k8swatch

import (
	"context"
	"errors"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// writeTimeout is for one write of a run. An API server ends a write after 34 s.
// Up to 30 s of these it may wait for a webhook with failurePolicy Ignore, whose
// backend may have run on the very Node that is written.
const writeTimeout = 35 * time.Second

// withReadTimeout is for one read of a run's action, withWriteTimeout for one
// write.
func withReadTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, requestTimeout)
}

func withWriteTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, writeTimeout)
}

type withoutRetryKey struct{}

// withoutRetry marks requests that are sent only once. client-go repeats a
// request after the wait that a busy API server's answer names; by then the
// decision for the write is too old and must be made again. // I1, I4
func withoutRetry(ctx context.Context) context.Context {
	return context.WithValue(ctx, withoutRetryKey{}, true)
}

// preventRetry removes the wait from such an answer; without it client-go does
// not repeat.
func preventRetry(r *http.Request, resp *http.Response) {
	if r.Context().Value(withoutRetryKey{}) != nil {
		resp.Header.Del("Retry-After")
	}
}

// mayWriteParts reports whether to try the parts of a write after the whole
// failed: the API server or a webhook refused it, or did not finish in time. ctx
// is that of all parts.
func mayWriteParts(ctx context.Context, err error) bool {
	return isRefused(err) || apierrors.IsInternalError(err) || apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) ||
		errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil
}
