package redfishsim

import "time"

// Restart is a restart of the BMC, not of its host: every connection is cut,
// sessions are forgotten unless Faults.KeepSessions, and for down each request
// gets 503.
func (s *Server) Restart(down time.Duration) {
	s.mu.Lock()
	if !s.faults.KeepSessions {
		clear(s.sessions)
	}
	s.booted = time.Now().Add(down)
	s.mu.Unlock()
	s.cut()
}

// booting says whether a restart is under way. s.mu is held.
func (s *Server) booting() bool { return time.Now().Before(s.booted) }
