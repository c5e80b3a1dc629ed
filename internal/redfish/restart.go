package redfish

import (
	"net/http"
	"sync"
	"time"
)

// shortestBoot is less than any BMC needs to start and answer again.
const shortestBoot = 5 * time.Second

// sightings are what the transport saw last, to tell a restart of the BMC that
// hid between two good answers.
type sightings struct {
	mu       sync.Mutex
	answered time.Time // when the last answer came; zero before the first
	closing  bool      // that answer announced the end of the connection
}

// restarted says whether the BMC may have restarted between the last answer and
// this one, which came at now. // I1
//
// A restart ends every TCP connection, so an answer on an old one shows that
// there was none. A new connection is no more than a hint, as some services
// close theirs after a while or after each answer; it counts when enough time
// went by for a boot. Where no session could show the restart (Basic), it
// counts always, unless the service had announced the end of the old one.
func (s *sightings) restarted(fresh, basic, closing bool, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	hidden := !s.answered.IsZero() && fresh &&
		(now.Sub(s.answered) >= shortestBoot || basic && !s.closing)
	s.answered, s.closing = now, closing
	return hidden
}

// isBasic says whether req carries the password itself.
func isBasic(req *http.Request) bool {
	_, _, ok := req.BasicAuth()
	return ok
}
