package api

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/fenced/fenced/internal/wire"
)

// What names look like. A Node's is a DNS subdomain (RFC 1123), as the API server wants
// it; a cluster's is what fenced.yaml takes; a run's is what the daemon makes.
var (
	nodeName    = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$`)
	clusterName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`)
)

// maxNodeName is the longest name that a Node or a Machine can have, maxNamespace that of
// a namespace.
const (
	maxNodeName  = 253
	maxNamespace = 63
)

// CheckNode refuses, with a *Error, a text that cannot be the name of a Node.
func CheckNode(name string) error {
	if len(name) <= maxNodeName && nodeName.MatchString(name) {
		return nil
	}
	return badName(name, "Node", "a Node's name has lower-case letters, digits, - and ., at most 253; fencectl status -o wide lists the known ones")
}

// CheckMachine refuses, with a *Error, a text that cannot be the "namespace/name" of a
// Machine.
func CheckMachine(machine string) error {
	namespace, name, _ := strings.Cut(machine, "/")
	if len(namespace) <= maxNamespace && !strings.Contains(namespace, ".") && nodeName.MatchString(namespace) &&
		len(name) <= maxNodeName && nodeName.MatchString(name) {
		return nil
	}
	return badName(machine, "Machine", "write NAMESPACE/NAME, as kubectl get machines -A lists them")
}

// CheckGroup refuses, with a *Error, what cannot be the labels of Nodes.
func CheckGroup(g wire.Group) error {
	if _, err := g.Labels("zone", "rack"); err != nil { // the daemon knows the keys; here any will do
		return BadRequest(err.Error(), "name the Nodes by one of selector (KEY=VALUE,...), zone and rack; kubectl get nodes --show-labels lists the labels")
	}
	return nil
}

// machineInPath returns the Machine in the path of a request, or an empty string.
func machineInPath(r *http.Request) string {
	if r.PathValue("machine") == "" {
		return ""
	}
	return r.PathValue("namespace") + "/" + r.PathValue("machine")
}

// CheckCluster refuses, with a *Error, a text that cannot be the name of a cluster.
func CheckCluster(name string) error {
	if clusterName.MatchString(name) {
		return nil
	}
	return badName(name, "cluster", "fencectl status shows the clusters")
}

// CheckTarget refuses, with a *Error, a text that can be neither the name of a Node nor that of a run: a
// run's is a Node's, too.
func CheckTarget(name string) error {
	if CheckNode(name) == nil {
		return nil
	}
	return badName(name, "Node or a run", "fencectl status shows the open runs, and with -o wide the Nodes; fencectl history lists all runs")
}

// maxQuoted bounds how much of a wrong name is quoted, in bytes.
const maxQuoted = 64

func badName(name, of, hint string) error {
	more := ""
	if len(name) > maxQuoted {
		name, more = name[:maxQuoted], "..."
	}
	return BadRequest(fmt.Sprintf("%+q%s is not the name of a %s", name, more, of), hint)
}

// checkNames refuses a request with an impossible name before anything else happens:
// later code stores, logs and shows names.
func checkNames(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, n := range []struct {
			name  string
			check func(string) error
		}{
			{r.PathValue("node"), CheckNode}, {machineInPath(r), CheckMachine}, {r.PathValue("id"), CheckTarget}, {r.URL.Query().Get("cluster"), CheckCluster},
		} {
			if n.name == "" { // the route has no such name, or none was given
				continue
			}
			if err := n.check(n.name); err != nil {
				writeError(w, errorOf(err))
				return
			}
		}
		h.ServeHTTP(w, r)
	})
}

func (s *Server) names(ctx context.Context, r *http.Request) (wire.Names, error) {
	n, err := s.daemon.Names(ctx, r.URL.Query().Get("cluster"), r.URL.Query().Get("prefix"))
	for _, list := range []*[]string{&n.Clusters, &n.Nodes, &n.Machines, &n.Checks, &n.Runs, &n.OpenRuns} {
		*list = orEmpty(*list)
	}
	return n, err
}

// Names asks for the names that begin with a prefix. An empty cluster means all.
func (c *Client) Names(ctx context.Context, cluster, prefix string) (Reply[wire.Names], error) {
	return ask[wire.Names](ctx, c, http.MethodGet, "/v1/names", inCluster(cluster, "prefix", prefix), nil)
}

// maxReason bounds a reason, in bytes: it stays with the run for good.
const maxReason = 1000

// CheckReason refuses, with a *Error, a reason that is empty, too long, or not safe to
// show on a terminal.
func CheckReason(reason string) error {
	switch at := strings.IndexFunc(reason, wire.Unprintable); {
	case reason == "":
		return BadRequest("an order needs a reason", `say why: --reason "disk fails, ticket 4711"`)
	case len(reason) > maxReason:
		return BadRequest(fmt.Sprintf("the reason is longer than %d bytes", maxReason), "name a ticket that says more")
	case at >= 0:
		r, _ := utf8.DecodeRuneInString(reason[at:])
		return BadRequest(fmt.Sprintf("the reason holds control characters, or others that cannot be seen: %U", r), "write it on one line, in plain text")
	case !utf8.ValidString(reason):
		return BadRequest("the reason is not UTF-8", "write it in plain text")
	}
	return nil
}
