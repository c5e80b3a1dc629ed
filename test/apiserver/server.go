package apiserver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiversion "k8s.io/apimachinery/pkg/version"
)

// Options are the options of a server. The zero value is usable.
type Options struct {
	// Clock is the time of creations, deletions and the Date of each answer; time.Now if nil. Timeouts and bookmarks
	// of watches keep to the time of this machine.
	Clock func() time.Time
	// Rights are what users may do; everything if nil. Members of AdminGroup may do everything.
	Rights []Right
	// History is how many changes of each kind can be watched later, and back to which a list can be continued;
	// 10,000 if zero. A real server keeps about as many.
	History int
}

// Server is a Kubernetes API in memory. Create it with Start.
type Server struct {
	store
	opts   Options
	kinds  map[schema.GroupResource]*kind // guarded by the lock of the store
	http   *http.Server
	url    string
	faults faults
	access access
}

// Version is the version of Kubernetes that the server says it has, that of the real one of package rig.
const Version = "v1.36.3"

// Start starts a server on a port of loopback that the kernel chooses, with the namespaces of every cluster.
func Start(o Options) (*Server, error) {
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.History == 0 {
		o.History = 10_000
	}
	s := &Server{store: store{keep: o.History}, opts: o, faults: faults{changed: make(chan struct{})}}
	s.access.tokens, s.access.rights = map[string]user{}, o.Rights
	certificate, err := s.access.certify()
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for the API: %w", err)
	}
	s.url = "https://" + l.Addr().String()
	s.kinds = builtIn()
	if err := s.furnish(); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	s.Compact() // no client has seen an older version
	s.http = &http.Server{
		Handler: s, ReadHeaderTimeout: time.Minute, ErrorLog: log.New(io.Discard, "", 0), // of clients that end a handshake
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12},
	}
	go func() { _ = s.http.ServeTLS(l, "", "") }() // ends with Close
	return s, nil
}

// URL is the address of the API.
func (s *Server) URL() string { return s.url }

// Close ends the server and every connection to it.
func (s *Server) Close() { _ = s.http.Close() }

// Compact forgets all changes until now: a watch from an older version, and the rest of a list, are answered with 410.
func (s *Server) Compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.kinds {
		if k.table != nil {
			k.table.forget(s.revision)
		}
	}
}

// Request is one request for resources, in the words of an authorizer.
type Request struct {
	User, Verb, Group, Version, Resource, Subresource, Namespace, Name string
}

// parse returns what a request is for; ok is false of a path that is not of resources.
func parse(r *http.Request) (q Request, ok bool) {
	parts := split(r.URL.Path)
	switch {
	case len(parts) >= 3 && parts[0] == "api":
		q.Version, parts = parts[1], parts[2:]
	case len(parts) >= 4 && parts[0] == "apis":
		q.Group, q.Version, parts = parts[1], parts[2], parts[3:]
	default:
		return q, false
	}
	if parts[0] == "namespaces" && len(parts) > 1 {
		q.Namespace = parts[1]
		if len(parts) > 2 && parts[2] != "status" && parts[2] != "finalize" {
			parts = parts[2:]
		}
	}
	q.Resource = parts[0]
	if len(parts) > 1 {
		q.Name = parts[1]
	}
	if len(parts) > 2 {
		q.Subresource = strings.Join(parts[2:], "/")
	}
	q.Verb = map[string]string{http.MethodPost: "create", http.MethodGet: "get", http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete"}[r.Method]
	switch watch := r.URL.Query().Get("watch"); {
	case q.Name != "":
	case q.Verb == "delete":
		q.Verb = "deletecollection"
	case q.Verb == "get" && (watch == "true" || watch == "1"):
		q.Verb = "watch"
	case q.Verb == "get":
		q.Verb = "list"
	}
	return q, true
}

func split(path string) []string { return strings.Split(strings.Trim(path, "/"), "/") }

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q, resources := parse(r)
	u, known := s.authenticate(r)
	q.User = u.name
	w.Header().Set("Date", s.opts.Clock().UTC().Format(http.TimeFormat))
	w.Header().Set("Cache-Control", "no-cache, private")
	out, err := negotiate(r, nil)
	switch fault := s.faults.meet(r.Context(), q); {
	case r.Context().Err() != nil: // the client has gone
		return
	case fault != nil:
		err = fault
	case !known:
		err = apierrors.NewUnauthorized("Unauthorized")
	case !resources:
		s.other(w, r, out)
		return
	case err == nil:
		err = s.authorize(u, q)
	}
	if err == nil {
		err = s.serve(w, r, u, &q)
	}
	if err != nil {
		out.fail(w, err)
	}
}

// other serves what is not a resource: discovery, the version and the state of the server.
func (s *Server) other(w http.ResponseWriter, r *http.Request, out output) {
	parts := split(r.URL.Path)
	switch parts[0] {
	case "healthz", "livez", "readyz":
		_, _ = io.WriteString(w, "ok")
		return
	case "version":
		out.json(w, apiversion.Info{Major: "1", Minor: "36", GitVersion: Version})
		return
	case "api", "apis":
		if d := s.document(parts); d != nil {
			out.object(w, http.StatusOK, d)
			return
		}
	}
	http.NotFound(w, r)
}

// serve serves a request for resources.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, u user, q *Request) error {
	k := s.kindOf(q)
	if k == nil || q.Subresource != "" && (q.Subresource != "status" || !k.status) || q.Namespace != "" && !k.namespaced && k.resource != "namespaces" {
		http.NotFound(w, r)
		return nil
	}
	out, err := negotiate(r, k)
	if err != nil {
		return err
	}
	c := &call{s: s, k: k, q: q, r: r, user: u, out: out}
	switch {
	case k.review != nil && q.Verb == "create":
		return c.review(w)
	case k.review != nil:
	case q.Verb == "get":
		return c.get(w)
	case q.Verb == "list":
		return c.list(w)
	case q.Verb == "watch":
		return c.watch(w)
	case q.Verb == "create" && q.Name == "":
		return c.create(w)
	case q.Verb == "update" && q.Name != "":
		return c.update(w)
	case q.Verb == "patch" && q.Name != "":
		return c.patch(w)
	case q.Verb == "delete" && q.Subresource == "":
		return c.delete(w)
	}
	return apierrors.NewMethodNotSupported(k.gr(), q.Verb)
}

// Fault is a way in which the server fails requests.
type Fault struct {
	On     func(Request) bool     // the requests that it concerns; all of resources and discovery if nil
	Delay  time.Duration          // how much later they are answered
	Silent bool                   // they, and watches that run, get no byte until the fault is repaired
	Err    *apierrors.StatusError // the answer that they get, for example apierrors.NewInternalError
}

type faults struct {
	mu      sync.Mutex
	current []*Fault
	changed chan struct{} // closed at the next change
}

// Inject makes the server fail in one more way, until repair is called.
func (s *Server) Inject(f Fault) (repair func()) {
	s.faults.change(func(now []*Fault) []*Fault { return append(now, &f) })
	return func() {
		s.faults.change(func(now []*Fault) (rest []*Fault) {
			for _, g := range now {
				if g != &f {
					rest = append(rest, g)
				}
			}
			return rest
		})
	}
}

func (f *faults) change(how func([]*Fault) []*Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.current = how(f.current)
	close(f.changed)
	f.changed = make(chan struct{})
}

// meet makes a request, or a watch that runs, wait as its faults say. It returns the answer that they give to a request.
func (f *faults) meet(ctx context.Context, q Request) error {
	delayed := false
	for {
		f.mu.Lock()
		var met Fault
		for _, g := range f.current {
			if g.On == nil || g.On(q) {
				met.Silent, met.Delay = met.Silent || g.Silent, met.Delay+g.Delay
				if g.Err != nil {
					met.Err = g.Err
				}
			}
		}
		changed := f.changed
		f.mu.Unlock()
		switch {
		case met.Silent:
			select {
			case <-ctx.Done():
				return nil
			case <-changed:
			}
		case met.Delay > 0 && !delayed:
			delayed = true
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(met.Delay):
			}
		case met.Err != nil:
			return met.Err
		default:
			return nil
		}
	}
}
