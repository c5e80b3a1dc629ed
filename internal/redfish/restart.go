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
	closing  bool      // it announced the end of the connection
}

// indicatesRestart reports whether the BMC may have restarted between the last
// answer and this one, which came at now. // I1
//
// A restart ends every TCP connection, so an answer on an old connection excludes
// one. A new connection is only a hint, because some services close connections
// after a while or after each answer. It counts if there was enough time for a
// boot. With Basic authentication no session can show a restart; then it always
// counts, unless the service had announced the end of the old connection.
func (s *restartDetector) indicatesRestart(fresh, basic, closing bool, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	hidden := !s.answered.IsZero() && fresh &&
		(now.Sub(s.answered) >= minBootTime || basic && !s.closing)
	s.answered, s.closing = now, closing
	return hidden
}

// isBasic reports whether req carries the password itself.
func isBasic(req *http.Request) bool {
	_, _, ok := req.BasicAuth()
	return ok
}
