package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

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
	resp, err := c.open(ctx, http.MethodGet, "/v1/export", nil, nil)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		body, err := readAnswer(resp)
		if err != nil {
			return fmt.Errorf("read the answer of fenced at %s: %w", c.socket, err)
		}
		return decodeError(resp.StatusCode, body)
	}
	defer resp.Body.Close()
	end := &lastLine{}
	if _, err := io.Copy(io.MultiWriter(w, end), resp.Body); err != nil {
		return fmt.Errorf("read the export of fenced at %s: %w", c.socket, err)
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
