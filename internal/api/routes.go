package api

import (
	"context"
	"net/http"
	"slices"
)

// answer is the work of one route: a value to send as JSON, or an error.
type answer func(ctx context.Context, r *http.Request) (any, error)

// route is one row of the API.
type route struct {
	method  string
	pattern string
	need    Role
	handler func(*Server) http.Handler
}

// reads are the routes that change nothing. Those of orders are the rows of verbs. Each
// takes ?cluster=NAME, where the daemon serves several; a higher role may use it too.
var reads = []route{
	get("/v1/status", (*Server).status),
	get("/v1/nodes/{node}/explain", (*Server).explain),
	get("/v1/machines/{namespace}/{machine}/explain", (*Server).explain),
	get("/v1/nodes/{node}/timeline", (*Server).nodeTimeline),
	get("/v1/names", (*Server).names), // ?prefix=TEXT
	get("/v1/plan", (*Server).plan),
	get("/v1/check-config", (*Server).coverage),
	get("/v1/bmcs", (*Server).bmcs),
	get("/v1/runs", (*Server).runs),                // ?since=RFC3339
	get("/v1/runs/{id}", (*Server).run),            // a timeline of one run
	stream("/v1/events", Viewer, (*Server).events), // ?after=SEQ; NDJSON, never ends
	stream("/v1/export", Admin, (*Server).export),  // NDJSON, the whole state
}

// get is a row that answers viewers with one value; its type is the handler's.
func get[T any](pattern string, read func(*Server, context.Context, *http.Request) (T, error)) route {
	return route{http.MethodGet, pattern, Viewer, func(s *Server) http.Handler {
		return s.reply(func(ctx context.Context, r *http.Request) (any, error) {
			done, err := s.looks.begin(ctx, s.roles.Of(peerFrom(r.Context())))
			if err != nil {
				return nil, err
			}
			defer done()
			return read(s, ctx, r)
		})
	}}
}

// stream is a row that writes its answer itself.
func stream(pattern string, need Role, write func(*Server, http.ResponseWriter, *http.Request)) route {
	return route{http.MethodGet, pattern, need, func(s *Server) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { write(s, w, r) })
	}}
}

// routes are the rows of an order. An order asks for the role itself, and records who
// lacks it.
func (r verb) routes() (list []route) {
	need, handler := Nobody, func(s *Server) http.Handler { return s.reply(s.order(r.name)) }
	if r.answer != nil {
		need, handler = r.need, func(s *Server) http.Handler { return s.reply(r.answer(s, r.name)) }
	}
	for _, pattern := range r.patterns() {
		list = append(list, route{http.MethodPost, pattern, need, handler})
	}
	return list
}

// routes is the whole API.
func routes() []route {
	all := slices.Clone(reads)
	for _, v := range verbs {
		all = append(all, v.routes()...)
	}
	return all
}

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	for _, rt := range routes() {
		mux.Handle(rt.method+" "+rt.pattern, checkNames(s.allow(rt.need, rt.handler(s))))
		mux.HandleFunc(rt.pattern, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Allow", rt.method)
			writeError(w, &Error{Status: http.StatusMethodNotAllowed, Code: CodeMethodNotAllowed,
				Message: "this route takes " + rt.method})
		})
	}
	mux.HandleFunc("/", notFound)
	return guardRequests(mux)
}
