package rig

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// busyTime is how long an API server may be too busy to answer. One that takes longer hangs.
const busyTime = 5 * time.Minute

// WhileBusy repeats a request while the API server is too busy for it. The request must be
// idempotent: the server may have carried out a request that timed out.
func WhileBusy(ctx context.Context, request func() error) error {
	ctx, cancel := context.WithTimeout(ctx, busyTime)
	defer cancel()
	for {
		err := request()
		if !busy(err) || !sleep(ctx, time.Second) {
			return err
		}
	}
}

func busy(err error) bool {
	return apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || apierrors.IsTooManyRequests(err) ||
		apierrors.IsServiceUnavailable(err) || apierrors.IsInternalError(err)
}

// createWhileBusy creates an object. If the object exists when the request is repeated, a request that
// timed out has created it, and createWhileBusy reads it with get.
func createWhileBusy[T any](ctx context.Context, create, get func() (T, error)) (obj T, err error) {
	repeated := false
	err = WhileBusy(ctx, func() error {
		obj, err = create()
		if repeated && apierrors.IsAlreadyExists(err) {
			obj, err = get()
		}
		repeated = true
		return err
	})
	return obj, err
}
