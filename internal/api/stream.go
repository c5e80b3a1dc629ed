package api

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
)

// maxEventBytes bounds one line of the event stream.
const maxEventBytes = 1 << 20

// Events follows the daemon's events after the given sequence number until ctx
// is done or the stream breaks; a break is yielded as the last error.
func (c *Client) Events(ctx context.Context, after uint64) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		q := url.Values{"after": {strconv.FormatUint(after, 10)}}
		resp, err := c.open(ctx, http.MethodGet, "/v1/events", q, nil)
		if err != nil {
			yield(Event{}, err)
			return
		}
		if resp.StatusCode != http.StatusOK {
			body, err := readAnswer(resp)
			if err == nil {
				err = decodeError(resp.StatusCode, body)
			}
			yield(Event{}, err)
			return
		}
		defer resp.Body.Close()
		lines := bufio.NewScanner(resp.Body)
		lines.Buffer(nil, maxEventBytes)
		for lines.Scan() {
			var e Event
			if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
				yield(Event{}, fmt.Errorf("read an event: %w", err))
				return
			}
			if !yield(e, nil) {
				return
			}
		}
		if ctx.Err() == nil {
			yield(Event{}, fmt.Errorf("%w: the event stream ended: %w", ErrUnreachable, cmp.Or(lines.Err(), io.EOF)))
		}
	}
}
