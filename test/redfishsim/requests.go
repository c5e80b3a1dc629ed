package redfishsim

import (
	"net/http"
	"strings"
	"time"
)

// Request is one request that reached the service.
type Request struct {
	Method, Path string
	// Auth is "none", "basic" or "session".
	Auth string
	// IfMatch is that header.
	IfMatch string
	At      time.Time
}

// Requests are all requests since the start or the last ResetRequests, in order.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Request(nil), s.requests...)
}

// ResetRequests empties the log of requests.
func (s *Server) ResetRequests() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = nil
}

// Count is how many logged requests have this method and a path that begins so;
// an empty method is any.
func (s *Server) Count(method, pathPrefix string) int {
	n := 0
	for _, r := range s.Requests() {
		if (method == "" || r.Method == method) && strings.HasPrefix(r.Path, pathPrefix) {
			n++
		}
	}
	return n
}

// Connections is how many TCP connections were accepted since the start.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conns
}

// record logs r. s.mu is held.
func (s *Server) record(r *http.Request) {
	auth := "none"
	if r.Header.Get("X-Auth-Token") != "" {
		auth = "session"
	} else if _, _, ok := r.BasicAuth(); ok {
		auth = "basic"
	}
	s.requests = append(s.requests, Request{
		Method: r.Method, Path: r.URL.Path, Auth: auth, IfMatch: r.Header.Get("If-Match"), At: time.Now(),
	})
}
