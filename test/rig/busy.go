package rig

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// busyTime is how long an API server may be too busy to answer; only one that hangs is so
// for longer.
const busyTime = 5 * time.Minute

// WhileBusy repeats a request for as long as the API server has no time for it. The request
// must be harmless when it is repeated: the server may have carried out one that timed out.
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

// createWhileBusy creates an object. One that is there when the request is repeated was made
// by a request that timed out, and is read by get.
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
