package redfish

import (
	"net/http"
	"sync"
	"time"
)

// minBootTime is less than any BMC needs to restart.
const minBootTime = 5 * time.Second

// restartDetector holds what the transport saw last. It detects a restart of the
// BMC between two successful answers.
type restartDetector struct {
	mu       sync.Mutex
	answered time.Time // time of the last answer; zero before the first
	closing  bool      // the connection of that answer was to end with it
	// silent: the service ends connections without a word, so it is asked to end each
	// one with its answer.
	silent bool
}

// indicatesRestart reports whether the BMC may have restarted between the last
// answer and this one, which came at now. // I1
//
// A restart ends every TCP connection, so an answer on an old connection excludes
// one. A new connection is only a hint, because some services close connections
// after a while or after each answer. It counts if there was enough time for a
// boot. With Basic authentication no session can show a restart; then it always
// counts, unless the end of the old connection was announced or asked for. So a
// service that ends connections without a word seems to restart once, and is then
// asked to end each one.
func (s *restartDetector) indicatesRestart(fresh, basic, closing bool, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	hidden, silent := false, false
	if fresh && !s.answered.IsZero() {
		hidden = s.hadTimeToBoot(now)
		silent = !hidden && basic && !s.closing
	}
	s.silent = silent || s.silent && !hidden
	s.answered, s.closing = now, closing || silent
	return hidden || silent
}

// lostConnection records that the connection of the last answer had ended at now,
// when the next request was to be sent on it.
func (s *restartDetector) lostConnection(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.answered.IsZero() && !s.closing && !s.hadTimeToBoot(now) {
		s.silent, s.closing = true, true
	}
}

// hadTimeToBoot reports whether a BMC can have booted since the last answer. s.mu is
// held.
func (s *restartDetector) hadTimeToBoot(now time.Time) bool {
	return now.Sub(s.answered) >= minBootTime
}

// endsSilently reports whether the service ends connections without a word.
func (s *restartDetector) endsSilently() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.silent
}

// isBasic reports whether req carries the password itself.
func isBasic(req *http.Request) bool {
	_, _, ok := req.BasicAuth()
	return ok
}
