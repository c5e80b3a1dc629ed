package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fenced/fenced/internal/api"
)

const (
	// followInterval is how often a run is read when no event says to.
	followInterval = time.Second
	// restlessInterval spaces reads in a storm of events.
	restlessInterval = 100 * time.Millisecond
	// restartTime is how long a run is waited for while nobody answers: the
	// daemon may be restarting, and goes on where it was.
	restartTime = 30 * time.Second
)

// changes gives a wake-up whenever an event that matters arrives. It is only a
// hint: when the stream breaks, the callers' own interval remains.
func changes(ctx context.Context, client *api.Client, matters func(api.Event) bool) <-chan struct{} {
	wake := make(chan struct{}, 1)
	go func() {
		for e, err := range client.Events(ctx, 0) {
			if err != nil {
				return
			}
			if !matters(e) {
				continue
			}
			select {
			case wake <- struct{}{}:
			default: // one is pending
			}
		}
	}()
	return wake
}

// await waits for a wake-up, at most d; false means that ctx is done.
func await(ctx context.Context, wake <-chan struct{}, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(restlessInterval):
	}
	select {
	case <-ctx.Done():
		return false
	case <-wake:
	case <-time.After(d):
	}
	return true
}

// follow reads a run until over says that it has come to its end.
func (c *cli) follow(ctx context.Context, id string, over func(api.RunRecord) bool) (api.Reply[api.Timeline], error) {
	client := c.client()
	wake := changes(ctx, client, func(e api.Event) bool { return e.Run == id })
	lastAnswer := time.Now()
	for {
		rep, err := client.Run(ctx, id)
		switch {
		case ctx.Err() != nil: // below
		case errors.Is(err, api.ErrUnreachable) && time.Since(lastAnswer) < restartTime:
		case err != nil:
			return rep, requestError("follow run "+id, err)
		default:
			lastAnswer = time.Now()
			if over(rep.Value.Runs[0]) {
				return rep, nil
			}
		}
		if !await(ctx, wake, followInterval) {
			return rep, stoppedWaiting(ctx, id)
		}
	}
}

// stoppedWaiting says why the wait is over although the run is not.
func stoppedWaiting(ctx context.Context, id string) error {
	why := "interrupted"
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		why = "timed out"
	}
	return &exitError{code: exitTimeout, err: fmt.Errorf("%s waiting for run %s, which goes on", why, id),
		hint: []string{"fencectl timeline " + id}}
}
