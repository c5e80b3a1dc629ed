package apiserver

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiversion "k8s.io/apimachinery/pkg/version"
)

// Options are the options of a server. The zero value is usable.
type Options struct {
	// Clock is the time of creations and deletions, and the Date of each answer; time.Now if nil. Timeouts and bookmarks of watches
	// keep to the time of this machine.
	Clock func() time.Time
	// Audit gets a line for each deletion that is done, like that of an audit log of Kubernetes; nil for none.
	Audit io.Writer
	// History is how many changes of each kind can be watched later, and undone for the next page of a list; 10,000 if zero.
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

// Version is the version that the server says it has, that of the real one of package rig.
const Version = "v1.36.3"

// Start starts a server on a port of loopback that the kernel chooses, with the namespaces of every cluster.
func Start(o Options) (*Server, error) {
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.History == 0 {
		o.History = 10_000
	}
	s := &Server{store: store{keep: o.History}, opts: o, kinds: builtIn(), faults: faults{changed: make(chan struct{})}}
	s.access.tokens = map[string]user{}
	certificate, err := s.access.certify()
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for the API: %w", err)
	}
	s.url = "https://" + l.Addr().String()
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

// Compact forgets all changes until now: a watch from an older version and the next page of a list are answered with 410.
func (s *Server) Compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.kinds {
		if k.table != nil {
			k.table.forget(s.revision)
		}
	}
}

// Request is what a request is for, in the words of an authorizer.
type Request struct {
	User, Verb, Group, Version, Resource, Subresource, Namespace, Name string
}

func split(path string) []string { return strings.Split(strings.Trim(path, "/"), "/") }

// parse returns what a request is for; ok is false if its path is not of resources.
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
		if q.Namespace = parts[1]; len(parts) > 2 && parts[2] != "status" {
			parts = parts[2:]
		}
	}
	parts = append(parts, "", "")
	q.Resource, q.Name, q.Subresource = parts[0], parts[1], parts[2]
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

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q, resources := parse(r)
	u, known := s.authenticate(r)
	q.User = u.name
	c := &call{s: s, q: &q, w: w, r: r, user: u}
	w.Header().Set("Date", s.opts.Clock().UTC().Format(http.TimeFormat))
	err := c.negotiate()
	if failed := s.faults.meet(r.Context(), q); failed != nil {
		err = failed
	} else if !known {
		err = apierrors.NewUnauthorized("Unauthorized")
	}
	switch {
	case r.Context().Err() != nil: // the client has gone
	case err != nil:
	case !resources:
		c.other()
	default:
		err = c.serve()
	}
	if err != nil {
		c.fail(err)
	}
}

// other serves what is not a resource: discovery, the version and the health of the server.
func (c *call) other() {
	switch parts := split(c.r.URL.Path); parts[0] {
	case "healthz", "livez", "readyz":
		_, _ = io.WriteString(c.w, "ok") // else the client has gone
		return
	case "version":
		c.w.Header().Set("Content-Type", runtime.ContentTypeJSON)
		_ = json.NewEncoder(c.w).Encode(apiversion.Info{Major: "1", Minor: "36", GitVersion: Version}) // else the client has gone
		return
	case "api", "apis":
		if d := c.s.document(parts); d != nil {
			c.document(http.StatusOK, d)
			return
		}
	}
	http.NotFound(c.w, c.r)
}

// serve serves a request for resources.
func (c *call) serve() error {
	if err := c.s.authorize(c.user, *c.q); err != nil { // before whether there is such a kind
		return err
	}
	c.s.mu.RLock()
	k := c.s.kinds[schema.GroupResource{Group: c.q.Group, Resource: c.q.Resource}]
	c.s.mu.RUnlock()
	if k == nil || !slices.Contains(k.versions, c.q.Version) || c.q.Subresource != "" && (c.q.Subresource != "status" || !k.status) {
		http.NotFound(c.w, c.r)
		return nil
	}
	c.k = k
	if err := c.negotiate(); err != nil {
		return err
	}
	serves := map[string]func() error{"get": c.get, "list": c.list, "watch": c.watch, "create": c.create, "update": c.update, "patch": c.patch, "delete": c.delete}
	if k.table == nil {
		serves = map[string]func() error{"create": c.review}
	}
	if serves[c.q.Verb] == nil || c.r.URL.Query().Has("dryRun") {
		return apierrors.NewMethodNotSupported(k.gr(), c.q.Verb)
	}
	return serves[c.q.Verb]()
}

// Fault is a way in which the server fails requests.
type Fault struct {
	On     func(Request) bool // the requests that it concerns; all if nil
	Delay  time.Duration      // how much later they are answered
	Silent bool               // they, and watches that run, get no byte until the fault is repaired
	Err    error              // the answer that they get, for example of apierrors.NewInternalError
}

type faults struct {
	mu      sync.Mutex
	current []*Fault
	changed chan struct{} // closed at the next change
}

// Inject makes the server fail in one more way, until repair is called.
func (s *Server) Inject(f Fault) (repair func()) {
	change := func(how func([]*Fault) []*Fault) {
		s.faults.mu.Lock()
		defer s.faults.mu.Unlock()
		s.faults.current = how(slices.Clone(s.faults.current))
		close(s.faults.changed)
		s.faults.changed = make(chan struct{})
	}
	change(func(now []*Fault) []*Fault { return append(now, &f) })
	return func() {
		change(func(now []*Fault) []*Fault { return slices.DeleteFunc(now, func(g *Fault) bool { return g == &f }) })
	}
}

// meet makes a request, or a watch that runs, wait as its faults say. It returns the answer that they give to a request.
func (f *faults) meet(ctx context.Context, q Request) error {
	for delayed := false; ; {
		var met Fault
		f.mu.Lock()
		for _, g := range f.current {
			if g.On == nil || g.On(q) {
				met = Fault{Silent: met.Silent || g.Silent, Delay: met.Delay + g.Delay, Err: errors.Join(met.Err, g.Err)}
			}
		}
		changed, passed := f.changed, (<-chan time.Time)(nil)
		f.mu.Unlock()
		switch {
		case met.Silent:
		case met.Delay > 0 && !delayed:
			changed, passed, delayed = nil, time.After(met.Delay), true
		default:
			return met.Err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		case <-passed:
		}
	}
}
