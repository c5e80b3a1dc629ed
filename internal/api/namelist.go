package api

import (
	"context"
	"net/http"
)

// MaxNames bounds each list of a Names.
const MaxNames = 500

// Names is what can be named on a command line, for the completion of a shell. Each list is
// sorted and holds at most MaxNames names.
type Names struct {
	Clusters []string `json:"clusters"`
	Nodes    []string `json:"nodes"`
	Machines []string `json:"machines"` // namespace/name
	Checks   []string `json:"checks"`   // namespace/name, or name
	Runs     []string `json:"runs"`     // newest first
	OpenRuns []string `json:"openRuns"`
}

func (s *Server) names(ctx context.Context, r *http.Request) (Names, error) {
	n, err := s.daemon.Names(ctx, r.URL.Query().Get("cluster"), r.URL.Query().Get("prefix"))
	for _, list := range []*[]string{&n.Clusters, &n.Nodes, &n.Machines, &n.Checks, &n.Runs, &n.OpenRuns} {
		*list = orEmpty(*list)
	}
	return n, err
}

// Names asks for the names that begin with a prefix. An empty cluster means all.
func (c *Client) Names(ctx context.Context, cluster, prefix string) (Reply[Names], error) {
	q := inCluster(cluster)
	q.Set("prefix", prefix)
	return ask[Names](ctx, c, http.MethodGet, "/v1/names", q, nil)
}
