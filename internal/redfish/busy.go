package redfish

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"
)

const (
	firstPause    = 250 * time.Millisecond
	maxPause      = 2 * time.Second
	maxRetryAfter = 5 * time.Second
)

// usedError is the error of a request on a connection that was used before: it may
// have ended meanwhile, or have held the rest of an earlier answer.
type usedError struct{ err error }

func (e *usedError) Error() string { return e.err.Error() }
func (e *usedError) Unwrap() error { return e.err }

// onceOrFresh sends req. If that fails on a connection that was used before, it sends
// a read or a delete once more, on a new one. What a lost action did is for the next
// reading to tell, and a lost login may have opened a session.
func (t *transport) onceOrFresh(req *http.Request) (*http.Response, error) {
	resp, err := t.once(req)
	if _, used := errors.AsType[*usedError](err); !used || req.Method == http.MethodPost || req.Context().Err() != nil {
		return resp, err
	}
	t.base.CloseIdleConnections()
	return t.once(req)
}

// retryWhileBusy repeats req while the BMC reports that it is busy and ctx lasts,
// and returns the last answer unchanged. Repeating is harmless: req is a read, a
// delete, or an absolute action. // I3
// A login is not repeated, because Basic authentication may replace it.
func (t *transport) retryWhileBusy(req *http.Request) (*http.Response, error) {
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		resp, err := t.onceOrFresh(req)
		if err != nil || !isBusy(resp) {
			return resp, err
		}
		if resp.StatusCode == http.StatusServiceUnavailable {
			t.restart() // a BMC that is starting answers like this
		}
		if isLogin(req) {
			return resp, nil
		}
		if !wait(req.Context(), retryAfter(resp.Header.Get("Retry-After"), pause, time.Now())) {
			return resp, nil
		}
		if req.GetBody != nil {
			if req.Body, err = req.GetBody(); err != nil {
				return nil, err
			}
		}
	}
}

func isBusy(resp *http.Response) bool {
	return resp.StatusCode == http.StatusServiceUnavailable || resp.StatusCode == http.StatusTooManyRequests
}

// retryAfter returns how long to wait: the value of the header, in seconds or as
// a date, at most maxRetryAfter; without a header pause, with jitter.
func retryAfter(header string, pause time.Duration, now time.Time) time.Duration {
	asked := time.Duration(-1)
	if n, err := strconv.ParseUint(header, 10, 16); err == nil {
		asked = time.Duration(n) * time.Second
	} else if at, err := http.ParseTime(header); err == nil {
		asked = at.Sub(now)
	}
	if asked <= 0 {
		return pause + time.Duration((rand.Float64()-0.5)*0.4*float64(pause))
	}
	return min(asked, maxRetryAfter)
}

// wait sleeps for d. It returns false at once if ctx would end before.
func wait(ctx context.Context, d time.Duration) bool {
	if end, ok := ctx.Deadline(); ok && time.Until(end) <= d {
		return false
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
