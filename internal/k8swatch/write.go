package k8swatch

import (
	"context"
	"errors"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// writeTimeout is one write of a run. An API server ends a write after 34 s. Up to 30 s of
// that may be spent on a webhook with failurePolicy Ignore, whose backend may have died
// with the very Node that is written, until it is passed over.
const writeTimeout = 35 * time.Second

// reading bounds one read of a run's action, writing one write.
func reading(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, requestTimeout)
}

func writing(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, writeTimeout)
}

type onceKey struct{}

// once marks requests that are sent a single time. A client repeats what an API server is
// too busy for after the wait that the answer names, and what the write was decided on
// has grown old by then: whoever decided must be asked again. // I1, I4
func once(ctx context.Context) context.Context { return context.WithValue(ctx, onceKey{}, true) }

// notAgain takes the wait off such an answer; without one, client-go does not repeat.
func notAgain(r *http.Request, resp *http.Response) {
	if r.Context().Value(onceKey{}) != nil {
		resp.Header.Del("Retry-After")
	}
}

// piecemeal says whether the parts of a write may be taken although the whole was not:
// the API server, or who admits writes for it, will not have it as it is, or did not
// come to an end with it in its time. ctx is that of all parts.
func piecemeal(ctx context.Context, err error) bool {
	return refused(err) || apierrors.IsInternalError(err) || apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) ||
		errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil
}
