package api

import (
	"context"
	"net/http"
	"time"

	"github.com/fenced/fenced/internal/wire"
)

// periodReport reads the audit log, so it takes a place of those for whom that is read, and none of those that look.
func (s *Server) periodReport() http.Handler {
	return s.reply(func(ctx context.Context, r *http.Request) (any, error) {
		q := r.URL.Query()
		since, err := timeIn(q, "since")
		if err != nil {
			return nil, err
		}
		until, err := timeIn(q, "until")
		if err != nil {
			return nil, err
		}
		if now := time.Now().UTC(); until.IsZero() || until.After(now) { // nothing covers a time to come
			until = now
		}
		if since.IsZero() || !since.Before(until) {
			return nil, BadRequest("a report is about a time from since to a later until", "fencectl report --since 14d")
		}
		done, err := s.auditReads.begin(s.roles.Of(peerFrom(r.Context())))
		if err != nil {
			return nil, err
		}
		defer done()
		return s.daemon.Report(ctx, q.Get("cluster"), since, until)
	})
}

// Report asks what happened, and what would have, from since to now. An empty cluster means all.
func (c *Client) Report(ctx context.Context, cluster string, since time.Time) (Reply[wire.PeriodReport], error) {
	q := inCluster(cluster)
	q.Set("since", since.UTC().Format(time.RFC3339))
	return ask[wire.PeriodReport](ctx, c, http.MethodGet, "/v1/report", q, nil)
}
