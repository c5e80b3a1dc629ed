package api

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/fenced/fenced/internal/wire"
)

func (s *Server) status(ctx context.Context, _ *http.Request) (wire.Status, error) {
	st, err := s.daemon.Status(ctx)
	st.Clusters, st.Runs, st.Blocked = orEmpty(st.Clusters), orEmpty(st.Runs), orEmpty(st.Blocked)
	for i := range st.Clusters {
		c := &st.Clusters[i]
		c.Checks, c.Deviating = orEmpty(c.Checks), orEmpty(c.Deviating)
	}
	return st, err
}

func (s *Server) explain(ctx context.Context, r *http.Request) (wire.Explanation, error) {
	n, err := s.resolve(wire.WantHost, nameIn(r))
	if err != nil {
		return wire.Explanation{}, err
	}
	e, err := s.daemon.Explain(ctx, n.Cluster, cmp.Or(n.Machine, n.Node))
	e.Gates = orEmpty(e.Gates)
	return e, err
}

func nameIn(r *http.Request) wire.Named {
	return wire.Named{Cluster: r.URL.Query().Get("cluster"), Node: r.PathValue("node"), Machine: machineInPath(r), Run: r.PathValue("id")}
}

func (s *Server) timelineOf(ctx context.Context, r *http.Request) (wire.Timeline, error) {
	n, err := s.resolve(wire.WantAny, nameIn(r))
	if err != nil {
		return wire.Timeline{}, err
	}
	if n.Run != "" {
		return s.timelineOfRun(ctx, n.Run)
	}
	return s.timeline(ctx, wire.RunFilter{Cluster: n.Cluster, Node: n.Node, Machine: n.Machine})
}

func (s *Server) runs(ctx context.Context, r *http.Request) (wire.Timeline, error) {
	since, err := timeIn(r.URL.Query(), "since")
	if err != nil {
		return wire.Timeline{}, err
	}
	return s.timeline(ctx, wire.RunFilter{Cluster: r.URL.Query().Get("cluster"), Since: since})
}

func (s *Server) run(ctx context.Context, r *http.Request) (wire.Timeline, error) {
	return s.timelineOfRun(ctx, r.PathValue("id"))
}

func (s *Server) timelineOfRun(ctx context.Context, id string) (wire.Timeline, error) {
	t, err := s.timeline(ctx, wire.RunFilter{ID: id})
	if err == nil && len(t.Runs) == 0 {
		err = NotFound(CodeNoSuchRun, fmt.Sprintf("no run %q", id), "fencectl history lists the runs")
	}
	return t, err
}

func (s *Server) timeline(ctx context.Context, f wire.RunFilter) (wire.Timeline, error) {
	t, err := s.daemon.Runs(ctx, f)
	t.Runs = orEmpty(t.Runs)
	for i := range t.Runs {
		t.Runs[i].Steps = orEmpty(t.Runs[i].Steps)
	}
	return t, err
}

// events streams one JSON object a line, each sent as soon as it happens.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	var after uint64
	if text := r.URL.Query().Get("after"); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			writeError(w, BadRequest(fmt.Sprintf("after=%q is not a sequence number", text), ""))
			return
		}
		after = n
	}
	if stream := r.URL.Query().Get("stream"); stream != "" && stream != s.daemon.Stream() {
		after = 0 // the caller counts in the stream of another start: all of this one is new to it
	}
	ctx := r.Context()
	if r.URL.Query().Get("follow") == "false" { // only those that are kept: nothing new is waited for
		ended, end := context.WithCancel(ctx)
		end()
		ctx = ended
	}
	ctl := http.NewResponseController(w)
	w.Header().Set("Content-Type", "application/x-ndjson")
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	// The stream may be silent for days. A caller that does not read what is
	// written is disconnected.
	if ctl.Flush() != nil || ctl.SetWriteDeadline(time.Time{}) != nil {
		return
	}
	for e, err := range s.daemon.Events(ctx, after) {
		if err != nil {
			s.log.Printf("control socket: end an event stream: %v", err)
			return
		}
		if ctl.SetWriteDeadline(time.Now().Add(bodyTimeout)) != nil ||
			enc.Encode(e) != nil || ctl.Flush() != nil || ctl.SetWriteDeadline(time.Time{}) != nil {
			return
		}
	}
}

// orEmpty makes an absent list an empty one: scripts expect [], not null.
func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// maxEventBytes bounds one line of the event stream.
const maxEventBytes = 1 << 20

// Events follows the daemon's events after the given sequence number until ctx
// is done or the stream breaks; a break is yielded as the last error.
func (c *Client) Events(ctx context.Context, after uint64) iter.Seq2[wire.Event, error] {
	return c.EventsAfter(ctx, "", after, true)
}

// EventsAfter reads the events after one, which its Stream and Seq name: the rest of that stream or, after a restart of the
// daemon, all that it keeps of the new one. Without a stream and with 0 that is all that the daemon keeps. With follow it goes
// on as Events does.
func (c *Client) EventsAfter(ctx context.Context, stream string, after uint64, follow bool) iter.Seq2[wire.Event, error] {
	q := url.Values{"after": {strconv.FormatUint(after, 10)}}
	if stream != "" {
		q.Set("stream", stream)
	}
	if !follow {
		q.Set("follow", "false")
	}
	return func(yield func(wire.Event, error) bool) {
		resp, err := c.openStream(ctx, "/v1/events", q)
		if err != nil {
			yield(wire.Event{}, err)
			return
		}
		defer resp.Body.Close()
		answer := resp.Body.(*body)
		answer.whole() // it may be silent for days
		lines := bufio.NewScanner(answer.ReadCloser)
		lines.Buffer(nil, maxEventBytes)
		for lines.Scan() {
			var e wire.Event
			if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
				yield(wire.Event{}, fmt.Errorf("read an event: %w", err))
				return
			}
			if !yield(e, nil) {
				return
			}
		}
		if ctx.Err() == nil && (lines.Err() != nil || follow) {
			yield(wire.Event{}, fmt.Errorf("%w: the event stream ended: %w", ErrUnreachable, cmp.Or(lines.Err(), io.EOF)))
		}
	}
}

// exportTrailer begins the last line of a complete export. Package state writes that line.
const exportTrailer = `{"records":`

// export streams the whole state. After the first byte an error shows only as the missing
// last line.
func (s *Server) export(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/x-ndjson")
	out := &deadlineWriter{w: w, ctl: http.NewResponseController(w)}
	err := s.daemon.Export(r.Context(), out)
	switch {
	case err == nil:
	case out.started:
		s.log.Printf("control socket: end an export: %v", err)
	default:
		writeError(w, errorOf(err))
	}
}

// deadlineWriter bounds the time of each write, not of all of them: an export may be
// large, but a caller that does not read is disconnected.
type deadlineWriter struct {
	w       io.Writer
	ctl     *http.ResponseController
	started bool
}

func (p *deadlineWriter) Write(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	p.started = true
	if err := p.ctl.SetWriteDeadline(time.Now().Add(bodyTimeout)); err != nil {
		return 0, err
	}
	return p.w.Write(b)
}

// Export writes the daemon's whole state to w. After an error, discard what was written.
func (c *Client) Export(ctx context.Context, w io.Writer) error {
	resp, err := c.openStream(ctx, "/v1/export", nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	end := &lastLine{}
	if _, err := io.Copy(io.MultiWriter(w, end), resp.Body); err != nil {
		return fmt.Errorf("read the export of fenced: %w", err)
	}
	if !bytes.HasPrefix(end.text, []byte(exportTrailer)) {
		return errors.New("the export is not whole: see the journal of fenced")
	}
	return nil
}

// lastLine keeps how the last line that goes through it begins.
type lastLine struct {
	text  []byte
	ended bool
}

func (l *lastLine) Write(b []byte) (int, error) {
	n := len(b)
	for len(b) > 0 {
		if l.ended {
			l.text, l.ended = nil, false
		}
		line, rest, ended := bytes.Cut(b, []byte{'\n'})
		l.text = append(l.text, line[:min(len(line), max(0, len(exportTrailer)-len(l.text)))]...)
		l.ended, b = ended, rest
	}
	return n, nil
}
