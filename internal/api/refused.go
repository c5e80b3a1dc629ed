package api

import (
	"net/http"
	"sync"
	"time"
)

// deniedEvery is the shortest time between two records of one user who lacks the role
// for one verb. Without it, a user without any role could fill the audit log's disk.
const deniedEvery = time.Minute

// recordRefusal gives the daemon an order that ended in an error, for the audit log. A
// dry run, or a request that cannot be parsed, is no order.
func (s *Server) recordRefusal(o Order, p Peer, e *Error) {
	switch {
	case o.DryRun, e.Status == http.StatusBadRequest, e.Status == http.StatusRequestEntityTooLarge:
		return
	case e.Code == CodeNotAuthorised && !s.deniedLog.first(p, o.Verb, time.Now()):
		return
	}
	if CheckReason(o.Reason) != nil {
		o.Reason = ""
	}
	s.daemon.Refused(o, e)
}

// deniedLog remembers which users and verbs were recorded lately.
type deniedLog struct {
	mu       sync.Mutex
	recorded map[deniedKey]time.Time
}

type deniedKey struct {
	uid  uint32
	verb Verb
}

// first says whether this user and verb were not recorded lately.
func (d *deniedLog) first(p Peer, v Verb, now time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for key, at := range d.recorded {
		if now.Sub(at) >= deniedEvery {
			delete(d.recorded, key)
		}
	}
	key := deniedKey{p.UID, v}
	if _, told := d.recorded[key]; told {
		return false
	}
	d.recorded[key] = now
	return true
}
