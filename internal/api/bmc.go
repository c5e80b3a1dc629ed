package api

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/fenced/fenced/internal/wire"
)

func (s *Server) bmcs(ctx context.Context, r *http.Request) (wire.BMCs, error) {
	q := r.URL.Query()
	b, err := s.daemon.BMCs(ctx, wire.BMCFilter{Cluster: q.Get("cluster"), Of: q.Get("of"), Undependable: q.Get("undependable") == "true"})
	return tidyBMCs(b), err
}

func (s *Server) nodes(ctx context.Context, r *http.Request) (wire.Nodes, error) {
	q := r.URL.Query()
	f := wire.NodesFilter{Cluster: q.Get("cluster"), Of: q.Get("of")}
	if text := q.Get("most"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return wire.Nodes{}, BadRequest(fmt.Sprintf("most=%q is not a number above 0", text), "")
		}
		f.Most = n
	}
	n, err := s.daemon.Nodes(ctx, f)
	n.Nodes = orEmpty(n.Nodes)
	for i := range n.Nodes {
		n.Nodes[i].Checks, n.Nodes[i].BMCs = orEmpty(n.Nodes[i].Checks), orEmpty(n.Nodes[i].BMCs)
	}
	return n, err
}

// look gives the route of a look that a person orders. It needs no reason: it
// changes nothing. It ends with its caller.
func (s *Server) look(v wire.Verb) answer {
	return func(ctx context.Context, r *http.Request) (any, error) {
		p := peerFrom(r.Context()).named()
		o, unread := readBody(r)
		if unread == nil && o.Reason != "" {
			unread = CheckReason(o.Reason)
		}
		o.Verb, o.Actor = v, p.Actor()
		o.Cluster, o.Node = r.URL.Query().Get("cluster"), r.PathValue("node")
		if err := s.authorise(r, needs(o)); err != nil {
			s.recordRefusal(o, p, err)
			return nil, err
		}
		if unread != nil {
			return nil, unread
		}
		if err := checkBody(o); err != nil {
			return nil, err
		}
		b, err := s.daemon.LookAtBMCs(ctx, o)
		return tidyBMCs(b), err
	}
}

// tidyBMCs makes absent lists empty ones.
func tidyBMCs(b wire.BMCs) wire.BMCs {
	b.BMCs = orEmpty(b.BMCs)
	for i := range b.BMCs {
		b.BMCs[i].Findings = orEmpty(b.BMCs[i].Findings)
	}
	return b
}

// Nodes asks which Nodes could be fenced. An empty cluster means all.
func (c *Client) Nodes(ctx context.Context, cluster string) (Reply[wire.Nodes], error) {
	return ask[wire.Nodes](ctx, c, http.MethodGet, "/v1/nodes", inCluster(cluster), nil)
}

// UrgentNodes asks for so many, the most urgent, and for the count of all by state. A daemon of an earlier version answers with all.
func (c *Client) UrgentNodes(ctx context.Context, cluster string, most int) (wire.Nodes, error) {
	r, err := ask[wire.Nodes](ctx, c, http.MethodGet, "/v1/nodes", inCluster(cluster, "most", strconv.Itoa(most)), nil)
	return r.Value.Cut(wire.NodesFilter{Most: most}), err
}

// NodeOf asks for one Node, or for the Machine "namespace/name". A daemon of an earlier version answers with all.
func (c *Client) NodeOf(ctx context.Context, cluster, of string) (wire.Nodes, error) {
	r, err := ask[wire.Nodes](ctx, c, http.MethodGet, "/v1/nodes", inCluster(cluster, "of", of), nil)
	return r.Value.Cut(wire.NodesFilter{Of: of}), err
}

// BMCs asks what is known about all devices. An empty cluster means all.
func (c *Client) BMCs(ctx context.Context, cluster string) (Reply[wire.BMCs], error) {
	return ask[wire.BMCs](ctx, c, http.MethodGet, "/v1/bmcs", inCluster(cluster), nil)
}

// BMCsOf asks for those of one Node, or of the Machine "namespace/name". A daemon of an earlier version answers with all.
func (c *Client) BMCsOf(ctx context.Context, cluster, of string) (Reply[wire.BMCs], error) {
	return ask[wire.BMCs](ctx, c, http.MethodGet, "/v1/bmcs", inCluster(cluster, "of", of), nil)
}

// UndependableBMCs asks for those that a fence could not rely on. A daemon of an earlier version answers with all.
func (c *Client) UndependableBMCs(ctx context.Context) (Reply[wire.BMCs], error) {
	return ask[wire.BMCs](ctx, c, http.MethodGet, "/v1/bmcs", url.Values{"undependable": {"true"}}, nil)
}

// LookAtBMCs has the devices of one Node's host looked at now: TestBMC or
// AuditBMC.
func (c *Client) LookAtBMCs(ctx context.Context, o wire.Order) (Reply[wire.BMCs], error) {
	return give[wire.BMCs](ctx, c, o)
}
