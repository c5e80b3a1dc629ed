package api

import (
	"context"
	"net/http"

	"github.com/fenced/fenced/internal/wire"
)

func (s *Server) plan(ctx context.Context, r *http.Request) (wire.Plan, error) {
	p, err := s.daemon.Plan(ctx, r.URL.Query().Get("cluster"))
	p.Clusters = orEmpty(p.Clusters)
	for i := range p.Clusters {
		p.Clusters[i].Actions = orEmpty(p.Clusters[i].Actions)
	}
	return p, err
}

func (s *Server) coverage(ctx context.Context, r *http.Request) (wire.Coverage, error) {
	c, err := s.daemon.Coverage(ctx, r.URL.Query().Get("cluster"))
	c.Clusters = orEmpty(c.Clusters)
	for i := range c.Clusters {
		cl := &c.Clusters[i]
		cl.Checks = orEmpty(cl.Checks)
		for j := range cl.Checks {
			k := &cl.Checks[j]
			k.Findings, k.Overlaps = orEmpty(k.Findings), orEmpty(k.Overlaps)
		}
	}
	return c, err
}

// Plan asks what would be done now. An empty cluster means all.
func (c *Client) Plan(ctx context.Context, cluster string) (Reply[wire.Plan], error) {
	return ask[wire.Plan](ctx, c, http.MethodGet, "/v1/plan", inCluster(cluster), nil)
}

// Coverage asks what each check covers. An empty cluster means all.
func (c *Client) Coverage(ctx context.Context, cluster string) (Reply[wire.Coverage], error) {
	return ask[wire.Coverage](ctx, c, http.MethodGet, "/v1/check-config", inCluster(cluster), nil)
}
