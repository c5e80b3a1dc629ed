package apiserver

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"mime"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	apiversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/rest"

	"github.com/fenced/fenced/test/certs"
)

// Version is the version that the server says it has, that of the real one of package rig.
const Version = "v1.36.3"

// AdminGroup may do everything.
const AdminGroup = "system:masters"

// anonymous is who shows no credentials. It may do nothing.
const anonymous = "system:anonymous"

// Options are the options of a server. The zero value is usable.
type Options struct {
	// Addresses are in its certificate, besides 127.0.0.1: those of listeners that Serve gets.
	Addresses []net.IP
	// Clock is the time of creations and deletions, and the Date of each answer; time.Now if nil. Timeouts and bookmarks of watches
	// keep to the time of this machine.
	Clock func() time.Time
	// Audit gets a line for each deletion that is done, like that of an audit log of Kubernetes; nil for none.
	Audit io.Writer
	// History is how many changes of each kind can be watched, and listed as they were, later; 10,000 if zero.
	History int
	// Before is called before each request is answered, and before a watch sends more; nil for nothing. It may wait, until ctx ends if
	// the client is to hear nothing. The answer to a request is its error.
	Before func(ctx context.Context, q Request) error
	// Allows says what a user may do who is not of AdminGroup; everybody may do everything if it is nil.
	Allows func(user string, what authorizationv1.ResourceAttributes) bool
}

// Server is a Kubernetes API in memory. Create it with Start.
type Server struct {
	store
	opts   Options
	kinds  map[schema.GroupResource]*kind // guarded by the lock of the store
	http   *httptest.Server
	ca     []byte // in PEM
	secret string // begins each token
}

// Start starts a server on a port of loopback that the kernel chooses, with the namespaces of every cluster.
func Start(o Options) (*Server, error) {
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.History == 0 {
		o.History = 10_000
	}
	if o.Before == nil {
		o.Before = func(context.Context, Request) error { return nil }
	}
	s := &Server{store: store{keep: o.History}, opts: o, kinds: builtIn(), secret: utilrand.String(40)}
	if err := s.furnish(); err != nil {
		return nil, err
	}
	ca, err := certs.NewAuthority()
	if err != nil {
		return nil, err
	}
	certificate, err := ca.TLS(o.Addresses...)
	if err != nil {
		return nil, err
	}
	s.ca, s.http = ca.PEM, httptest.NewUnstartedServer(s)
	s.http.TLS, s.http.EnableHTTP2 = &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}, true
	s.http.Config.ReadHeaderTimeout, s.http.Config.ErrorLog = time.Minute, log.New(io.Discard, "", 0) // of clients that end a handshake
	s.http.StartTLS()
	return s, nil
}

// URL is the address of the API.
func (s *Server) URL() string { return s.http.URL }

// Serve serves the API at one more listener, until Close.
func (s *Server) Serve(l net.Listener) {
	go func() { _ = s.http.Config.Serve(tls.NewListener(l, s.http.TLS)) }() // its only end is Close
}

// Close ends the server and every connection to it.
func (s *Server) Close() { _ = s.http.Config.Close() }

// RESTConfig is a client configuration for a user of any name in any groups, with a bearer token of its own and without a rate limit.
func (s *Server) RESTConfig(name string, groups ...string) *rest.Config {
	token := strings.Join(append([]string{s.secret, name}, groups...), "/")
	return &rest.Config{Host: s.URL(), QPS: -1, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAData: s.ca}}
}

// authenticate returns who sends a request; nobody for a token that is not of this server.
func (s *Server) authenticate(r *http.Request) (user string, groups []string) {
	token := r.Header.Get("Authorization")
	if token == "" {
		return anonymous, nil
	}
	parts := strings.Split(token, "/")
	if parts[0] != "Bearer "+s.secret {
		return "", nil
	}
	return parts[1], parts[2:]
}

// allows says whether who sends a request may do something.
func (c *call) allows(what authorizationv1.ResourceAttributes) bool {
	return slices.Contains(c.groups, AdminGroup) || c.q.User != anonymous && (c.s.opts.Allows == nil || c.s.opts.Allows(c.q.User, what))
}

// Request is what a request is for, in the words of an authorizer.
type Request struct {
	User string
	authorizationv1.ResourceAttributes
}

// call is one request, and how it is answered.
type call struct {
	s         *Server
	k         *kind // nil if there is none
	q         Request
	w         http.ResponseWriter
	r         *http.Request
	groups    []string // of the user
	mediaType string
	asIs      bool // a new object is stored with its status, and without defaults
}

// parse returns what a request is for; its version is empty if its path is not of resources.
func parse(r *http.Request) (q Request) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case len(parts) >= 3 && parts[0] == "api":
		q.Version, parts = parts[1], parts[2:]
	case len(parts) >= 4 && parts[0] == "apis":
		q.Group, q.Version, parts = parts[1], parts[2], parts[3:]
	default:
		return q
	}
	if parts[0] == "namespaces" && len(parts) > 1 {
		if q.Namespace = parts[1]; len(parts) > 2 {
			parts = parts[2:]
		}
	}
	parts = append(parts, "", "")
	q.Resource, q.Name, q.Subresource = parts[0], parts[1], parts[2]
	q.Verb = map[string]string{http.MethodPost: "create", http.MethodGet: "get", http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete"}[r.Method]
	if q.Name == "" && q.Verb == "get" {
		if q.Verb = "list"; r.URL.Query().Get("watch") == "true" || r.URL.Query().Get("watch") == "1" {
			q.Verb = "watch"
		}
	}
	return q
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Date", s.opts.Clock().UTC().Format(http.TimeFormat))
	c := &call{s: s, q: parse(r), w: w, r: r}
	c.q.User, c.groups = s.authenticate(r)
	s.mu.RLock()
	c.k = s.kinds[schema.GroupResource{Group: c.q.Group, Resource: c.q.Resource}]
	s.mu.RUnlock()
	if err := c.serve(); err != nil && r.Context().Err() == nil { // else the client has gone
		status := statusOf(err)
		if status.Details != nil && status.Details.RetryAfterSeconds > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(int(status.Details.RetryAfterSeconds)))
		}
		_ = c.answer(int(status.Code), status, nil) // it can be encoded
	}
}

func (c *call) serve() error {
	unacceptable := c.negotiate() // an error has a media type, too
	if err := c.s.opts.Before(c.r.Context(), c.q); err != nil {
		return err
	}
	if c.q.User == "" {
		return apierrors.NewUnauthorized("Unauthorized")
	}
	if c.q.Version == "" {
		return c.other()
	}
	if err := c.authorize(); err != nil { // before whether there is such a kind
		return err
	}
	if c.k == nil || !slices.Contains(c.k.versions, c.q.Version) || c.q.Subresource != "" && (c.q.Subresource != "status" || !c.k.status) {
		http.NotFound(c.w, c.r)
		return nil
	}
	if unacceptable != nil {
		return unacceptable
	}
	serves := map[string]func() error{"get": c.get, "list": c.list, "watch": c.watch, "create": c.create, "update": c.update, "patch": c.patch, "delete": c.delete}
	if c.k.table == nil {
		serves = map[string]func() error{"create": c.review}
	}
	if serves[c.q.Verb] == nil || c.r.URL.Query().Has("dryRun") {
		return apierrors.NewMethodNotSupported(c.k.gr(), c.q.Verb)
	}
	return serves[c.q.Verb]()
}

// other serves what is not a resource: discovery, the version and the health of the server.
func (c *call) other() error {
	switch path := strings.TrimSuffix(c.r.URL.Path, "/"); path {
	case "/healthz", "/livez", "/readyz":
		_, _ = io.WriteString(c.w, "ok") // else the client has gone
	case "/version":
		c.w.Header().Set("Content-Type", runtime.ContentTypeJSON)
		_ = json.NewEncoder(c.w).Encode(apiversion.Info{Major: "1", Minor: "36", GitVersion: Version}) // else the client has gone
	default:
		if d := c.s.documents()[path]; d != nil {
			return c.answer(http.StatusOK, d, nil)
		}
		http.NotFound(c.w, c.r)
	}
	return nil
}

// authorize returns the error of a request that its user has no right to.
func (c *call) authorize() error {
	q := c.q.ResourceAttributes
	if q.Group == authorizationv1.GroupName && c.q.User != anonymous || c.allows(q) { // every user may ask for its rights
		return nil
	}
	resource, where := strings.TrimSuffix(q.Resource+"/"+q.Subresource, "/"), "at the cluster scope"
	if q.Namespace != "" {
		where = fmt.Sprintf("in the namespace %q", q.Namespace)
	}
	//lint:ignore ST1005 Kubernetes' words
	why := fmt.Errorf("User %q cannot %s resource %q in API group %q %s", c.q.User, q.Verb, resource, q.Group, where)
	return apierrors.NewForbidden(schema.GroupResource{Group: q.Group, Resource: q.Resource}, q.Name, why)
}

// review answers a question about rights.
func (c *call) review() error {
	o, err := c.received()
	if err != nil {
		return err
	}
	r := o.(*authorizationv1.SelfSubjectAccessReview)
	r.Status.Allowed = r.Spec.ResourceAttributes == nil || c.allows(*r.Spec.ResourceAttributes)
	return c.answer(http.StatusCreated, r, nil)
}

// negotiate chooses the first media type that the client accepts. Tables, metadata alone and aggregated discovery are left to the real
// server: clients that ask for them accept plain answers, too.
func (c *call) negotiate() error {
	supported := c.k.mediaTypes()
	c.mediaType = supported[0]
	for clause := range strings.SplitSeq(strings.Join(c.r.Header.Values("Accept"), ","), ",") {
		mediaType, params, _ := mime.ParseMediaType(clause)
		switch {
		case mediaType == "", mediaType == "*/*", mediaType == "application/*":
			return nil
		case params["as"] == "" && slices.Contains(supported, mediaType):
			c.mediaType = mediaType
			return nil
		}
	}
	return refused(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable, "only the following media types are accepted: "+strings.Join(supported, ", "))
}

func refused(code int32, reason metav1.StatusReason, message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message}}
}

// body reads the body of a request.
func (c *call) body(supported []string) (mediaType string, body []byte, err error) {
	const largest = 3 << 20
	if mediaType, _, err = mime.ParseMediaType(c.r.Header.Get("Content-Type")); err != nil {
		mediaType = supported[0]
	}
	if !slices.Contains(supported, mediaType) {
		return "", nil, refused(http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType,
			"the body of the request was in an unknown format - accepted media types include: "+strings.Join(supported, ", "))
	}
	if body, err = io.ReadAll(io.LimitReader(c.r.Body, largest+1)); err == nil && len(body) > largest {
		err = apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", largest))
	}
	return mediaType, body, err
}

// received is the object in the body of a request.
func (c *call) received() (object, error) {
	mediaType, body, err := c.body(c.k.mediaTypes())
	if err != nil {
		return nil, err
	}
	return c.decode(mediaType, body)
}

// decode decodes an object of the kind and version of the request.
func (c *call) decode(mediaType string, body []byte) (object, error) {
	want, into := c.k.at(c.q.Version), c.k.empty(c.q.Version)
	_, got, err := serializerOf(mediaType).Serializer.Decode(body, &want, into)
	switch {
	case err != nil:
		return nil, apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: %v", want.Kind, want.Version, want.Kind, err))
	case got.GroupVersion() != want.GroupVersion():
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the API version in the data (%s) does not match the expected API version (%s)", got.GroupVersion(), want.GroupVersion()))
	case got.Kind != want.Kind:
		return nil, apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s", got.Kind, got.Version, want.Kind))
	}
	return into, nil
}

// encoder encodes objects and lists of the kind in the version of the request, and what is of no kind, such as a Status.
func (c *call) encoder(mediaType string) runtime.Encoder {
	if c.k == nil {
		return encoder(metav1.Unversioned, mediaType)
	}
	return encoder(c.k.at(c.q.Version).GroupVersion(), mediaType)
}

// answer answers with an object or a list, unless there is an error.
func (c *call) answer(code int, o runtime.Object, err error) error {
	var raw []byte
	if err == nil {
		raw, err = runtime.Encode(c.encoder(c.mediaType), o)
	}
	if err == nil {
		c.w.Header().Set("Content-Type", c.mediaType)
		c.w.WriteHeader(code)
		_, _ = c.w.Write(raw) // else the client has gone
	}
	return err
}

func statusOf(err error) *metav1.Status {
	var api *apierrors.StatusError
	if !errors.As(err, &api) {
		api = apierrors.NewInternalError(err)
	}
	return &api.ErrStatus
}
