package redfishsim

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/rand"
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"
)

const (
	rootURI     = "/redfish/v1"
	systemsURI  = rootURI + "/Systems"
	sessionsURI = rootURI + "/SessionService/Sessions"
)

// ServeHTTP is the service, over a connection that may be faulty.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	f := s.faults
	s.mu.Unlock()
	if f.Body != "" || f.CloseSilently {
		s.serveRaw(w, r)
		return
	}
	s.answer(w, r)
}

// answer gives the answer: faults of the service first, then who asks, then what.
func (s *Server) answer(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.record(r)
	f := s.faults
	busy := f.Busy > 0 || s.booting()
	if f.Busy > 0 {
		s.faults.Busy--
	}
	s.mu.Unlock()
	if f.Hang || f.HalfOpen {
		s.pause(r, time.Hour)
		panic(http.ErrAbortHandler)
	}
	s.pause(r, f.Latency)
	if f.CloseConnections {
		w.Header().Set("Connection", "close")
	}
	if busy {
		if f.RetryAfter != "" {
			w.Header().Set("Retry-After", f.RetryAfter)
		}
		s.fail(w, cmp.Or(f.BusyAs, http.StatusServiceUnavailable), "ServiceTemporarilyUnavailable", "The service is starting.")
		return
	}
	p := strings.TrimSuffix(r.URL.Path, "/")
	if f.Slashes && p == r.URL.Path {
		http.Redirect(w, r, p+"/", http.StatusPermanentRedirect)
		return
	}
	switch {
	case r.Method == http.MethodGet && p == rootURI:
		s.root(w, f)
	case r.Method == http.MethodPost && p == sessionsURI && !f.BasicOnly:
		s.login(w, r)
	case !s.authorised(r):
		if f.BasicOnly {
			w.Header().Set("WWW-Authenticate", `Basic realm="redfish"`)
		}
		s.fail(w, http.StatusUnauthorized, "NoValidSession", "There is no valid session."+s.echo(r.Header.Get("Authorization")+r.Header.Get("X-Auth-Token")))
	case f.PasswordChange && r.Method != http.MethodDelete:
		s.fail(w, http.StatusForbidden, "PasswordChangeRequired", "The password provided for this account must be changed before access is granted.")
	default:
		s.route(w, r, f, p)
	}
}

// route answers a request of someone known.
func (s *Server) route(w http.ResponseWriter, r *http.Request, f Faults, p string) {
	switch {
	case r.Method == http.MethodDelete && strings.HasPrefix(p, sessionsURI+"/"):
		s.logout(w, r)
		return
	case r.Method == http.MethodGet && s.opts.Resources != nil:
		s.resource(w, p)
		return
	case r.Method == http.MethodGet && p == systemsURI:
		s.collection(w, f)
		return
	case p == managersURI || strings.HasPrefix(p, managersURI+"/"):
		s.serveManager(w, r, f, strings.TrimPrefix(p, managersURI))
		return
	}
	for _, sys := range s.systems {
		if p == sys.URI() || strings.HasPrefix(p, sys.URI()+"/") {
			sys.serve(w, r, f, strings.TrimPrefix(p, sys.URI()))
			return
		}
	}
	s.missing(w)
}

// resource shows one of Options.Resources.
func (s *Server) resource(w http.ResponseWriter, p string) {
	o := maps.Clone(s.opts.Resources[p])
	if o == nil {
		s.missing(w)
		return
	}
	for _, sys := range s.systems {
		if p == sys.URI() {
			s.mu.Lock()
			o["PowerState"] = json.RawMessage(sys.says())
			s.mu.Unlock()
		}
	}
	s.reply(w, http.StatusOK, o)
}

func (s *Server) root(w http.ResponseWriter, f Faults) {
	if s.opts.Resources != nil {
		s.resource(w, rootURI)
		return
	}
	root := map[string]any{
		"@odata.id": rootURI + "/", "@odata.type": "#ServiceRoot.v1_15_0.ServiceRoot",
		"Id": "RootService", "Name": "Root Service", "RedfishVersion": "1.15.0",
		"Systems": link(systemsURI), "Links": map[string]any{},
	}
	if f.NoSystemsLink {
		delete(root, "Systems")
	}
	if !f.NoManager {
		root["Managers"] = link(managersURI)
	}
	if !f.NoSessions {
		root["SessionService"] = link(rootURI + "/SessionService")
		root["Links"] = map[string]any{"Sessions": link(sessionsURI)}
	}
	s.reply(w, http.StatusOK, root)
}

func (s *Server) collection(w http.ResponseWriter, f Faults) {
	var members []any
	for _, sys := range s.systems {
		members = append(members, link(sys.URI()))
	}
	if f.Member != "" {
		members[0] = link(f.Member)
	}
	if f.MembersTwice {
		members = append(members, members...)
	}
	s.reply(w, http.StatusOK, map[string]any{
		"@odata.id": systemsURI, "@odata.type": "#ComputerSystemCollection.ComputerSystemCollection",
		"Name": "Computer Systems", "Members": members, "Members@odata.count": len(members),
	})
}

func (s *Server) missing(w http.ResponseWriter) {
	s.fail(w, http.StatusNotFound, "ResourceMissingAtURI", "There is no such resource.")
}

// fail sends a Redfish error.
func (s *Server) fail(w http.ResponseWriter, status int, id, text string) {
	s.reply(w, status, map[string]any{"error": map[string]any{
		"code": "Base.1.15.GeneralError", "message": "A general error has occurred.",
		"@Message.ExtendedInfo": []any{map[string]any{"MessageId": "Base.1.15." + id, "Message": text}},
	}})
}

func link(uri string) map[string]string { return map[string]string{"@odata.id": uri} }

// pause waits for d. Once the client is gone, or the service stopped, it ends the answer.
func (s *Server) pause(r *http.Request, d time.Duration) {
	if d == 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-r.Context().Done(): // an answer now could still meet the client while it hangs up
		panic(http.ErrAbortHandler)
	case <-s.stopped:
		panic(http.ErrAbortHandler)
	}
}

// OpenSessions is how many sessions clients have left open.
func (s *Server) OpenSessions() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sessions)
}

// WrongLogins is how often another account or password was tried.
func (s *Server) WrongLogins() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.wrong
}

// ExpireSessions forgets all sessions, as a restart or an idle timeout does.
func (s *Server) ExpireSessions() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.sessions)
}

// SetPassword changes the account's password; open sessions stay.
func (s *Server) SetPassword(password string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opts.Password = password
}

// authorised says whether r carries a valid session or the account's password.
func (s *Server) authorised(r *http.Request) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.faults.Unauthorized > 0 {
		s.faults.Unauthorized--
		return false
	}
	if token := r.Header.Get("X-Auth-Token"); token != "" {
		for _, t := range s.sessions {
			if same(t, token) {
				return true
			}
		}
		return false
	}
	user, password, ok := r.BasicAuth()
	return ok && !s.faults.NoBasic && same(user, s.opts.User) && same(password, s.opts.Password)
}

// login answers a POST to the collection of sessions.
func (s *Server) login(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<16))
	var ask struct{ UserName, Password string }
	if err != nil || json.Unmarshal(body, &ask) != nil {
		s.fail(w, http.StatusBadRequest, "MalformedJSON", "The request body is not JSON.")
		return
	}
	s.mu.Lock()
	f := s.faults
	right := same(ask.UserName, s.opts.User) && same(ask.Password, s.opts.Password)
	if !right {
		s.wrong++
	}
	open := len(s.sessions)
	s.mu.Unlock()
	switch {
	case f.NoSessions:
		s.fail(w, http.StatusNotFound, "ResourceMissingAtURI", "There is no such resource.")
	case f.LoginStatus != 0:
		s.fail(w, f.LoginStatus, "GeneralError", "Login is refused."+s.echo(string(body)))
	case !right:
		s.pause(r, f.LoginLatency)
		s.fail(w, http.StatusUnauthorized, "InsufficientPrivilege", "Invalid username or password."+s.echo(string(body)))
	case f.SessionLimit > 0 && open >= f.SessionLimit:
		s.fail(w, http.StatusServiceUnavailable, "SessionLimitExceeded", "The session limit was reached.")
	default:
		id, token := s.newSession()
		s.pause(r, f.LoginLatency)
		w.Header().Set("X-Auth-Token", token)
		w.Header().Set("Location", sessionsURI+"/"+id)
		s.reply(w, http.StatusCreated, map[string]any{"@odata.id": sessionsURI + "/" + id, "Id": id, "UserName": ask.UserName})
	}
}

func (s *Server) newSession() (id, token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.logins++
	id, token = fmt.Sprint(s.logins), rand.Text()
	s.sessions[id] = token
	return id, token
}

// logout answers a DELETE of a session.
func (s *Server) logout(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	id := path.Base(r.URL.Path)
	_, known := s.sessions[id]
	delete(s.sessions, id)
	s.mu.Unlock()
	if !known {
		s.fail(w, http.StatusNotFound, "ResourceMissingAtURI", "There is no such session.")
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// echo repeats credentials in an error text, as careless firmware does.
func (s *Server) echo(text string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.faults.EchoCredentials {
		return ""
	}
	return " You sent: " + text
}

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// reply sends v as JSON.
func (s *Server) reply(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		panic("redfishsim: an answer of our own does not marshal: " + err.Error())
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("OData-Version", "4.0")
	s.mu.Lock()
	f := s.faults
	s.mu.Unlock()
	if f.Encoding != "" {
		w.Header().Set("Content-Encoding", f.Encoding)
	}
	if f.Gzip {
		w.Header().Set("Content-Encoding", "gzip")
		b = compress(b)
	}
	if f.CutAnswers {
		w.Header().Set("Content-Length", strconv.Itoa(len(b)))
		b = b[:len(b)/2]
	}
	w.WriteHeader(status)
	_, _ = w.Write(b) // the client may be gone
	if f.CutAnswers {
		_ = http.NewResponseController(w).Flush() // else not even half would leave
		panic(http.ErrAbortHandler)               // net/http cuts the connection
	}
}

func compress(b []byte) []byte {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	_, _ = z.Write(b) // a buffer takes everything
	_ = z.Close()
	return out.Bytes()
}

// Request is one request that reached the service.
type Request struct {
	Method, Path string
	// Auth is "none", "basic" or "session".
	Auth string
	// IfMatch is that header.
	IfMatch string
	// Resumed: the TLS session of its connection is one of an earlier connection.
	Resumed bool
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
		Method: r.Method, Path: r.URL.Path, Auth: auth, IfMatch: r.Header.Get("If-Match"),
		Resumed: r.TLS != nil && r.TLS.DidResume, At: time.Now(),
	})
}
