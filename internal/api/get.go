package api

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

func (s *Server) status(ctx context.Context, _ *http.Request) (Status, error) {
	st, err := s.daemon.Status(ctx)
	st.Clusters, st.Runs, st.Blocked = orEmpty(st.Clusters), orEmpty(st.Runs), orEmpty(st.Blocked)
	for i := range st.Clusters {
		c := &st.Clusters[i]
		c.Checks, c.Deviating = orEmpty(c.Checks), orEmpty(c.Deviating)
	}
	return st, err
}

func (s *Server) explain(ctx context.Context, r *http.Request) (Explanation, error) {
	e, err := s.daemon.Explain(ctx, r.URL.Query().Get("cluster"), cmp.Or(machineInPath(r), r.PathValue("node")))
	e.Gates = orEmpty(e.Gates)
	return e, err
}

func (s *Server) nodeTimeline(ctx context.Context, r *http.Request) (Timeline, error) {
	return s.timeline(ctx, RunFilter{Cluster: r.URL.Query().Get("cluster"), Node: r.PathValue("node")})
}

func (s *Server) runs(ctx context.Context, r *http.Request) (Timeline, error) {
	f := RunFilter{Cluster: r.URL.Query().Get("cluster")}
	if text := r.URL.Query().Get("since"); text != "" {
		at, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return Timeline{}, BadRequest(fmt.Sprintf("since=%q is not a time", text), "write it like 2026-01-01T00:00:00Z")
		}
		f.Since = at
	}
	return s.timeline(ctx, f)
}

func (s *Server) run(ctx context.Context, r *http.Request) (Timeline, error) {
	id := r.PathValue("id")
	t, err := s.timeline(ctx, RunFilter{ID: id})
	if err == nil && len(t.Runs) == 0 {
		err = NotFound(CodeNoSuchRun, fmt.Sprintf("no run %q", id), "fencectl history lists the runs")
	}
	return t, err
}

func (s *Server) timeline(ctx context.Context, f RunFilter) (Timeline, error) {
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
	ctl := http.NewResponseController(w)
	w.Header().Set("Content-Type", "application/x-ndjson")
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	// The stream may be silent for days. A caller that does not read what is
	// written is disconnected.
	if ctl.Flush() != nil || ctl.SetWriteDeadline(time.Time{}) != nil {
		return
	}
	for e, err := range s.daemon.Events(r.Context(), after) {
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
