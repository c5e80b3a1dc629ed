package redfishsim

import (
	"net/http"
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
		s.fail(w, http.StatusServiceUnavailable, "ServiceTemporarilyUnavailable", "The service is starting.")
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

func (s *Server) root(w http.ResponseWriter, f Faults) {
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
