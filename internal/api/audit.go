package api

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"time"

	"github.com/fenced/fenced/internal/audit"
	"github.com/fenced/fenced/internal/wire"
)

// Bounds on reading the audit log for a caller. A log of a year may have gigabytes, and who reads it takes time of a processor.
const (
	maxAuditReads = 2 // at the same time, and as many again for operators and admins
	auditTime     = 10 * time.Minute
	maxAuditLine  = 512 << 10 // bytes; a line of the log has at most 256 KiB
)

// CodeTooManyReads answers a caller who wants the audit log read while as many others do as fenced reads it for.
const CodeTooManyReads = "TooManyReads"

// auditReads are the places of those for whom the audit log is read, and how long it is read for one.
type auditReads struct {
	viewers, others chan struct{}
	most            time.Duration
}

// begin takes a place, until done is called. Operators and admins do not wait for viewers.
func (a auditReads) begin(role wire.Role) (done func(), err error) {
	places := a.others
	if role <= wire.Viewer {
		places = a.viewers
	}
	select {
	case places <- struct{}{}:
		return func() { <-places }, nil
	default:
		return nil, &Error{Status: http.StatusServiceUnavailable, Code: CodeTooManyReads,
			Message: fmt.Sprintf("%d others have fenced read the audit log now", maxAuditReads), Hint: "try again in a moment"}
	}
}

// auditQuery is what the address of a request selects.
func auditQuery(q url.Values) (out audit.Query, err error) {
	if out.Since, err = timeIn(q, "since"); err != nil {
		return out, err
	}
	if out.Until, err = timeIn(q, "until"); err != nil {
		return out, err
	}
	out.Cluster, out.Node, out.Run = q.Get("cluster"), q.Get("node"), q.Get("run")
	return out, nil
}

// timeIn reads a time of an address; the zero time if it is not there.
func timeIn(q url.Values, key string) (time.Time, error) {
	text := q.Get(key)
	if text == "" {
		return time.Time{}, nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return at, BadRequest(fmt.Sprintf("%s=%q is not a time", key, text), "write it like 2026-01-01T00:00:00Z")
	}
	return at, nil
}

// audit streams entries of the audit log, one JSON object a line. The last line is the end.
func (s *Server) audit(w http.ResponseWriter, r *http.Request) {
	q, err := auditQuery(r.URL.Query())
	if err != nil {
		writeError(w, errorOf(err))
		return
	}
	done, err := s.auditReads.begin(s.roles.Of(peerFrom(r.Context())))
	if err != nil {
		writeError(w, errorOf(err))
		return
	}
	defer done()
	ctx, cancel := context.WithTimeout(r.Context(), s.auditReads.most)
	defer cancel()
	w.Header().Set("Content-Type", "application/x-ndjson")
	ctl := http.NewResponseController(w)
	if ctl.Flush() != nil { // the first entry may be far away
		return
	}
	out := bufio.NewWriterSize(&deadlineWriter{w: w, ctl: ctl}, 64<<10)
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	var end wire.AuditEnd
	err = s.daemon.Audit(ctx, q,
		func(e audit.Entry) error { end.Entries++; return enc.Encode(wire.AuditLine{Entry: &e}) },
		func(b audit.Break) error { end.Breaks++; return enc.Encode(wire.AuditLine{Break: &b}) })
	switch {
	case r.Context().Err() != nil: // the caller has gone, or the daemon stops
		return
	case ctx.Err() != nil:
		end.Cut = fmt.Sprintf("reading it took longer than %s: ask for a shorter time", s.auditReads.most)
	case err != nil:
		end.Cut = err.Error()
	}
	if enc.Encode(wire.AuditLine{End: &end}) == nil {
		_ = out.Flush() // what fails is a caller that has gone away
	}
}

// ErrCutAudit is in the chain of the error of an answer about the audit log that is not whole.
var ErrCutAudit = errors.New("the answer about the audit log is not whole")

// Audit reads the entries of the daemon's audit log that q selects, and its breaks, oldest first. The error comes last. It is
// ErrCutAudit if there may be more entries.
func (c *Client) Audit(ctx context.Context, q audit.Query) iter.Seq2[wire.AuditLine, error] {
	return func(yield func(wire.AuditLine, error) bool) {
		resp, err := c.openStream(ctx, "/v1/audit", auditValues(q))
		if err != nil {
			yield(wire.AuditLine{}, err)
			return
		}
		defer resp.Body.Close()
		if err := readAudit(resp.Body, func(l wire.AuditLine) bool { return yield(l, nil) }); err != nil {
			if ctx.Err() != nil {
				err = ctx.Err()
			}
			yield(wire.AuditLine{}, fmt.Errorf("read the audit log from fenced: %w", err))
		}
	}
}

// readAudit calls f with each entry and each break, until f returns false.
func readAudit(body io.Reader, f func(wire.AuditLine) bool) error {
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, maxAuditLine)
	for lines.Scan() {
		var l wire.AuditLine
		switch err := json.Unmarshal(lines.Bytes(), &l); {
		case err != nil:
			return err
		case l.End != nil:
			lines.Scan() // the end of the answer, too: only then the connection, which may be a login, serves the next request
			if l.End.Cut != "" {
				return fmt.Errorf("%w: %s", ErrCutAudit, l.End.Cut)
			}
			return nil
		case !f(l):
			return nil
		}
	}
	if lines.Err() != nil {
		return fmt.Errorf("%w: %w", ErrCutAudit, lines.Err())
	}
	return ErrCutAudit
}

func auditValues(q audit.Query) url.Values {
	v := inCluster(q.Cluster)
	for key, at := range map[string]time.Time{"since": q.Since, "until": q.Until} {
		if !at.IsZero() {
			v.Set(key, at.UTC().Format(time.RFC3339Nano))
		}
	}
	for key, text := range map[string]string{"node": q.Node, "run": q.Run} {
		if text != "" {
			v.Set(key, text)
		}
	}
	return v
}

// periodReport reads the audit log, so it takes a place of those for whom that is read, and none of those that look.
func (s *Server) periodReport() http.Handler {
	return s.reply(func(ctx context.Context, r *http.Request) (any, error) {
		q, err := auditQuery(r.URL.Query())
		if err != nil {
			return nil, err
		}
		if now := time.Now().UTC(); q.Until.IsZero() || q.Until.After(now) { // nothing covers a time to come
			q.Until = now
		}
		if q.Since.IsZero() || !q.Since.Before(q.Until) {
			return nil, BadRequest("a report is about a time from since to a later until", "fencectl report --since 14d")
		}
		done, err := s.auditReads.begin(s.roles.Of(peerFrom(r.Context())))
		if err != nil {
			return nil, err
		}
		defer done()
		return s.daemon.Report(ctx, q.Cluster, q.Since, q.Until)
	})
}

// Report asks what happened, and what would have, from since to now. An empty cluster means all.
func (c *Client) Report(ctx context.Context, cluster string, since time.Time) (Reply[wire.PeriodReport], error) {
	return ask[wire.PeriodReport](ctx, c, http.MethodGet, "/v1/report", inCluster(cluster, "since", since.UTC().Format(time.RFC3339)), nil)
}
