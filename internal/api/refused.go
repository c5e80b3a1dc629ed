package api

import (
	"net/http"
	"sync"
	"time"
)

// deniedEvery is between two records of one user who lacks the role for one verb:
// who may do nothing else cannot fill the disk of the audit log.
const deniedEvery = time.Minute

// refused tells the daemon of an order that ends in an error, for the record. Who
// asked for nothing, or for what nobody can understand, gave no order.
func (s *Server) refused(o Order, p Peer, e *Error) {
	switch {
	case o.DryRun, e.Status == http.StatusBadRequest, e.Status == http.StatusRequestEntityTooLarge:
		return
	case e.Code == CodeNotAuthorised && !s.denied.first(p, o.Verb, time.Now()):
		return
	}
	if CheckReason(o.Reason) != nil {
		o.Reason = ""
	}
	s.daemon.Refused(o, e)
}

// denied remembers of whom it was recorded that they lack a role.
type denied struct {
	mu   sync.Mutex
	told map[deniedKey]time.Time
}

type deniedKey struct {
	uid  uint32
	verb Verb
}

// first says whether nothing was recorded of this user and verb for a while.
func (d *denied) first(p Peer, v Verb, now time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for key, at := range d.told {
		if now.Sub(at) >= deniedEvery {
			delete(d.told, key)
		}
	}
	key := deniedKey{p.UID, v}
	if _, told := d.told[key]; told {
		return false
	}
	d.told[key] = now
	return true
}
