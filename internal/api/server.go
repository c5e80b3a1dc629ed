package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log"
	"net"
	"net/http"
	"path"
	"slices"
	"time"

	"github.com/fenced/fenced/internal/audit"
	"github.com/fenced/fenced/internal/login"
	"github.com/fenced/fenced/internal/wire"
)

// Daemon is what the server asks. Errors of type *Error are given to the
// caller as they are; any other is Internal.
type Daemon interface {
	Status(ctx context.Context) (wire.Status, error)
	// Explain explains one Node, or the Machine "namespace/name".
	Explain(ctx context.Context, cluster, of string) (wire.Explanation, error)
	// Plan gives what would be done now; an empty cluster means all.
	Plan(ctx context.Context, cluster string) (wire.Plan, error)
	// Coverage gives what each check covers; an empty cluster means all.
	Coverage(ctx context.Context, cluster string) (wire.Coverage, error)
	// Resolve says what a name means now. A name that it does not know stays as it is; a name that means
	// more than one thing is an error.
	Resolve(want wire.Wanted, n wire.Named) (wire.Named, error)
	// OnlyCluster is the name of the cluster if there is one alone, which nobody has to name.
	OnlyCluster() string
	// Names lists what can be named that begins with prefix; an empty cluster means all.
	Names(ctx context.Context, cluster, prefix string) (wire.Names, error)
	// Runs gives the selected runs, open and ended, oldest first.
	Runs(ctx context.Context, f wire.RunFilter) (wire.Timeline, error)
	// Nodes says of each Node whether it could be fenced; an empty cluster means all.
	Nodes(ctx context.Context, f wire.NodesFilter) (wire.Nodes, error)
	// BMCs gives what is known about the devices that switch power; an empty cluster
	// means all.
	BMCs(ctx context.Context, f wire.BMCFilter) (wire.BMCs, error)
	// LookAtBMCs looks at those of one Node's host now.
	LookAtBMCs(ctx context.Context, o wire.Order) (wire.BMCs, error)
	// Do gives an order. It returns once the order is durable, not once it is
	// carried out.
	Do(ctx context.Context, o wire.Order) (wire.OrderResult, error)
	// Refused records an order that ended in an error, whether the server or the daemon
	// refused it. It must not block.
	Refused(o wire.Order, e *Error)
	// Export writes the whole state, as fenced --import reads it.
	Export(ctx context.Context, w io.Writer) error
	// Events yields the kept events whose Seq is greater than after, then each
	// new one as it happens, until ctx is done.
	Events(ctx context.Context, after uint64) iter.Seq2[wire.Event, error]
	// Stream names what the Seq of Events counts in. It changes with each start of the daemon.
	Stream() string
	// Audit calls entry with each entry of the audit log that q selects, and broken with each break in it, in their order.
	Audit(ctx context.Context, q audit.Query, entry func(audit.Entry) error, broken func(audit.Break) error) error
	// Report says what happened between two times; an empty cluster means all.
	Report(ctx context.Context, cluster string, since, until time.Time) (wire.PeriodReport, error)
}

// Bounds on what a caller can make the server hold, and for how long.
const (
	headerTimeout  = 5 * time.Second
	bodyTimeout    = 10 * time.Second
	idleTimeout    = time.Minute
	answerTimeout  = 150 * time.Second // a slow BMC is audited in less
	writeTimeout   = answerTimeout + 10*time.Second
	stopTimeout    = 5 * time.Second
	maxHeaderBytes = 16 << 10
	maxBodyBytes   = 64 << 10
)

// Server serves the API of one daemon.
type Server struct {
	daemon     Daemon
	roles      Roles
	log        *log.Logger
	twoPersons *twoPersonRule
	deniedLog  *deniedLog
	dryRuns    *dryRuns
	looks      looks
	auditReads auditReads
	refusals   *refusalLog
	helper     string // the socket of fenced-login
}

// NewServer makes a server. It logs refused orders and broken connections. Orders of the
// verbs in twoPersons need a second person.
func NewServer(d Daemon, roles Roles, log *log.Logger, twoPersons ...wire.Verb) *Server {
	return &Server{
		daemon: d, roles: roles, log: log,
		twoPersons: &twoPersonRule{verbs: twoPersons, onlyCluster: d.OnlyCluster, waiting: map[orderKey]firstOrder{}}, deniedLog: &deniedLog{recorded: map[deniedKey]time.Time{}},
		dryRuns: &dryRuns{by: map[uint32]bool{}}, looks: make(looks, maxViewerLooks), auditReads: auditReads{make(chan struct{}, maxAuditReads), make(chan struct{}, maxAuditReads), auditTime}, refusals: &refusalLog{log: log},
		helper: login.Socket,
	}
}

// Serve answers on ln, a unix socket, until ctx is done. Requests in flight
// then have a moment to end; event streams end at once.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	srv := &http.Server{
		Handler:           s.handler(),
		ReadHeaderTimeout: headerTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          s.log,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			if pc, ok := c.(*peerConn); ok {
				return withPeer(ctx, pc.peer)
			}
			return ctx
		},
	}
	in := &peerListener{Listener: ln, roles: s.roles, refusals: s.refusals, helper: s.helper, seats: seats{of: map[seatOwner]int{}}}
	unhook := context.AfterFunc(ctx, func() { _ = ln.Close() }) // it ends Serve
	err := srv.Serve(in)
	if unhook() {
		return fmt.Errorf("serve the control socket: %w", err)
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	// Shutdown drops what is read once it has begun, also from a caller who was let in before. So those are answered first: under
	// fenced.socket nobody else would be asked again.
	srv.SetKeepAlivesEnabled(false)
	answered := make(chan struct{})
	go func() { in.open.Wait(); close(answered) }()
	select {
	case <-answered:
	case <-grace.Done():
	}
	if err := srv.Shutdown(grace); err != nil {
		return fmt.Errorf("stop the control socket: %w", errors.Join(err, srv.Close()))
	}
	return nil
}

// guardRequests handles what the mux does not: unclean paths and slow bodies.
func guardRequests(mux http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// The mux would answer an unclean path with an HTML redirect.
		if path.Clean(r.URL.Path) != r.URL.Path {
			notFound(w, r)
			return
		}
		if r.ContentLength != 0 {
			// Not http.Server.ReadTimeout: that would also end event streams.
			if err := http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout)); err != nil {
				writeError(w, errorOf(err))
				return
			}
		}
		mux.ServeHTTP(w, r)
	})
}

// allow lets only callers with the role through.
func (s *Server) allow(need wire.Role, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := s.authorise(r, need); err != nil {
			writeError(w, err)
			return
		}
		h.ServeHTTP(w, r)
	})
}

func (s *Server) authorise(r *http.Request, need wire.Role) *Error {
	p := peerFrom(r.Context())
	if s.roles.Of(p) >= need {
		return nil
	}
	p = p.named()
	what := r.Method + " " + r.URL.Path
	s.refusals.printf(time.Now(), "control socket: refused %q to %s: needs role %s", what, p.Actor(), need)
	return notAuthorised(p, need, what)
}

func (s *Server) reply(a answer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), answerTimeout)
		defer cancel()
		v, err := a(ctx, r)
		if err != nil {
			writeError(w, errorOf(err))
			return
		}
		writeJSON(w, http.StatusOK, v)
	})
}

func notFound(w http.ResponseWriter, r *http.Request) {
	writeError(w, NotFound(CodeNotFound, fmt.Sprintf("no route %q", r.URL.Path), "fencectl and fenced may be of different versions"))
}

func writeError(w http.ResponseWriter, e *Error) { writeJSON(w, e.Status, e) }

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	var body bytes.Buffer
	enc := json.NewEncoder(&body)
	enc.SetEscapeHTML(false)
	// The types always encode; what fails is a caller that has gone away.
	_ = enc.Encode(v)
	_, _ = w.Write(wire.Versioned(body.Bytes()))
}

// answer is the work of one route: a value to send as JSON, or an error.
type answer func(ctx context.Context, r *http.Request) (any, error)

// route is one row of the API.
type route struct {
	method  string
	pattern string
	need    wire.Role
	handler func(*Server) http.Handler
}

// reads are the routes that change nothing. Those of orders are the rows of wire.Verbs. Each
// takes ?cluster=NAME, where the daemon serves several; a higher role may use it too.
var reads = []route{
	get("/v1/status", (*Server).status),
	get("/v1/nodes", (*Server).nodes),
	get("/v1/nodes/{node}/explain", (*Server).explain),
	get("/v1/machines/{namespace}/{machine}/explain", (*Server).explain),
	get("/v1/nodes/{node}/timeline", (*Server).timelineOf),
	get("/v1/machines/{namespace}/{machine}/timeline", (*Server).timelineOf),
	get("/v1/names", (*Server).names), // ?prefix=TEXT
	get("/v1/plan", (*Server).plan),
	get("/v1/check-config", (*Server).coverage),
	get("/v1/bmcs", (*Server).bmcs),
	get("/v1/runs", (*Server).runs),                                     // ?since=RFC3339
	get("/v1/runs/{id}", (*Server).run),                                 // a timeline of one run
	stream("/v1/events", wire.Viewer, (*Server).events),                 // ?stream=ID&after=SEQ; NDJSON, never ends but with ?follow=false
	{http.MethodGet, "/v1/report", wire.Viewer, (*Server).periodReport}, // ?since=RFC3339&until=RFC3339
	stream("/v1/audit", wire.Viewer, (*Server).audit),                   // ?since=RFC3339&until=RFC3339&node=NODE&run=RUN; NDJSON
	stream("/v1/export", wire.Admin, (*Server).export),                  // NDJSON, the whole state
}

// get is a row that answers viewers with one value; its type is the handler's.
func get[T any](pattern string, read func(*Server, context.Context, *http.Request) (T, error)) route {
	return route{http.MethodGet, pattern, wire.Viewer, func(s *Server) http.Handler {
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
func stream(pattern string, need wire.Role, write func(*Server, http.ResponseWriter, *http.Request)) route {
	return route{http.MethodGet, pattern, need, func(s *Server) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { write(s, w, r) })
	}}
}

// orderRoutes are the rows of a verb. An order, or a look, asks for the role itself, and records who
// lacks it. // I24
func orderRoutes(r wire.VerbRow) (list []route) {
	handler := func(s *Server) http.Handler { return s.reply(s.order(r.Name)) }
	if r.Looks {
		handler = func(s *Server) http.Handler { return s.reply(s.look(r.Name)) }
	}
	for _, pattern := range patterns(r) {
		list = append(list, route{http.MethodPost, pattern, wire.Nobody, handler})
	}
	return list
}

// routes is the whole API.
func routes() []route {
	all := slices.Clone(reads)
	for _, v := range wire.Verbs {
		all = append(all, orderRoutes(v)...)
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
