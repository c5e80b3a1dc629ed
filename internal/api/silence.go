package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// An order may take minutes. So a request waits for silenceTime before the client asks whether
// fenced answers anything at all, and that question waits for replyTime: a fenced that is stopped
// or hangs answers neither.
const (
	silenceTime = 5 * time.Second
	replyTime   = 5 * time.Second
)

// ErrSilent is in the chain of an error that means: fenced accepts connections and answers
// nothing. It is beside ErrUnreachable.
var ErrSilent = errors.New("it accepts connections and answers nothing")

// watchSilence cancels a request with ErrSilent when fenced answers nothing any more. The caller
// calls stop when the answer begins.
func (c *Client) watchSilence(ctx context.Context, cancel context.CancelCauseFunc) (stop func()) {
	done := make(chan struct{})
	go func() {
		for {
			select {
			case <-done:
				return
			case <-ctx.Done():
				return
			case <-time.After(c.silence):
			}
			if !c.answers(ctx) {
				cancel(fmt.Errorf("%w: %w since %s", ErrUnreachable, ErrSilent, c.silence+c.reply))
				return
			}
		}
	}()
	return func() { close(done) }
}

// answers asks fenced for a route that does not exist: any answer shows that it is alive, and so
// does a connection that it closes.
func (c *Client) answers(ctx context.Context) bool {
	asked, cancel := context.WithTimeout(ctx, c.reply)
	defer cancel()
	req, err := http.NewRequestWithContext(asked, http.MethodGet, "http://fenced/", http.NoBody)
	if err != nil {
		return true // the request is at fault, not fenced
	}
	resp, err := c.http.Do(req)
	if err == nil {
		_ = resp.Body.Close()
	}
	return asked.Err() == nil || ctx.Err() != nil
}

// body is an answer that ends its request when it is closed.
type body struct {
	io.ReadCloser
	cancel context.CancelCauseFunc
}

// Close ends the request.
func (b body) Close() error {
	err := b.ReadCloser.Close()
	b.cancel(nil)
	return err
}
