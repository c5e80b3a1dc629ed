package redfishsim

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path"
)

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

// newSession makes a session.
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
