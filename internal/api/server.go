package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"path"
	"time"

	"github.com/fenced/fenced/internal/login"
)

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
	refusals   *refusalLog
	helper     string // the socket of fenced-login
}

// NewServer makes a server. It logs refused orders and broken connections. Orders of the
// verbs in twoPersons need a second person.
func NewServer(d Daemon, roles Roles, log *log.Logger, twoPersons ...Verb) *Server {
	return &Server{
		daemon: d, roles: roles, log: log,
		twoPersons: &twoPersonRule{verbs: twoPersons, waiting: map[orderKey]firstOrder{}}, deniedLog: &deniedLog{recorded: map[deniedKey]time.Time{}},
		dryRuns: &dryRuns{by: map[uint32]bool{}}, looks: make(looks, maxViewerLooks), refusals: &refusalLog{log: log},
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
	stopped := make(chan error, 1)
	unhook := context.AfterFunc(ctx, func() {
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		if err := srv.Shutdown(grace); err != nil {
			stopped <- fmt.Errorf("stop the control socket: %w", errors.Join(err, srv.Close()))
			return
		}
		stopped <- nil
	})
	err := srv.Serve(&peerListener{Listener: ln, roles: s.roles, refusals: s.refusals, helper: s.helper, seats: seats{of: map[seatOwner]int{}}})
	if !unhook() { // the stop has begun: wait for its end
		return <-stopped
	}
	return fmt.Errorf("serve the control socket: %w", err)
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
func (s *Server) allow(need Role, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := s.authorise(r, need); err != nil {
			writeError(w, err)
			return
		}
		h.ServeHTTP(w, r)
	})
}

func (s *Server) authorise(r *http.Request, need Role) *Error {
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
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	// The types always encode; what fails is a caller that has gone away.
	_ = enc.Encode(v)
}
